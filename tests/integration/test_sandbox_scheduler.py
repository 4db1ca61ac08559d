"""Stops that the embedded cloud holds: schedules that really end instances, and what is refused about them."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from sandbox_client import NEEDED, sandbox_cloud, sandbox_home, sandbox_machine, until  # noqa: F401 - fixtures

from launcher import sandbox
from launcher.sandbox import FaultPlan

pytestmark = NEEDED
LATER = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture(name="scheduler")
def scheduler_with_a_group(cloud):
    client = cloud.client("scheduler")
    client.create_schedule_group(Name="gpucost")
    yield client
    client.delete_schedule_group(Name="gpucost")


def role(cloud, name="gpucost-stop"):
    return f"arn:aws:iam::{cloud.client('sts').get_caller_identity()['Account']}:role/{name}"


def stop(cloud, name, at, *instance_ids, **change):
    return {
        "Name": name,
        "GroupName": "gpucost",
        "ScheduleExpression": f"at({at:%Y-%m-%dT%H:%M:%S})",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances",
            "RoleArn": role(cloud),
            "Input": json.dumps({"InstanceIds": list(instance_ids)}),
        },
        **change,
    }


def names(scheduler):
    return [one["Name"] for one in scheduler.list_schedules(GroupName="gpucost")["Schedules"]]


def refused(call, **parameters):
    with pytest.raises(ClientError) as error:
        call(**parameters)
    return error.value.response["Error"]["Code"], error.value.response["ResponseMetadata"]["HTTPStatusCode"]


def test_a_due_schedule_terminates_its_instance_as_a_user_would_and_goes(cloud, scheduler, machine):
    machine.wait("running")
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    made = scheduler.create_schedule(**stop(cloud, "gpucost-lease", due, machine.id))
    assert made["ScheduleArn"].endswith(":schedule/gpucost/gpucost-lease")
    until("a moment before", lambda: time.time() > due.timestamp() - 0.5)
    assert (names(scheduler), machine.state()) == (["gpucost-lease"], "running")
    end = machine.wait("terminated")
    moments = [due + timedelta(seconds=late) for late in (0, 1)]
    assert end["StateTransitionReason"] in [f"User initiated ({at:%Y-%m-%d %H:%M:%S} GMT)" for at in moments]
    assert end["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert names(scheduler) == []


def test_a_schedule_that_is_deleted_in_time_ends_nothing_and_one_that_is_kept_fires_once(cloud, scheduler, machine):
    machine.wait("running")
    due = datetime.now(UTC) + timedelta(seconds=2)
    scheduler.create_schedule(**stop(cloud, "deleted", due, machine.id))
    scheduler.create_schedule(**stop(cloud, "kept", due, "i-0123456789abcdef0", ActionAfterCompletion="NONE"))
    scheduler.delete_schedule(Name="deleted", GroupName="gpucost")
    until("both to be due", lambda: time.time() > due.timestamp() + 0.5)
    assert machine.state() == "running"
    assert names(scheduler) == ["kept"]
    assert scheduler.get_schedule(Name="kept", GroupName="gpucost")["State"] == "ENABLED"


def test_a_schedule_ends_instances_of_its_own_region_only(cloud, machine):
    west = cloud.client("scheduler", region="us-west-2")
    west.create_schedule_group(Name="gpucost")
    machine.wait("running")
    due = datetime.now(UTC) + timedelta(seconds=1)
    west.create_schedule(**stop(cloud, "elsewhere", due, machine.id))
    until("it to fire", lambda: not names(west))
    assert machine.state() == "running"


def test_a_moved_schedule_fires_at_its_new_time(cloud, scheduler, machine):
    scheduler.create_schedule(**stop(cloud, "moved", LATER, machine.id))
    scheduler.update_schedule(**stop(cloud, "moved", datetime.now(UTC) + timedelta(seconds=2), machine.id))
    machine.wait("terminated")
    assert names(scheduler) == []


def test_what_aws_refuses_about_a_schedule_is_refused(cloud, scheduler):
    good = stop(cloud, "one", LATER, "i-1")
    scheduler.create_schedule(**good)
    assert refused(scheduler.create_schedule, **good) == ("ConflictException", 409)
    assert refused(scheduler.create_schedule_group, Name="gpucost") == ("ConflictException", 409)
    assert names(scheduler) == ["one"]
    missing = {**good, "Name": "two", "GroupName": "nobodys"}
    assert refused(scheduler.create_schedule, **missing) == ("ResourceNotFoundException", 404)
    assert refused(scheduler.list_schedules, GroupName="nobodys") == ("ResourceNotFoundException", 404)
    assert refused(scheduler.delete_schedule_group, Name="nobodys") == ("ResourceNotFoundException", 404)
    assert refused(scheduler.delete_schedule, Name="two", GroupName="gpucost") == ("ResourceNotFoundException", 404)
    assert refused(scheduler.create_schedule, **{**good, "Name": "a:b"}) == ("ValidationException", 400)
    past = stop(cloud, "two", datetime(2020, 1, 1, tzinfo=UTC), "i-1")
    assert refused(scheduler.create_schedule, **past) == ("ValidationException", 400)
    for name in ("nobodys", cloud.info.instance_profile):
        bad = {**good, "Name": "two", "Target": {**good["Target"], "RoleArn": role(cloud, name)}}
        with pytest.raises(ClientError, match="must allow AWS EventBridge Scheduler to assume the role"):
            scheduler.create_schedule(**bad)
    assert names(scheduler) == ["one"]


def test_a_repeated_create_with_the_same_token_is_answered_and_makes_no_second_schedule(cloud, home, scheduler):
    request = stop(cloud, "one", LATER, "i-1", ClientToken="token-1")
    sandbox.inject(home, FaultPlan(action="CreateSchedule", code="RESET", after=True))
    with pytest.raises(Exception, match=r"(?i)connection"):
        scheduler.create_schedule(**request)
    assert names(scheduler) == ["one"]
    assert scheduler.create_schedule(**request)["ScheduleArn"].endswith("/one")
    assert refused(scheduler.create_schedule, **{**request, "ClientToken": "token-2"}) == ("ConflictException", 409)


def test_faults_reach_the_calls_of_the_scheduler(cloud, home, scheduler):
    sandbox.inject(home, FaultPlan(action="CreateSchedule", code="AccessDeniedException", status=403, message="no"))
    with pytest.raises(ClientError, match=r"AccessDeniedException.*: no$"):
        scheduler.create_schedule(**stop(cloud, "one", LATER, "i-1"))
    assert names(scheduler) == []
    scheduler.create_schedule(**stop(cloud, "one", LATER, "i-1"))
    sandbox.inject(home, FaultPlan(action="DeleteSchedule", code="ThrottlingException", status=429))
    assert refused(scheduler.delete_schedule, Name="one", GroupName="gpucost") == ("ThrottlingException", 429)
    assert names(scheduler) == ["one"]
