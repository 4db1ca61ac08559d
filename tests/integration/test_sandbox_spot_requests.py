"""The requests behind spot instances: what they say after an interruption or a cancellation, and how they are found."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from sandbox_client import NEEDED, sandbox_cloud, sandbox_home  # noqa: F401 - fixtures

from launcher import sandbox

pytestmark = NEEDED
TAG = {"Key": "gpucost-run", "Value": "run-1"}


def requests(cloud, **filters):
    """The spot requests of the run with these further filters."""
    chosen = [{"Name": name.replace("_", "-"), "Values": [value]} for name, value in filters.items()]
    by_tag = {"Name": "tag:gpucost-run", "Values": [TAG["Value"]]}
    return cloud.ec2.describe_spot_instance_requests(Filters=[by_tag, *chosen])["SpotInstanceRequests"]


@pytest.fixture(name="tagged")
def tagged_machine(cloud):
    one = cloud.launch(TagSpecifications=[{"ResourceType": "spot-instances-request", "Tags": [TAG]}])
    one.wait("running")
    yield one
    cloud.ec2.terminate_instances(InstanceIds=[one.id])
    one.wait("terminated")
    cloud.ec2.delete_tags(Resources=[one.describe()["SpotInstanceRequestId"]], Tags=[TAG])


def test_a_request_says_when_and_why_it_changed(cloud, home, tagged):
    (before,) = requests(cloud, state="active")
    assert (before["InstanceId"], before["Status"]["Code"]) == (tagged.id, "fulfilled")
    asked = datetime.now(UTC).replace(microsecond=0)
    sandbox.interrupt(home, tagged.id, 0.5)
    (noticed,) = requests(cloud, state="active", status_code="instance-terminated-no-capacity")
    assert noticed["Status"]["UpdateTime"] >= asked
    tagged.wait("terminated")
    (after,) = requests(cloud, state="closed")
    assert after["Status"]["Code"] == "instance-terminated-no-capacity"
    assert asked <= after["Status"]["UpdateTime"] <= datetime.now(UTC) + timedelta(seconds=1)
    assert requests(cloud, state="active") == requests(cloud, state="open") == []


def test_a_cancelled_request_leaves_its_instance_running_and_stays_cancelled(cloud, tagged):
    (request,) = requests(cloud)
    answer = cloud.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request["SpotInstanceRequestId"]])
    assert answer["CancelledSpotInstanceRequests"][0]["State"] == "cancelled"
    (cancelled,) = requests(cloud, state="cancelled")
    assert cancelled["Status"]["Code"] == "request-canceled-and-instance-running"
    assert tagged.state() == "running"
    cloud.ec2.terminate_instances(InstanceIds=[tagged.id])
    tagged.wait("terminated")
    (ended,) = requests(cloud, state="cancelled")
    assert ended["Status"]["Code"] == "instance-terminated-by-user"


def test_a_request_that_is_not_there_cannot_be_cancelled(cloud):
    with pytest.raises(ClientError, match=r"InvalidSpotInstanceRequestID\.NotFound"):
        cloud.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=["sir-nothing"])
