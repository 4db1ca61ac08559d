"""The stop that EventBridge Scheduler holds: what is asked of it, when it fires, and what its refusals say."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aws_cases import REF
from botocore.exceptions import EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st
from run_cases import RUN_ID
from stubbed_aws import REGION, StubbedAccount

from launcher.providers.aws.timer import AwsTimer, round_up, schedule_name
from launcher.providers.interface import CredentialsError, RefusedError, UnreachableError

LEASE = f"{RUN_ID}-1"
NAME = f"gpucost-{LEASE}"
DEADLINE = datetime(2026, 12, 1, 2, 30, tzinfo=UTC)
OF_NAME = {"Name": NAME, "GroupName": "gpucost"}
MADE = {"ScheduleArn": "arn:aws:scheduler:us-east-1:123456789012:schedule/gpucost/x"}


def schedule(at="2026-12-01T02:30:00", instance=REF.instance_id, partition="aws", role="gpucost-stop"):
    """What CreateSchedule and UpdateSchedule are asked."""
    return {
        "Name": NAME,
        "GroupName": "gpucost",
        "Description": f"gpucost: the stop of lease {LEASE}",
        "ScheduleExpression": f"at({at})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": f"arn:{partition}:scheduler:::aws-sdk:ec2:terminateInstances",
            "RoleArn": f"arn:{partition}:iam::123456789012:role/{role}",
            "Input": json.dumps({"InstanceIds": [instance]}),
            "RetryPolicy": {"MaximumEventAgeInSeconds": 86400, "MaximumRetryAttempts": 185},
        },
    }


def noted(account, call):
    """What the service will be asked by this call: tokens are digests, or of the SDK's making."""
    asked = []

    def note(params, **_):
        asked.append(dict(params))

    account.client("scheduler", REGION).meta.events.register(f"provide-client-params.scheduler.{call}", note)
    return asked


@pytest.fixture
def account():
    made = StubbedAccount()
    made.created = noted(made, "CreateSchedule")
    yield made
    made.close()


def caller(account, partition="aws"):
    arn = f"arn:{partition}:sts::123456789012:assumed-role/ci/session"
    account.expect("sts", "get_caller_identity", {"Account": "123456789012", "Arn": arn, "UserId": "u"}, {})


def group_there(account):
    account.expect("scheduler", "get_schedule_group", {"Name": "gpucost", "State": "ACTIVE"}, {"Name": "gpucost"})


def armed(account, deadline=DEADLINE, **timer):
    """Arms one schedule that is not there yet; what was asked, and what was answered."""
    caller(account)
    group_there(account)
    account.expect("scheduler", "create_schedule", MADE, None)
    until = AwsTimer(account, **timer).arm(REF, LEASE, deadline)
    account.done()
    (asked,) = account.created
    return asked, until


def test_a_stop_is_a_one_shot_schedule_in_our_group_that_ends_this_machine_and_then_itself(account):
    asked, _ = armed(account)
    token = asked.pop("ClientToken")
    assert asked == schedule()
    assert re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", token)


def test_the_role_is_the_one_of_the_job(account):
    asked, _ = armed(account, role="stopper")
    assert asked["Target"]["RoleArn"] == "arn:aws:iam::123456789012:role/stopper"


def test_other_partitions_have_their_own_names(account):
    caller(account, "aws-cn")
    group_there(account)
    account.expect("scheduler", "create_schedule", MADE, None)
    AwsTimer(account).arm(REF, LEASE, DEADLINE)
    assert account.created[0]["Target"] == schedule(partition="aws-cn")["Target"]


