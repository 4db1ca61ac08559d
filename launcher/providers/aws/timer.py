"""EventBridge Scheduler as a `CloudTimer`: a one-shot schedule that calls TerminateInstances, whoever is left.

A schedule takes instance ids only, so it is made after the launch; it carries no tags, so its name and its group tell
whose it is. Facts: user guide pages "Using universal targets" and "Schedule types", botocore model, read on 2026-11-30.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from launcher.providers.aws.account import AwsAccount, Clients
from launcher.providers.aws.calls import ask, ask_unless
from launcher.providers.aws.errors import NO_SCHEDULE, SCHEDULE_EXISTS
from launcher.providers.interface import CredentialsError, InstanceRef, RefusedError, UnreachableError

GROUP = "gpucost"
STOP_ROLE = "gpucost-stop"

_LONGEST_NAME = 64
_FOREIGN = re.compile(r"[^0-9a-zA-Z\-_.]")
_HINT = (
    "the run goes on without this stop; to have it, grant templates/aws-launcher-policy.json, and make the role "
    "{role} with templates/aws-stop-role-trust.json and templates/aws-stop-role-policy.json"
)


class AwsTimer:
    """Stops held by EventBridge Scheduler, in any region of one account."""

    def __init__(self, account: AwsAccount, *, role: str = STOP_ROLE, precision_seconds: float = 60) -> None:
        """`role` is what the schedule acts as; it fires within `precision_seconds` after its time."""
        self._clients = Clients(account)
        self._role = role
        self._precision = timedelta(seconds=precision_seconds)
        self._owner: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """See the port."""
        return "EventBridge Scheduler"

    def arm(self, ref: InstanceRef, lease_id: str, deadline: datetime) -> datetime:
        """See the port. A schedule of this lease that names another machine or time is set right."""
        fires = round_up(deadline, self._precision)
        with self._explained():
            scheduler = self._clients.get("scheduler", ref.region)
            schedule = self._schedule(ref, lease_id, fires)
            _need_group(scheduler)
            token = _token(lease_id, ref.instance_id, fires.isoformat())
            if ask_unless(SCHEDULE_EXISTS, scheduler.create_schedule, **schedule, ClientToken=token) is None:
                _set_right(scheduler, schedule)
        return fires + self._precision

    def disarm(self, lease_id: str, region: str) -> None:
        """See the port."""
        with self._explained():
            delete = self._clients.get("scheduler", region).delete_schedule
            ask_unless(NO_SCHEDULE, delete, Name=schedule_name(lease_id), GroupName=GROUP)

    def close(self) -> None:
        """Let go of all connections."""
        self._clients.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Every refusal but that of the credentials is mended by the same files."""
        try:
            yield
        except CredentialsError:
            raise
        except RefusedError as error:
            raise RefusedError(f"{self.name}: {error}", hint=_HINT.format(role=self._role)) from error

    def _schedule(self, ref: InstanceRef, lease_id: str, fires: datetime) -> dict[str, Any]:
        partition, account = self._account_of(ref.region)
        return {
            "Name": schedule_name(lease_id),
            "GroupName": GROUP,
            "Description": f"gpucost: the stop of lease {lease_id}",
            "ScheduleExpression": f"at({fires:%Y-%m-%dT%H:%M:%S})",
            "ScheduleExpressionTimezone": "UTC",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "ActionAfterCompletion": "DELETE",
            "Target": {
                "Arn": f"arn:{partition}:scheduler:::aws-sdk:ec2:terminateInstances",
                "RoleArn": f"arn:{partition}:iam::{account}:role/{self._role}",
                "Input": json.dumps({"InstanceIds": [ref.instance_id]}),
                "RetryPolicy": {"MaximumEventAgeInSeconds": 86400, "MaximumRetryAttempts": 185},
            },
        }

    def _account_of(self, region: str) -> tuple[str, str]:
        """Partition and id of the account that the credentials belong to."""
        if self._owner is None:
            caller = ask(self._clients.get("sts", region).get_caller_identity)
            self._owner = str(caller["Arn"]).split(":")[1], str(caller["Account"])
        return self._owner


def schedule_name(lease_id: str) -> str:
    """The lease id, so that it begins with the run's; cut, with a digest at its end, where it does not fit."""
    wanted = f"gpucost-{lease_id}"
    name = _FOREIGN.sub("-", wanted)
    if name == wanted and len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(lease_id.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 1 - len(digest)]}-{digest}"


def round_up(moment: datetime, step: timedelta) -> datetime:
    """The first multiple of `step` that is not before `moment`, counted from the epoch."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch - (epoch - moment) // step * step


def _token(*parts: str) -> str:
    # The service takes 64 characters; a repeat after a lost answer is answered, not refused.
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:48]


def _need_group(scheduler: Any) -> None:  # noqa: ANN401 - a boto3 client
    """The group of all our schedules in a region; it costs nothing and stays."""
    if ask_unless(NO_SCHEDULE, scheduler.get_schedule_group, Name=GROUP) is None:
        tags = [{"Key": "gpucost", "Value": "stops"}]
        ask_unless(SCHEDULE_EXISTS, scheduler.create_schedule_group, Name=GROUP, Tags=tags)


def _set_right(scheduler: Any, schedule: Mapping[str, Any]) -> None:  # noqa: ANN401 - a boto3 client
    found = ask_unless(NO_SCHEDULE, scheduler.get_schedule, Name=schedule["Name"], GroupName=schedule["GroupName"])
    if found is None:
        raise UnreachableError(f"the schedule {schedule['Name']} is said to be there, and is not")
    if _essence(found) != _essence(schedule):
        ask(scheduler.update_schedule, **schedule)


def _essence(schedule: Mapping[str, Any]) -> tuple[str, str, object]:
    """When, as whom, and which machine."""
    target = schedule["Target"]
    return schedule["ScheduleExpression"], target["RoleArn"], json.loads(target.get("Input") or "null")
