"""What is asked of EC2 and how its answers are read: botocore's own clients, checked call by call, no network."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from botocore.exceptions import EndpointConnectionError
from run_cases import OFFER, RUN_ID
from stubbed_aws import REGION, StubbedAccount

from launcher.providers.aws.compute import AwsCompute, host_key_in
from launcher.providers.interface import (
    CapacityError,
    EndCause,
    InstanceRef,
    InstanceState,
    LaunchRequest,
    RefusedError,
    UnreachableError,
)
from pricing.offers import CapacityType

PARAMETER = "/aws/service/deeplearning/ami/x86_64/some-image/latest/ami-id"
REF = InstanceRef(REGION, "i-0123456789abcdef0")
NAME = f"gpucost-{RUN_ID}"
REQUEST = LaunchRequest(
    run_id=RUN_ID,
    lease_id=f"{RUN_ID}-1",
    token="t" * 48,
    offer=OFFER,
    disk_gib=100,
    user_data="#!/bin/sh\n",
    deadline=datetime(2026, 12, 1, 2, 30, tzinfo=UTC),
    ssh_public_key="ssh-ed25519 AAAA gpucost",
    tags={"gpucost-name": "job", "gpucost-deadline": "2026-12-01T10:00:00+00:00"},
)
IMAGE = {
    "ImageId": "ami-1",
    "RootDeviceName": "/dev/sda1",
    "BlockDeviceMappings": [
        {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 65}},
        {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
    ],
}
TAGS = [
    {"Key": "gpucost-name", "Value": "job"},
    {"Key": "gpucost-deadline", "Value": "2026-12-01T10:00:00+00:00"},
    {"Key": "gpucost-run", "Value": RUN_ID},
    {"Key": "gpucost-lease", "Value": f"{RUN_ID}-1"},
    {"Key": "Name", "Value": f"gpucost {RUN_ID}"},
]
OWN_TAG = [{"Key": "gpucost-run", "Value": RUN_ID}]
LAUNCH = {
    "ClientToken": "t" * 48,
    "ImageId": "ami-1",
    "InstanceType": "g4dn.xlarge",
    "MinCount": 1,
    "MaxCount": 1,
    "KeyName": NAME,
    "UserData": "#!/bin/sh\n",
    "InstanceInitiatedShutdownBehavior": "terminate",
    "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1},
    "BlockDeviceMappings": [
        {
            "DeviceName": "/dev/sda1",
            "Ebs": {"VolumeSize": 100, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True},
        }
    ],
    "InstanceMarketOptions": {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
    },
    "TagSpecifications": [
        {"ResourceType": kind, "Tags": TAGS}
        for kind in ("instance", "volume", "network-interface", "spot-instances-request")
    ],
    "Placement": {"AvailabilityZone": "us-east-1c"},
    "SecurityGroupIds": ["sg-1"],
}
GROUP_FILTER = {"Filters": [{"Name": "group-name", "Values": [NAME]}]}
INGRESS = {
    "GroupId": "sg-1",
    "IpPermissions": [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "203.0.113.7/32"}]}],
}


@pytest.fixture
def account():
    made = StubbedAccount()
    yield made
    made.close()


def compute(account, **changes):
    settings = {"image_parameter": PARAMETER, "instance_profile": None, "subnet": None} | changes
    return AwsCompute(account, ssh_cidr=lambda: "203.0.113.7/32", **settings)


def expect_image(account, image=IMAGE):
    account.expect("ssm", "get_parameter", {"Parameter": {"Value": "ami-1"}}, {"Name": PARAMETER})
    account.expect("ec2", "describe_images", {"Images": [image]}, {"ImageIds": ["ami-1"]})


def expect_key(account):
    account.expect(
        "ec2",
        "import_key_pair",
        {},
        {
            "KeyName": NAME,
            "PublicKeyMaterial": b"ssh-ed25519 AAAA gpucost",
            "TagSpecifications": [{"ResourceType": "key-pair", "Tags": OWN_TAG}],
        },
    )


def expect_zone(account):
    zones = [{"ZoneId": "use1-az4", "ZoneName": "us-east-1a"}, {"ZoneId": "use1-az1", "ZoneName": "us-east-1c"}]
    account.expect("ec2", "describe_availability_zones", {"AvailabilityZones": zones}, {})


def expect_new_group(account, **more):
    account.expect("ec2", "describe_security_groups", {"SecurityGroups": []}, GROUP_FILTER)
    account.expect(
        "ec2",
        "create_security_group",
        {"GroupId": "sg-1"},
        {
            "GroupName": NAME,
            "Description": "gpucost: SSH from the launcher only",
            "TagSpecifications": [{"ResourceType": "security-group", "Tags": OWN_TAG}],
            **more,
        },
    )
    account.expect("ec2", "authorize_security_group_ingress", {}, INGRESS)


def expect_run(account, parameters):
    account.expect("ec2", "run_instances", {"Instances": [{"InstanceId": REF.instance_id}]}, parameters)


def test_a_spot_launch_is_asked_for_with_all_that_keeps_it_safe(account):
    """Token, one-time spot without a maximum price, own power-off ends it, encrypted gp3, IMDSv2, tags, own group."""
    expect_image(account)
    expect_key(account)
    expect_zone(account)
    expect_new_group(account)
    expect_run(account, LAUNCH)
    assert compute(account).launch(REQUEST) == REF
    account.done()
    assert "MaxPrice" not in str(LAUNCH)
    assert {region for _, region in account.asked} == {REGION}


def test_an_on_demand_launch_asks_for_no_spot(account):
    offer = replace(OFFER, capacity_type=CapacityType.ON_DEMAND, zone="")
    expected = {k: v for k, v in LAUNCH.items() if k not in {"InstanceMarketOptions", "Placement"}}
    expected["TagSpecifications"] = LAUNCH["TagSpecifications"][:3]
    expect_image(account)
    expect_key(account)
    expect_new_group(account)
    expect_run(account, expected)
    compute(account).launch(replace(REQUEST, offer=offer))
    account.done()


def test_role_and_subnet_of_the_job_are_used(account):
    expect_image(account)
    expect_key(account)
    expect_zone(account)
    account.expect("ec2", "describe_security_groups", {"SecurityGroups": []}, GROUP_FILTER)
    account.expect("ec2", "describe_subnets", {"Subnets": [{"VpcId": "vpc-1"}]}, {"SubnetIds": ["subnet-1"]})
    account.expect("ec2", "create_security_group", {"GroupId": "sg-1"}, None)
    account.expect("ec2", "authorize_security_group_ingress", {}, INGRESS)
    expect_run(account, {**LAUNCH, "IamInstanceProfile": {"Name": "role"}, "SubnetId": "subnet-1"})
    compute(account, instance_profile="role", subnet="subnet-1").launch(REQUEST)
    account.done()


def test_a_repeated_launch_takes_the_key_pair_and_group_that_are_there(account):
    expect_image(account)
    account.refuse("ec2", "import_key_pair", "InvalidKeyPair.Duplicate")
    expect_zone(account)
    account.expect("ec2", "describe_security_groups", {"SecurityGroups": [{"GroupId": "sg-1"}]}, GROUP_FILTER)
    account.refuse("ec2", "authorize_security_group_ingress", "InvalidPermission.Duplicate")
    expect_run(account, LAUNCH)
    assert compute(account).launch(REQUEST) == REF
    account.done()


def test_the_disk_is_never_smaller_than_the_image(account):
    big = {**IMAGE, "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 250}}]}
    disk = {**LAUNCH["BlockDeviceMappings"][0], "Ebs": {**LAUNCH["BlockDeviceMappings"][0]["Ebs"], "VolumeSize": 250}}
    expect_image(account, big)
    expect_key(account)
    expect_zone(account)
    expect_new_group(account)
    expect_run(account, {**LAUNCH, "BlockDeviceMappings": [disk]})
    compute(account).launch(REQUEST)
    account.done()


def test_an_image_that_the_region_does_not_have_is_refused_with_its_name(account):
    account.expect("ssm", "get_parameter", {"Parameter": {"Value": "ami-1"}}, {"Name": PARAMETER})
    account.expect("ec2", "describe_images", {"Images": []}, {"ImageIds": ["ami-1"]})
    with pytest.raises(RefusedError, match="ami-1"):
        compute(account).launch(REQUEST)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", CapacityError),
        ("VcpuLimitExceeded", CapacityError),
        ("RequestLimitExceeded", UnreachableError),
        ("UnauthorizedOperation", RefusedError),
    ],
)
def test_a_refused_launch_raises_the_ports_error(account, code, kind):
    expect_image(account)
    expect_key(account)
    expect_zone(account)
    expect_new_group(account)
    account.refuse("ec2", "run_instances", code)
    with pytest.raises(kind, match=code):
        compute(account).launch(REQUEST)


def instance(state, **more):
    return {
        "InstanceId": REF.instance_id,
        "State": {"Name": state},
        "LaunchTime": datetime(2026, 12, 1, 9, 1, tzinfo=UTC),
        "Tags": [{"Key": "gpucost-run", "Value": RUN_ID}, {"Key": "gpucost-lease", "Value": f"{RUN_ID}-1"}],
        **more,
    }


def described(account, *instances):
    account.expect(
        "ec2",
        "describe_instances",
        {"Reservations": [{"Instances": [one]} for one in instances]},
        {"InstanceIds": [REF.instance_id]},
    )


CONSOLE = """[   12.3] cloud-init: stuff
-----BEGIN SSH HOST KEY FINGERPRINTS-----
ci-info: ssh-ed25519 SHA256:zzz
-----END SSH HOST KEY FINGERPRINTS-----
-----BEGIN SSH HOST KEY KEYS-----
ecdsa-sha2-nistp256 AAAAE2VjZHNh root@ip-10-0-0-1
ssh-ed25519 AAAAC3Nza root@ip-10-0-0-1
ssh-rsa AAAAB3Nza root@ip-10-0-0-1
-----END SSH HOST KEY KEYS-----
"""


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (CONSOLE, "ssh-ed25519 AAAAC3Nza"),
        (CONSOLE.replace("\n", "\r\n"), "ssh-ed25519 AAAAC3Nza"),
        (
            CONSOLE.replace("ssh-ed25519 AAAAC3Nza", "[   14.1] cloud-init[812]: ssh-ed25519 AAAAC3Nza"),
            "ssh-ed25519 AAAAC3Nza",
        ),
        (CONSOLE + CONSOLE.replace("AAAAC3Nza", "AAAANEWER"), "ssh-ed25519 AAAANEWER"),
        ("", None),
        ("booting\n", None),
        (CONSOLE.partition("-----END SSH HOST KEY KEYS")[0], None),
        (CONSOLE.replace("ssh-ed25519 AAAAC3Nza root@ip-10-0-0-1\n", ""), None),
        (CONSOLE.replace("ssh-ed25519 AAAAC3Nza root@ip-10-0-0-1", "ssh-ed25519"), None),
    ],
    ids=["plain", "crlf", "prefixed", "two-boots", "empty", "early", "cut", "no-ed25519", "torn-line"],
)
def test_the_host_key_is_read_from_between_the_markers_and_nowhere_else(text, key):
    assert host_key_in(text) == key


def test_a_running_machine_has_an_address_and_the_key_from_its_console(account):
    described(account, instance("running", PublicIpAddress="198.51.100.1"))
    account.expect(
        "ec2",
        "get_console_output",
        {"Output": CONSOLE},
        {"InstanceId": REF.instance_id, "Latest": True},
    )
    described(account, instance("running", PublicIpAddress="198.51.100.1"))
    provider = compute(account)
    status = provider.describe(REF)
    assert (status.state, status.address, status.lease_id) == (InstanceState.RUNNING, "198.51.100.1", f"{RUN_ID}-1")
    assert status.host_key == "ssh-ed25519 AAAAC3Nza"
    assert status.launched_at == datetime(2026, 12, 1, 9, 1, tzinfo=UTC)
    assert provider.describe(REF).host_key == "ssh-ed25519 AAAAC3Nza", "the console is read once"
    account.done()


def test_a_machine_whose_console_shows_no_key_yet_shows_its_last_lines(account):
    described(account, instance("running"))
    account.expect("ec2", "get_console_output", {"Output": "\n".join(f"line {n}" for n in range(30))}, None)
    status = compute(account).describe(REF)
    assert (status.host_key, status.address) == (None, None)
    assert status.console_tail.splitlines() == [f"line {n}" for n in range(20, 30)]


@pytest.mark.parametrize("code", ["UnsupportedOperation", "InvalidInstanceID.NotFound"])
def test_a_console_that_cannot_be_had_is_no_error(account, code):
    described(account, instance("running"))
    account.refuse("ec2", "get_console_output", code)
    assert compute(account).describe(REF).host_key is None


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("pending", InstanceState.PENDING),
        ("shutting-down", InstanceState.STOPPING),
        ("stopping", InstanceState.STOPPING),
        ("stopped", InstanceState.STOPPED),
        ("terminated", InstanceState.GONE),
    ],
)
def test_every_state_of_ec2_has_its_word(account, name, state):
    described(account, instance(name))
    assert compute(account).describe(REF).state is state


@pytest.mark.parametrize(
    ("code", "transition", "by", "at"),
    [
        (
            "Client.UserInitiatedShutdown",
            "User initiated (2026-12-01 09:31:07 GMT)",
            EndCause.USER,
            datetime(2026, 12, 1, 9, 31, 7, tzinfo=UTC),
        ),
        ("Client.InstanceInitiatedShutdown", "", EndCause.INSIDE, None),
        ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination", EndCause.PROVIDER, None),
        ("Server.InternalError", "Server.InternalError", EndCause.PROVIDER, None),
        ("Client.VolumeLimitExceeded", "", EndCause.UNKNOWN, None),
    ],
)
def test_who_ended_a_machine_and_when_is_read_from_its_reason(account, code, transition, by, at):
    reason = {"Code": code, "Message": f"{code}: words"}
    described(account, instance("terminated", StateReason=reason, StateTransitionReason=transition))
    status = compute(account).describe(REF)
    assert (status.ended_by, status.ended_at, status.reason) == (by, at, f"{code}: words")


def test_a_machine_that_ec2_does_not_know_is_gone(account):
    account.refuse("ec2", "describe_instances", "InvalidInstanceID.NotFound")
    account.expect("ec2", "describe_instances", {"Reservations": []}, None)
    provider = compute(account)
    for _ in range(2):
        status = provider.describe(REF)
        assert (status.state, status.launched_at, status.lease_id) == (InstanceState.GONE, None, None)


def test_machines_are_found_by_the_tag_of_their_run(account):
    account.expect(
        "ec2",
        "describe_instances",
        {"Reservations": [{"Instances": [instance("pending")]}, {"Instances": [instance("terminated")]}]},
        {"Filters": [{"Name": "tag:gpucost-run", "Values": [RUN_ID]}]},
    )
    found = compute(account).find(RUN_ID, REGION)
    assert [status.state for status in found] == [InstanceState.PENDING, InstanceState.GONE]


def test_ending_what_is_gone_is_a_success(account):
    account.refuse("ec2", "terminate_instances", "InvalidInstanceID.NotFound")
    compute(account).terminate(REF)
    account.done()


def test_what_was_made_beside_the_machine_is_deleted(account):
    account.expect("ec2", "delete_key_pair", {}, {"KeyName": NAME})
    account.expect("ec2", "describe_security_groups", {"SecurityGroups": [{"GroupId": "sg-1"}]}, GROUP_FILTER)
    account.expect("ec2", "delete_security_group", {}, {"GroupId": "sg-1"})
    compute(account).clean_up(RUN_ID, REGION)
    account.done()


def test_a_group_that_a_dying_machine_still_holds_is_left_for_later(account):
    account.refuse("ec2", "delete_key_pair", "InvalidKeyPair.NotFound")
    account.expect("ec2", "describe_security_groups", {"SecurityGroups": [{"GroupId": "sg-1"}]}, GROUP_FILTER)
    account.refuse("ec2", "delete_security_group", "DependencyViolation")
    compute(account).clean_up(RUN_ID, REGION)
    account.done()


CALLS = {
    "launch": lambda provider: provider.launch(REQUEST),
    "describe": lambda provider: provider.describe(REF),
    "find": lambda provider: provider.find(RUN_ID, REGION),
    "terminate": lambda provider: provider.terminate(REF),
    "clean_up": lambda provider: provider.clean_up(RUN_ID, REGION),
}


class CutAccount(StubbedAccount):
    """The network is cut after so many calls of EC2."""

    def __init__(self, calls):
        super().__init__()
        self.left = calls

    def client(self, service, region):
        client = super().client(service, region)
        client.meta.events.register("provide-client-params.ec2", self._cut, unique_id="cut")
        return client

    def _cut(self, **_):
        self.left -= 1
        if self.left < 0:
            raise EndpointConnectionError(endpoint_url="https://ec2")


@pytest.mark.parametrize("calls", range(7))
@pytest.mark.parametrize("name", CALLS)
def test_a_network_that_is_cut_at_any_call_is_the_ports_error_and_nothing_of_botocore(name, calls):
    account = CutAccount(calls)
    if name == "launch":
        expect_image(account)
        expect_key(account)
        expect_zone(account)
        expect_new_group(account)
        expect_run(account, LAUNCH)
    elif name in {"describe", "find"}:
        answer = {"Reservations": [{"Instances": [instance("running")]}]}
        account.expect("ec2", "describe_instances", answer, None)
        account.expect("ec2", "get_console_output", {"Output": ""}, None)
    elif name == "terminate":
        account.expect("ec2", "terminate_instances", {}, None)
    else:
        account.expect("ec2", "delete_key_pair", {}, None)
        account.expect("ec2", "describe_security_groups", {"SecurityGroups": [{"GroupId": "sg-1"}]}, None)
        account.expect("ec2", "delete_security_group", {}, None)
    try:
        CALLS[name](compute(account))
    except UnreachableError as error:
        assert "https://ec2" in str(error)  # noqa: PT017 - with enough calls nothing is raised
    finally:
        account.close()
