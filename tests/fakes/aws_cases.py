"""One launch on AWS and every call that it makes, for the tests of the adapter: parameters as EC2 is asked them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from launcher_clock import FakeClock
from run_cases import OFFER, RUN_ID
from stubbed_aws import REGION, StubbedAccount

from launcher.providers.aws.compute import AwsCompute
from launcher.providers.interface import InstanceRef, LaunchRequest
from pricing.offers import CapacityType

PARAMETER = "/aws/service/deeplearning/ami/x86_64/some-image/latest/ami-id"
REF = InstanceRef(REGION, "i-0123456789abcdef0")
GROUP_NAME = f"gpucost-{RUN_ID}"
KEY_NAME = f"gpucost-{RUN_ID}-9de8a231"
"""The digits are the SHA-256 of `ssh-ed25519 AAAA`."""
REQUEST = LaunchRequest(
    run_id=RUN_ID,
    lease_id=f"{RUN_ID}-1",
    token="t" * 48,
    offer=OFFER,
    disk_gib=100,
    user_data="#!/bin/sh\n",
    deadline=datetime(2026, 12, 1, 2, 30, tzinfo=UTC),
    ssh_public_key="ssh-ed25519 AAAA gpucost",
    tags={
        "gpucost-name": "job",
        "gpucost-deadline": "2026-12-01T10:00:00+00:00",
        "gpucost-output": "s3://bucket/runs",
    },
)
ON_DEMAND = replace(REQUEST, offer=replace(OFFER, capacity_type=CapacityType.ON_DEMAND, zone=""))
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
    {"Key": "gpucost-output", "Value": "s3://bucket/runs"},
    {"Key": "gpucost-run", "Value": RUN_ID},
    {"Key": "gpucost-lease", "Value": f"{RUN_ID}-1"},
    {"Key": "Name", "Value": f"gpucost {RUN_ID}"},
]
RUN_TAGS = [
    {"Key": "gpucost-run", "Value": RUN_ID},
    {"Key": "gpucost-output", "Value": "s3://bucket/runs"},
    {"Key": "gpucost-deadline", "Value": "2026-12-01T10:00:00+00:00"},
]
LAUNCH = {
    "ClientToken": "t" * 48,
    "ImageId": "ami-1",
    "InstanceType": "g4dn.xlarge",
    "MinCount": 1,
    "MaxCount": 1,
    "KeyName": KEY_NAME,
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
ON_DEMAND_LAUNCH = {
    **{key: value for key, value in LAUNCH.items() if key not in {"InstanceMarketOptions", "Placement"}},
    "TagSpecifications": LAUNCH["TagSpecifications"][:3],
}
OF_RUN = {"Name": "tag:gpucost-run", "Values": [RUN_ID]}
OPEN_REQUESTS = {"Filters": [OF_RUN, {"Name": "state", "Values": ["open"]}]}
GROUP_FILTER = {"Filters": [{"Name": "group-name", "Values": [GROUP_NAME]}]}
INGRESS = {
    "GroupId": "sg-1",
    "IpPermissions": [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "203.0.113.7/32"}]}],
}


def compute(account: StubbedAccount, clock: FakeClock | None = None, **changes: Any) -> AwsCompute:
    """The adapter on a stubbed account."""
    settings = {"image_parameter": PARAMETER, "instance_profile": None, "subnet": None} | changes
    return AwsCompute(account, ssh_cidr=lambda: "203.0.113.7/32", clock=clock or FakeClock(), **settings)


def expect_image(account: StubbedAccount, image: dict[str, Any] = IMAGE) -> None:
    account.expect("ssm", "get_parameter", {"Parameter": {"Value": "ami-1"}}, {"Name": PARAMETER})
    account.expect("ec2", "describe_images", {"Images": [image]}, {"ImageIds": ["ami-1"]})


def expect_key(account: StubbedAccount) -> None:
    account.expect(
        "ec2",
        "import_key_pair",
        {},
        {
            "KeyName": KEY_NAME,
            "PublicKeyMaterial": b"ssh-ed25519 AAAA gpucost",
            "TagSpecifications": [{"ResourceType": "key-pair", "Tags": RUN_TAGS}],
        },
    )


def expect_zone(account: StubbedAccount) -> None:
    zones = [{"ZoneId": "use1-az4", "ZoneName": "us-east-1a"}, {"ZoneId": "use1-az1", "ZoneName": "us-east-1c"}]
    account.expect("ec2", "describe_availability_zones", {"AvailabilityZones": zones}, {})


def expect_new_group(account: StubbedAccount, **more: Any) -> None:
    account.expect("ec2", "describe_security_groups", {"SecurityGroups": []}, GROUP_FILTER)
    account.expect(
        "ec2",
        "create_security_group",
        {"GroupId": "sg-1"},
        {
            "GroupName": GROUP_NAME,
            "Description": "gpucost: SSH from the launcher only",
            "TagSpecifications": [{"ResourceType": "security-group", "Tags": RUN_TAGS}],
            **more,
        },
    )
    account.expect("ec2", "authorize_security_group_ingress", {}, INGRESS)


def expect_surroundings(account: StubbedAccount) -> None:
    """All calls before RunInstances."""
    expect_image(account)
    expect_key(account)
    expect_zone(account)
    expect_new_group(account)


def expect_run(account: StubbedAccount, parameters: dict[str, Any]) -> None:
    account.expect("ec2", "run_instances", {"Instances": [{"InstanceId": REF.instance_id}]}, parameters)


def instance(state: str, **more: Any) -> dict[str, Any]:
    """One machine as DescribeInstances has it."""
    return {
        "InstanceId": REF.instance_id,
        "State": {"Name": state},
        "LaunchTime": datetime(2026, 12, 1, 9, 1, tzinfo=UTC),
        "Tags": [{"Key": "gpucost-run", "Value": RUN_ID}, {"Key": "gpucost-lease", "Value": f"{RUN_ID}-1"}],
        **more,
    }


def described(account: StubbedAccount, *instances: dict[str, Any]) -> None:
    account.expect(
        "ec2",
        "describe_instances",
        {"Reservations": [{"Instances": [one]} for one in instances]},
        {"InstanceIds": [REF.instance_id]},
    )
