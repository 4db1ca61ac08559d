"""The embedded cloud from outside: what an EC2 client sees of launches, ends, interruptions and faults."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from datetime import datetime
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from sandbox_client import (  # noqa: F401 - fixtures
    NEEDED,
    Machine,
    all_processes,
    argv,
    imds,
    instance_folder,
    is_open,
    marked_processes,
    sandbox_cloud,
    sandbox_home,
    sandbox_instances,
    sandbox_machine,
    until,
)

from launcher import sandbox
from launcher.errors import BadInput
from launcher.sandbox import FaultPlan

pytestmark = NEEDED


def test_a_spot_instance_boots_runs_its_user_data_and_answers_ssh_with_the_key_from_the_console(cloud, home):
    script = "#!/bin/bash\necho working hard >&2\necho from-user-data > $GPUCOST_ROOT/tmp/made\n"
    answer = cloud.ec2.run_instances(**cloud.request(user_data=script))["Instances"][0]
    machine = Machine(cloud, answer["InstanceId"])
    assert answer["State"]["Name"] == "pending"
    assert answer["InstanceLifecycle"] == "spot"
    running = machine.wait("running")
    assert running["PublicIpAddress"].startswith("127.")
    assert running["SpotInstanceRequestId"] == answer["SpotInstanceRequestId"]
    code, out, err = machine.run("cat $GPUCOST_ROOT/tmp/made; pwd; echo oops >&2; exit 3")
    assert (code, err) == (3, "oops\n")
    assert out.splitlines() == ["from-user-data", str(instance_folder(home, machine) / "root/home/ubuntu")]
    assert "working hard" in machine.console()
    machine.close()
    cloud.ec2.terminate_instances(InstanceIds=[machine.id])
    machine.wait("terminated")


def test_terminate_ends_detached_processes_too_and_takes_directory_and_ports_away(cloud, home):
    machine = cloud.launch()
    machine.connect()
    assert machine.run("setsid sleep 1000 >/dev/null 2>&1 </dev/null &")[0] == 0
    assert machine.run("env -i setsid sh -c 'sleep 1000 & exec sleep 1000' >/dev/null 2>&1 </dev/null &")[0] == 0
    base = machine.run("echo $AWS_EC2_METADATA_SERVICE_ENDPOINT")[1].strip()
    address, port = base.removeprefix("http://").split(":")
    seen = until("the sleepers", lambda: [p for p in marked_processes(home) if "sleep" in argv(p)])
    assert seen
    assert instance_folder(home, machine).is_dir()
    assert is_open(address, cloud.info.ssh_port)
    assert is_open(address, int(port))
    answer = cloud.ec2.terminate_instances(InstanceIds=[machine.id])["TerminatingInstances"][0]
    assert (answer["PreviousState"]["Name"], answer["CurrentState"]["Name"]) == ("running", "shutting-down")
    with pytest.raises(ClientError, match="DependencyViolation"):
        cloud.ec2.delete_security_group(GroupId=cloud.group)
    end = machine.wait("terminated")
    assert end["StateTransitionReason"].startswith("User initiated (")
    assert end["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert "PublicIpAddress" not in end
    assert not instance_folder(home, machine).exists()
    assert not is_open(address, cloud.info.ssh_port)
    assert not is_open(address, int(port))
    assert not [p for p in all_processes() if "sleep 1000" in argv(p)]
    request = cloud.ec2.describe_spot_instance_requests(Filters=[{"Name": "instance-id", "Values": [machine.id]}])[
        "SpotInstanceRequests"
    ][0]
    assert (request["State"], request["Status"]["Code"]) == ("closed", "instance-terminated-by-user")
    volumes = cloud.ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [machine.id]}])
    assert volumes["Volumes"] == []
    machine.close()
    assert cloud.ec2.terminate_instances(InstanceIds=[machine.id])["TerminatingInstances"]


def test_an_interruption_is_announced_and_then_ends_the_instance(cloud, home, machine):
    machine.connect()
    base = machine.run("echo $AWS_EC2_METADATA_SERVICE_ENDPOINT")[1].strip()
    assert imds(base, "meta-data/spot/instance-action")[0] == 404
    asked = time.time()
    assert sandbox.interrupt(home, machine.id, 1.5) == [machine.id]
    code, text = imds(base, "meta-data/spot/instance-action")
    action = json.loads(text)
    assert (code, action["action"]) == (200, "terminate")
    at = datetime.fromisoformat(action["time"]).timestamp()
    assert -1.0 <= at - (asked + 1.5) <= 1.0
    assert "noticeTime" in json.loads(imds(base, "meta-data/events/recommendations/rebalance")[1])
    assert machine.state() == "running"
    request = cloud.ec2.describe_spot_instance_requests(
        SpotInstanceRequestIds=[machine.describe()["SpotInstanceRequestId"]]
    )["SpotInstanceRequests"][0]
    assert request["Status"]["Code"] == "instance-terminated-no-capacity"
    with pytest.raises(BadInput, match="has its interruption notice already"):
        sandbox.interrupt(home, machine.id, 1.0)
    end = machine.wait("terminated")
    assert time.time() - asked >= 1.5
    assert end["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert end["StateTransitionReason"] == "Server.SpotInstanceTermination"
    assert not instance_folder(home, machine).exists()


def test_only_running_spot_instances_are_interrupted(cloud, home):
    machine = cloud.launch(market=None)
    machine.wait("running")
    with pytest.raises(BadInput, match="is an on-demand instance"):
        sandbox.interrupt(home, machine.id, 1.0)
    with pytest.raises(BadInput, match="no spot instance is running"):
        sandbox.interrupt(home, None, 1.0)
    with pytest.raises(BadInput, match="i-nothing is not an instance of this sandbox"):
        sandbox.interrupt(home, "i-nothing", 1.0)
    assert sandbox.kill(home, machine.id) == [machine.id]
    assert machine.state() == "terminated"


@pytest.mark.parametrize(
    ("command", "behavior", "final"),
    [
        pytest.param("sudo -n shutdown -h now", "terminate", "terminated", id="shutdown-terminates"),
        pytest.param("systemctl poweroff", "stop", "stopped", id="poweroff-stops"),
    ],
)
def test_a_power_off_from_inside_follows_the_shutdown_behaviour(cloud, home, command, behavior, final):
    machine = cloud.launch(market=None, InstanceInitiatedShutdownBehavior=behavior)
    machine.connect()
    assert machine.run(command)[0] == 0
    end = machine.wait(final)
    assert end["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert instance_folder(home, machine).exists() is (final == "stopped")
    machine.close()
    cloud.ec2.terminate_instances(InstanceIds=[machine.id])
    machine.wait("terminated")
    assert not instance_folder(home, machine).exists()


def test_a_stopped_instance_starts_again_with_its_files_and_does_not_run_user_data_twice(cloud):
    machine = cloud.launch(market=None, user_data="#!/bin/bash\necho once >> $HOME/boots\n")
    machine.connect()
    first_key = machine.host_key()
    cloud.ec2.stop_instances(InstanceIds=[machine.id])
    machine.wait("stopped")
    machine.close()
    cloud.ec2.start_instances(InstanceIds=[machine.id])
    machine.connect()
    assert machine.run("cat boots")[1] == "once\n"
    assert machine.host_key() == first_key
    machine.close()
    cloud.ec2.terminate_instances(InstanceIds=[machine.id])
    machine.wait("terminated")


def test_a_failing_boot_can_be_read_on_the_console_even_when_the_instance_is_gone(cloud):
    machine = cloud.launch(user_data="#!/bin/bash\necho cannot find the disk >&2\nexit 9\n")
    machine.host_key()
    cloud.ec2.terminate_instances(InstanceIds=[machine.id])
    machine.wait("terminated")
    assert "cannot find the disk\n[sandbox] user-data ended with exit code 9\n" in machine.console()


def test_an_instance_whose_host_fails_is_terminated_by_the_cloud(cloud, home):
    machine = cloud.launch()
    machine.wait("running")
    (first,) = [pid for pid in marked_processes(home) if "launcher.sandbox.machine" in argv(pid)]
    os.kill(first, signal.SIGKILL)
    assert machine.wait("terminated")["StateReason"]["Code"] == "Server.InternalError"
    assert not instance_folder(home, machine).exists()


def test_a_spot_instance_cannot_be_stopped(cloud, machine):
    with pytest.raises(ClientError, match="UnsupportedOperation"):
        cloud.ec2.stop_instances(InstanceIds=[machine.id])


def test_a_client_token_is_good_for_one_instance_in_its_zone(cloud):
    token = uuid.uuid4().hex
    request = cloud.request(ClientToken=token, Placement={"AvailabilityZone": "us-east-1a"})
    first = cloud.ec2.run_instances(**request)["Instances"][0]["InstanceId"]
    assert cloud.ec2.run_instances(**request)["Instances"][0]["InstanceId"] == first
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        cloud.ec2.run_instances(**{**request, "InstanceType": "g4dn.2xlarge"})
    other = {**request, "Placement": {"AvailabilityZone": "us-east-1b"}}
    second = cloud.ec2.run_instances(**other)["Instances"][0]["InstanceId"]
    assert second != first
    filters = [{"Name": "client-token", "Values": [token]}]
    found = [
        i["InstanceId"] for r in cloud.ec2.describe_instances(Filters=filters)["Reservations"] for i in r["Instances"]
    ]
    assert sorted(found) == sorted([first, second])
    cloud.ec2.terminate_instances(InstanceIds=[first, second])
    for one in (first, second):
        Machine(cloud, one).wait("terminated")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"InstanceType": "g9.mega"}, "InvalidInstanceType", id="type"),
        pytest.param({"ImageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound", id="image"),
        pytest.param({"KeyName": "nobodys"}, "InvalidKeyPair.NotFound", id="key"),
        pytest.param({"IamInstanceProfile": {"Name": "nobodys"}}, "InvalidParameterValue|NoSuchEntity", id="profile"),
        pytest.param(
            {"InstanceType": "p4d.24xlarge", "Placement": {"AvailabilityZone": "us-east-1e"}}, "Unsupported", id="zone"
        ),
        pytest.param({"DryRun": True}, "DryRunOperation", id="dry-run"),
    ],
)
def test_a_launch_that_the_cloud_would_refuse_is_refused(cloud, change, code):
    before = len(sandbox_instances(cloud))
    with pytest.raises(ClientError, match=code):
        cloud.ec2.run_instances(**{**cloud.request(), **change})
    assert len(sandbox_instances(cloud)) == before


def test_a_fault_plan_refuses_the_launch_it_names_and_only_that(cloud, home):
    plan = FaultPlan(
        action="RunInstances",
        code="InsufficientInstanceCapacity",
        status=500,
        instance_type=r"g4dn\..*",
        zone="us-east-1b",
        times=1,
    )
    sandbox.inject(home, plan)
    other = cloud.launch(Placement={"AvailabilityZone": "us-east-1a"})
    with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
        cloud.launch(Placement={"AvailabilityZone": "us-east-1b"})
    again = cloud.launch(Placement={"AvailabilityZone": "us-east-1b"})
    cloud.ec2.terminate_instances(InstanceIds=[other.id, again.id])
    for one in (other, again):
        one.wait("terminated")


def test_an_answer_that_is_lost_after_the_launch_is_found_again_with_the_token(cloud, home):
    request = cloud.request(ClientToken=uuid.uuid4().hex)
    sandbox.inject(home, FaultPlan(action="RunInstances", code="RESET", after=True))
    before = set(sandbox_instances(cloud))
    with pytest.raises(Exception, match=r"(?i)connection") as lost:
        cloud.ec2.run_instances(**request)
    assert not isinstance(lost.value, ClientError)
    (made,) = set(sandbox_instances(cloud)) - before
    assert cloud.ec2.run_instances(**request)["Instances"][0]["InstanceId"] == made
    cloud.ec2.terminate_instances(InstanceIds=[made])
    Machine(cloud, made).wait("terminated")


def test_a_plan_that_is_no_regular_expression_is_refused_and_a_cleared_one_does_nothing(cloud, home):
    with pytest.raises(BadInput, match="not a regular expression"):
        sandbox.inject(home, FaultPlan(action="Run(", code="X"))
    sandbox.inject(home, FaultPlan(action="DescribeRegions", code="RequestLimitExceeded", status=503))
    assert sandbox.status(home).pending_faults == 1
    sandbox.clear_faults(home)
    assert cloud.ec2.describe_regions()["Regions"]


def test_another_region_has_the_same_image_and_its_own_instances(cloud):
    west = cloud.client("ec2", region="us-west-2")
    pair = west.import_key_pair(KeyName="west", PublicKeyMaterial=f"ssh-ed25519 {cloud.key.get_base64()}".encode())
    request = cloud.request(KeyName=pair["KeyName"])
    del request["SecurityGroupIds"]
    made = west.run_instances(**request)["Instances"][0]["InstanceId"]
    until(
        "us-west-2", lambda: west.describe_instances()["Reservations"][0]["Instances"][0]["State"]["Name"] == "running"
    )
    assert made not in sandbox_instances(cloud)
    west.terminate_instances(InstanceIds=[made])
    until(
        "the end", lambda: west.describe_instances()["Reservations"][0]["Instances"][0]["State"]["Name"] == "terminated"
    )