@pytest.mark.parametrize(
    ("deadline", "precision", "fires", "until"),
    [
        ("02:30:00", 60, "02:30:00", "02:31:00"),
        ("02:30:00.000001", 60, "02:31:00", "02:32:00"),
        ("02:30:01", 60, "02:31:00", "02:32:00"),
        ("02:30:59.9", 60, "02:31:00", "02:32:00"),
        ("02:30:01", 1, "02:30:01", "02:30:02"),
        ("02:30:01.2", 1, "02:30:02", "02:30:03"),
    ],
)
def test_it_fires_at_the_first_moment_that_is_not_too_early_and_says_until_when(
    account, deadline, precision, fires, until
):
    asked, answer = armed(account, datetime.fromisoformat(f"2026-12-01T{deadline}+00:00"), precision_seconds=precision)
    assert asked["ScheduleExpression"] == f"at(2026-12-01T{fires})"
    assert answer == datetime.fromisoformat(f"2026-12-01T{until}+00:00")


def test_a_deadline_of_another_time_zone_is_the_same_moment(account):
    east = DEADLINE.astimezone(datetime.fromisoformat("2026-12-01T00:00:00+05:30").tzinfo)
    asked, _ = armed(account, east)
    assert asked["ScheduleExpression"] == schedule()["ScheduleExpression"]


@given(st.timedeltas(timedelta(days=-400), timedelta(days=400)), st.sampled_from([1, 60]))
def test_it_never_fires_before_the_deadline_nor_a_whole_step_after_it(later, seconds):
    deadline, step = DEADLINE + later, timedelta(seconds=seconds)
    assert deadline <= round_up(deadline, step) < deadline + step


def test_a_group_that_is_missing_is_made_and_tagged(account):
    caller(account)
    account.refuse("scheduler", "get_schedule_group", "ResourceNotFoundException", status=404)
    asked = noted(account, "CreateScheduleGroup")
    account.expect("scheduler", "create_schedule_group", {"ScheduleGroupArn": MADE["ScheduleArn"]}, None)
    account.expect("scheduler", "create_schedule", MADE, None)
    AwsTimer(account).arm(REF, LEASE, DEADLINE)
    account.done()
    assert asked == [{"Name": "gpucost", "Tags": [{"Key": "gpucost", "Value": "stops"}]}]


def test_the_account_is_asked_for_once(account):
    caller(account)
    for _ in range(2):
        group_there(account)
        account.expect("scheduler", "create_schedule", MADE, None)
    timer = AwsTimer(account)
    for lease in (LEASE, f"{RUN_ID}-2"):
        timer.arm(REF, lease, DEADLINE)
    account.done()
    assert len({asked["ClientToken"] for asked in account.created}) == 2


def test_a_group_that_somebody_else_makes_at_the_same_time_will_do(account):
    caller(account)
    account.refuse("scheduler", "get_schedule_group", "ResourceNotFoundException", status=404)
    account.refuse("scheduler", "create_schedule_group", "ConflictException", status=409)
    account.expect("scheduler", "create_schedule", MADE, None)
    AwsTimer(account).arm(REF, LEASE, DEADLINE)
    account.done()


def meets(account, existing):
    """The schedule of this lease is there already."""
    caller(account)
    group_there(account)
    account.refuse("scheduler", "create_schedule", "ConflictException", status=409)
    account.expect("scheduler", "get_schedule", existing, OF_NAME)


def test_a_stop_that_is_armed_already_is_armed(account):
    meets(account, schedule())
    assert AwsTimer(account).arm(REF, LEASE, DEADLINE) == DEADLINE + timedelta(minutes=1)
    account.done()


@pytest.mark.parametrize(
    "existing",
    [schedule(instance="i-0fedcba9876543210"), schedule(at="2026-12-01T05:00:00"), schedule(role="other")],
    ids=["another machine", "another time", "another role"],
)
def test_a_stop_that_would_do_something_else_is_set_right(account, existing):
    meets(account, existing)
    account.expect("scheduler", "update_schedule", MADE, None)
    asked = noted(account, "UpdateSchedule")
    AwsTimer(account).arm(REF, LEASE, DEADLINE)
    account.done()
    assert asked == [schedule()]


def test_a_schedule_that_is_said_to_be_there_and_is_not_is_asked_for_again(account):
    """It may just have fired, or its group may be on its way out."""
    caller(account)
    group_there(account)
    account.refuse("scheduler", "create_schedule", "ConflictException", status=409)
    account.refuse("scheduler", "get_schedule", "ResourceNotFoundException", status=404)
    with pytest.raises(UnreachableError, match=NAME):
        AwsTimer(account).arm(REF, LEASE, DEADLINE)


