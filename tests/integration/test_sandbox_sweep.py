"""What a launch leaves behind can be found by tag, and goes or stays with the instance as on AWS."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from sandbox_client import NEEDED, sandbox_cloud, sandbox_home  # noqa: F401 - fixtures

from launcher import sandbox

pytestmark = NEEDED
RUN = "20261130-120000-abcd"
TAGS = [{"Key": "gpucost-run", "Value": RUN}, {"Key": "gpucost-lease", "Value": "1"}]
BY_KEY = {"Name": "tag-key", "Values": ["gpucost-run"]}
BY_RUN = {"Name": "tag:gpucost-run", "Values": [RUN]}
BY_OTHER = {"Name": "tag:gpucost-run", "Values": ["another"]}
LISTS = {
    "describe_volumes": "Volumes",
    "describe_network_interfaces": "NetworkInterfaces",
    "describe_spot_instance_requests": "SpotInstanceRequests",
    "describe_key_pairs": "KeyPairs",
    "describe_security_groups": "SecurityGroups",
    "describe_launch_templates": "LaunchTemplates",
}
TWO_DISKS = [
    {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 30, "VolumeType": "gp3", "DeleteOnTermination": True}},
    {"DeviceName": "/dev/sdb", "Ebs": {"VolumeSize": 10, "DeleteOnTermination": False}},
]


def specification(*kinds):
    return [{"ResourceType": kind, "Tags": TAGS} for kind in kinds]


def find(ec2, call, *filters):
    if call == "describe_instances":
        return [one for page in ec2.describe_instances(Filters=filters)["Reservations"] for one in page["Instances"]]
    return getattr(ec2, call)(Filters=list(filters))[LISTS[call]]


def launch(cloud, **more):
    kinds = specification("instance", "volume", "network-interface", "spot-instances-request")
    return cloud.launch(TagSpecifications=kinds, **more)


def test_everything_made_for_a_run_is_listed_by_its_tags(cloud):
    ec2 = cloud.ec2
    machine = launch(cloud)
    key = f"ssh-ed25519 {cloud.key.get_base64()}".encode()
    ec2.import_key_pair(KeyName="run", PublicKeyMaterial=key, TagSpecifications=specification("key-pair"))
    ec2.create_security_group(GroupName="run", Description="run", TagSpecifications=specification("security-group"))
    ec2.create_launch_template(
        LaunchTemplateName="run",
        LaunchTemplateData={"InstanceType": "g4dn.xlarge"},
        TagSpecifications=specification("launch-template"),
    )
    for call in ("describe_instances", *LISTS):
        (found,) = find(ec2, call, BY_RUN)
        assert [tag for tag in found.get("Tags", found.get("TagSet")) if tag in TAGS] == TAGS, call
        assert len(find(ec2, call, BY_KEY)) == 1, call
        assert find(ec2, call, BY_OTHER) == [], call
    assert find(ec2, "describe_instances", BY_RUN, {"Name": "instance-state-name", "Values": ["terminated"]}) == []
    cloud.ec2.terminate_instances(InstanceIds=[machine.id])
    machine.wait("terminated")
    ec2.delete_launch_template(LaunchTemplateName="run")
    ec2.delete_security_group(GroupName="run")
    ec2.delete_key_pair(KeyName="run")


@pytest.mark.parametrize("kind", ["user", "host"])
def test_disks_and_interfaces_go_with_the_instance_or_stay_behind_as_the_launch_says(cloud, home, kind):
    ec2 = cloud.ec2
    machine = launch(cloud, BlockDeviceMappings=TWO_DISKS)
    machine.wait("running")
    (interface,) = find(ec2, "describe_network_interfaces", BY_RUN)
    assert (interface["Status"], interface["Attachment"]["DeleteOnTermination"]) == ("in-use", True)
    assert [one["State"] for one in find(ec2, "describe_volumes", BY_RUN)] == ["in-use", "in-use"]
    if kind == "user":
        ec2.terminate_instances(InstanceIds=[machine.id])
    else:
        sandbox.kill(home, machine.id)
    machine.wait("terminated")
    assert find(ec2, "describe_network_interfaces", BY_RUN) == []
    (left,) = find(ec2, "describe_volumes", BY_RUN, {"Name": "status", "Values": ["available"]})
    assert (left["Size"], left["Attachments"]) == (10, [])
    ec2.delete_volume(VolumeId=left["VolumeId"])
    assert find(ec2, "describe_volumes", BY_RUN) == []


def test_disks_and_interfaces_are_in_use_until_the_instance_is_gone(cloud):
    machine = launch(cloud)
    machine.connect()
    assert machine.run("trap '' TERM; setsid sleep 1000 >/dev/null 2>&1 </dev/null &")[0] == 0  # takes the grace time
    (interface,) = find(cloud.ec2, "describe_network_interfaces", BY_RUN)
    with pytest.raises(ClientError, match="currently in use"):
        cloud.ec2.delete_network_interface(NetworkInterfaceId=interface["NetworkInterfaceId"])
    cloud.ec2.terminate_instances(InstanceIds=[machine.id])
    assert machine.state() == "shutting-down"
    assert [one["State"] for one in find(cloud.ec2, "describe_volumes", BY_RUN)] == ["in-use"]
    assert len(find(cloud.ec2, "describe_network_interfaces", BY_RUN)) == 1
    machine.close()
    machine.wait("terminated")
    assert find(cloud.ec2, "describe_volumes", BY_RUN) == []
    assert find(cloud.ec2, "describe_network_interfaces", BY_RUN) == []


def test_an_interface_that_shall_outlive_its_instance_becomes_available(cloud):
    ec2 = cloud.ec2
    asked = {"DeviceIndex": 0, "DeleteOnTermination": False, "Groups": [cloud.group]}
    request = cloud.request(TagSpecifications=specification("network-interface"), NetworkInterfaces=[asked])
    del request["SecurityGroupIds"]
    made = ec2.run_instances(**request)["Instances"][0]["InstanceId"]
    ec2.terminate_instances(InstanceIds=[made])
    ec2.get_waiter("instance_terminated").wait(InstanceIds=[made], WaiterConfig={"Delay": 1, "MaxAttempts": 20})
    (left,) = find(ec2, "describe_network_interfaces", BY_RUN)
    assert (left["Status"], left.get("Attachment")) == ("available", None)
    ec2.delete_network_interface(NetworkInterfaceId=left["NetworkInterfaceId"])


def test_an_upload_that_was_never_finished_is_listed_and_can_be_aborted(cloud):
    s3, bucket = cloud.client("s3", cloud.info.s3_endpoint), cloud.info.bucket
    begun = s3.create_multipart_upload(Bucket=bucket, Key=f"runs/{RUN}/last.pt")
    s3.upload_part(Bucket=bucket, Key=begun["Key"], UploadId=begun["UploadId"], PartNumber=1, Body=b"x" * 100)
    (listed,) = s3.list_multipart_uploads(Bucket=bucket, Prefix=f"runs/{RUN}/")["Uploads"]
    assert (listed["Key"], listed["UploadId"]) == (begun["Key"], begun["UploadId"])
    assert listed["Initiated"].tzinfo is not None
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket, Prefix="other/")
    s3.abort_multipart_upload(Bucket=bucket, Key=begun["Key"], UploadId=begun["UploadId"])
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
