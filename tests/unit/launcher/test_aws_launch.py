"""What a launch asks of EC2: botocore's own clients, checked call by call, no network."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aws_cases import (
    GROUP_FILTER,
    IMAGE,
    INGRESS,
    KEY_NAME,
    LAUNCH,
    ON_DEMAND,
    ON_DEMAND_LAUNCH,
    OPEN_REQUESTS,
    PARAMETER,
    REF,
    REQUEST,
    compute,
    expect_image,
    expect_key,
    expect_new_group,
    expect_run,
    expect_surroundings,
    expect_zone,
)
from launcher_clock import FakeClock
from stubbed_aws import REGION, StubbedAccount

from launcher.providers.aws.account import LAUNCHING
from launcher.providers.aws.belongings import key_name
from launcher.providers.aws.compute import PROFILE_TRIES, PROFILE_WAIT_SECONDS
from launcher.providers.interface import CapacityError, QuotaError, RefusedError, UnreachableError

UNKNOWN_PROFILE = "Value (role) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"


@pytest.fixture
def account():
    made = StubbedAccount()
    yield made
    made.close()


def test_a_spot_launch_is_asked_for_with_all_that_keeps_it_safe(account):
    """Token, one-time spot without a maximum price, own power-off ends it, encrypted gp3, IMDSv2, tags, own group."""
    expect_surroundings(account)
    expect_run(account, LAUNCH)
    assert compute(account).launch(REQUEST) == REF
    account.done()
    assert "MaxPrice" not in str(LAUNCH)
    assert {region for _, region, _ in account.asked} == {REGION}


def test_everything_that_is_made_in_the_launch_says_whose_it_is_until_when_and_where_its_results_go(account):
    kinds = {made["ResourceType"]: {tag["Key"] for tag in made["Tags"]} for made in LAUNCH["TagSpecifications"]}
    own = {"gpucost-run", "gpucost-lease", "gpucost-deadline", "gpucost-output", "gpucost-name"}
    assert set(kinds) == {"instance", "volume", "network-interface", "spot-instances-request"}
    assert all(own <= keys for keys in kinds.values())


def test_only_the_launch_call_may_take_a_minute(account):
    expect_surroundings(account)
    expect_run(account, LAUNCH)
    compute(account).launch(REQUEST)
    assert account.asked.count(("ec2", REGION, LAUNCHING)) == 1


def test_an_on_demand_launch_asks_for_no_spot(account):
    expect_image(account)
    expect_key(account)
    expect_new_group(account)
    expect_run(account, ON_DEMAND_LAUNCH)
    compute(account).launch(ON_DEMAND)
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


def test_a_launcher_on_another_machine_has_a_key_pair_of_its_own():
    """Its key is another one, and a key pair cannot be changed."""
    names = {key_name("run", key) for key in ("ssh-ed25519 AAAA laptop", "ssh-ed25519 BBBB laptop")}
    assert len(names) == 2
    assert all(name.startswith("gpucost-run-") for name in names)


def test_a_comment_does_not_make_it_another_key():
    assert key_name("run", "ssh-ed25519 AAAA laptop") == key_name("run", "ssh-ed25519 AAAA ci\n")
    assert key_name(REQUEST.run_id, "ssh-ed25519 AAAA") == KEY_NAME


def test_key_pair_and_group_carry_what_the_request_says_of_output_and_deadline_and_no_more(account):
    bare = replace(REQUEST, tags={"gpucost-name": "job"})
    tags = [{"Key": "gpucost-run", "Value": REQUEST.run_id}]
    key = {
        "KeyName": KEY_NAME,
        "PublicKeyMaterial": bare.ssh_public_key.encode(),
        "TagSpecifications": [{"ResourceType": "key-pair", "Tags": tags}],
    }
    expect_image(account)
    account.expect("ec2", "import_key_pair", {}, key)
    expect_zone(account)
    expect_new_group(account, TagSpecifications=[{"ResourceType": "security-group", "Tags": tags}])
    account.expect("ec2", "run_instances", {"Instances": [{"InstanceId": REF.instance_id}]}, None)
    compute(account).launch(bare)
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
        ("VcpuLimitExceeded", QuotaError),
        ("MaxSpotInstanceCountExceeded", QuotaError),
        ("RequestLimitExceeded", UnreachableError),
        ("InvalidKeyPair.NotFound", UnreachableError),
        ("InvalidGroup.NotFound", UnreachableError),
        ("UnauthorizedOperation", RefusedError),
    ],
)
def test_a_refused_launch_raises_the_ports_error(account, code, kind):
    """A key or group just made may not be visible yet: that is no refusal, the launch is asked for again."""
    expect_surroundings(account)
    account.refuse("ec2", "run_instances", code)
    with pytest.raises(kind, match=code):
        compute(account).launch(REQUEST)


def test_a_new_instance_profile_is_waited_for(account):
    clock = FakeClock()
    expect_surroundings(account)
    for _ in range(2):
        account.refuse("ec2", "run_instances", "InvalidParameterValue", UNKNOWN_PROFILE)
    expect_run(account, {**LAUNCH, "IamInstanceProfile": {"Name": "role"}})
    assert compute(account, clock, instance_profile="role").launch(REQUEST) == REF
    account.done()
    assert clock.elapsed == 2 * PROFILE_WAIT_SECONDS


def test_an_instance_profile_that_nobody_made_is_given_up_after_two_minutes_and_named(account):
    clock = FakeClock()
    expect_surroundings(account)
    for _ in range(PROFILE_TRIES):
        account.refuse("ec2", "run_instances", "InvalidParameterValue", UNKNOWN_PROFILE)
    with pytest.raises(RefusedError, match=r"Value \(role\)") as error:
        compute(account, clock, instance_profile="role").launch(REQUEST)
    account.done()
    assert "aws.instance_profile" in error.value.hint
    assert 60 <= clock.elapsed <= 120


def test_no_other_bad_parameter_is_asked_for_twice(account):
    expect_surroundings(account)
    account.refuse("ec2", "run_instances", "InvalidParameterValue", "Invalid availability zone")
    with pytest.raises(RefusedError, match="Invalid availability zone"):
        compute(account).launch(REQUEST)
    account.done()


def test_a_spot_request_that_a_refused_launch_leaves_open_is_cancelled_at_once(account):
    """It could start a machine that nobody waits for."""
    expect_surroundings(account)
    account.refuse("ec2", "run_instances", "SpotMaxPriceTooLow", "Your price 0.2 is lower than 0.3")
    waiting = {"SpotInstanceRequests": [{"SpotInstanceRequestId": "sir-1"}]}
    account.expect("ec2", "describe_spot_instance_requests", waiting, OPEN_REQUESTS)
    account.expect("ec2", "cancel_spot_instance_requests", {}, {"SpotInstanceRequestIds": ["sir-1"]})
    with pytest.raises(CapacityError, match=r"Your price 0\.2 is lower than 0\.3"):
        compute(account).launch(REQUEST)
    account.done()