UNTRUSTED = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("AccessDeniedException", "User is not authorized to perform: iam:PassRole"),
        ("ValidationException", UNTRUSTED),
        ("ServiceQuotaExceededException", "too many schedules"),
    ],
    ids=["not permitted", "role missing", "quota"],
)
def test_a_refused_stop_names_the_files_to_apply_and_the_role(account, code, message):
    caller(account)
    group_there(account)
    account.refuse("scheduler", "create_schedule", code, message)
    with pytest.raises(RefusedError, match=re.escape(message)) as error:
        AwsTimer(account, role="stopper").arm(REF, LEASE, DEADLINE)
    assert "stopper" in error.value.hint
    named = re.findall(r"templates/\S+\.json", error.value.hint)
    assert len(named) == 3
    assert all((Path(__file__).parents[3] / name).exists() for name in named)


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServerException"])
def test_a_service_that_fails_is_asked_again_by_the_caller(account, code):
    caller(account)
    group_there(account)
    for _ in range(5):
        account.refuse("scheduler", "create_schedule", code, status=400)
    with pytest.raises(UnreachableError, match=code):
        AwsTimer(account).arm(REF, LEASE, DEADLINE)


def test_credentials_that_ended_are_called_so_and_not_a_missing_role(account):
    account.refuse("sts", "get_caller_identity", "ExpiredToken")
    with pytest.raises(CredentialsError) as error:
        AwsTimer(account).arm(REF, LEASE, DEADLINE)
    assert "templates/" not in error.value.hint


def test_a_stop_is_taken_back(account):
    account.expect("scheduler", "delete_schedule", {}, None)
    AwsTimer(account).disarm(LEASE, REGION)
    account.done()


def test_a_stop_that_is_not_there_is_taken_back(account):
    account.refuse("scheduler", "delete_schedule", "ResourceNotFoundException", status=404)
    AwsTimer(account).disarm(LEASE, REGION)
    account.done()


@pytest.mark.parametrize("calls", range(3))
def test_a_network_that_is_cut_at_any_call_is_the_ports_error(account, calls):
    left = [calls]

    def cut(**_):
        left[0] -= 1
        if left[0] < 0:
            raise EndpointConnectionError(endpoint_url="https://scheduler")

    for service in ("sts", "scheduler"):
        account.client(service, REGION).meta.events.register(f"provide-client-params.{service}", cut)
    caller(account)
    group_there(account)
    account.expect("scheduler", "create_schedule", MADE, None)
    with pytest.raises(UnreachableError, match="https://scheduler"):
        AwsTimer(account).arm(REF, LEASE, DEADLINE)


def test_the_name_of_a_schedule_is_that_of_its_lease():
    assert schedule_name("20261201T090000-0001-job-2") == "gpucost-20261201T090000-0001-job-2"


def test_a_long_name_is_cut_behind_the_run_and_still_told_from_its_neighbours():
    run = f"20261201T090000-0001-{'x' * 40}"
    names = [schedule_name(f"{run}-{lease}") for lease in range(1, 30)]
    assert len(set(names)) == len(names)
    assert {len(name) for name in names} == {64}
    assert {name[:55] for name in names} == {f"gpucost-{run}"[:55]}


@given(st.text(min_size=1, max_size=90))
def test_every_name_is_one_that_the_service_takes(lease_id):
    assert re.fullmatch(r"[0-9a-zA-Z\-_.]{1,64}", schedule_name(lease_id))


def test_a_name_that_had_to_be_changed_is_told_from_one_that_is_so():
    assert schedule_name("a run-1") != schedule_name("a-run-1")


@given(st.lists(st.text(alphabet="ab-_ /", min_size=50, max_size=70), min_size=2, max_size=2, unique=True))
def test_no_two_leases_share_a_schedule(leases):
    assert schedule_name(leases[0]) != schedule_name(leases[1])
