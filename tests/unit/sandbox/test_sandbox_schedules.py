"""What a schedule says, and what is refused about it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from launcher.sandbox.schedules import TERMINATE, Refusal, Stop, check_name, read_stop, trusts_the_scheduler

DUE = datetime(2026, 12, 1, 2, 30, tzinfo=UTC).timestamp()


def request(**change):
    target = {"Arn": TERMINATE, "RoleArn": "arn", "Input": json.dumps({"InstanceIds": ["i-1", "i-2"]})}
    target.update(change.pop("target", {}))
    return {"ScheduleExpression": "at(2026-12-01T02:30:00)", "Target": target, **change}


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_schedule_says_its_second_and_its_instances(zone):
    assert read_stop(request(ScheduleExpressionTimezone=zone)) == Stop(DUE, ("i-1", "i-2"))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ScheduleExpression": "rate(1 minute)"}, "Invalid Schedule Expression rate"),
        ({"ScheduleExpression": "at(2026-12-01T02:30:00Z)"}, "Invalid Schedule Expression at"),
        ({"ScheduleExpression": "at(2026-12-01 02:30:00)"}, "Invalid Schedule Expression at"),
        ({"ScheduleExpression": "at(2026-13-01T02:30:00)"}, "Invalid Schedule Expression at"),
        ({"ScheduleExpressionTimezone": "Europe/Berlin"}, "knows UTC only"),
        ({"ActionAfterCompletion": "STOP"}, "must be NONE or DELETE"),
        ({"target": {"Arn": "arn:aws:lambda:us-east-1:1:function:f"}}, "Provided Arn is not in correct format"),
        ({"target": {"Input": "no json"}}, "Invalid Input"),
        ({"target": {"Input": '{"instanceIds": ["i-1"]}'}}, "Invalid Input"),
        ({"target": {"Input": '{"InstanceIds": []}'}}, "must be a list of instance ids"),
    ],
)
def test_what_would_never_end_an_instance_is_refused(change, complaint):
    with pytest.raises(Refusal, match=complaint) as refused:
        read_stop(request(**change))
    assert (refused.value.code, refused.value.status) == ("ValidationException", 400)


def test_names_are_short_and_plain():
    check_name("gpucost-20261201.a_b" + "x" * 44)
    for name in ("", "x" * 65, "a/b", "a b", "a:b"):
        with pytest.raises(Refusal, match="1 validation error detected"):
            check_name(name)


def policy(**change):
    statement = {"Effect": "Allow", "Principal": {"Service": "scheduler.amazonaws.com"}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [{**statement, **change}]})


def test_a_role_is_trusted_only_if_its_policy_names_the_service():
    assert trusts_the_scheduler(policy())
    both = {"Service": ["ec2.amazonaws.com", "scheduler.amazonaws.com"]}
    assert trusts_the_scheduler(policy(Principal=both, Action=["sts:AssumeRole", "sts:TagSession"]))
    assert not trusts_the_scheduler(policy(Principal={"Service": "ec2.amazonaws.com"}))
    assert not trusts_the_scheduler(policy(Principal={"AWS": "*"}))
    assert not trusts_the_scheduler(policy(Effect="Deny"))
    assert not trusts_the_scheduler("{}")
