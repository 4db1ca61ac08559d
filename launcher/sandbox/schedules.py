"""What a one-time schedule of EventBridge Scheduler says, and what AWS refuses about it. Pure: JSON in, facts out.

Only what a stop held by the cloud needs is understood: `at(...)` in UTC, and the universal target that terminates
instances. Anything else is refused with the reason, so that no schedule is kept that would never fire. Sources: the
API model of the service, and the user guide's "Schedule types" and "Using universal targets".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

TERMINATE = "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
SERVICE = "scheduler.amazonaws.com"
UNTRUSTED_ROLE = (
    "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."  # as AWS words it
)
_NAME = re.compile(r"[0-9a-zA-Z-_.]{1,64}")
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_UTC = (None, "UTC", "Etc/UTC")
_COMPLETIONS = (None, "NONE", "DELETE")
Json: TypeAlias = Mapping[str, Any]
"""A decoded JSON object of a caller."""


class Refusal(Exception):
    """The service refuses a call; the message is the answer's."""

    def __init__(self, message: str, *, code: str = "ValidationException", status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True)
class Stop:
    """What a schedule will do, and when."""

    due: float
    """Unix seconds."""
    instance_ids: tuple[str, ...]


def check_name(name: str) -> None:
    """Raises Refusal for a name that no schedule and no group can have."""
    if not _NAME.fullmatch(name):
        raise Refusal(
            f"1 validation error detected: Value '{name}' at 'name' failed to satisfy constraint: "
            "Member must satisfy regular expression pattern: ^[0-9a-zA-Z-_.]+$ and have length between 1 and 64"
        )


def read_stop(request: Json) -> Stop:
    """What a schedule asks for, in the words of CreateSchedule. Raises Refusal."""
    if request.get("ActionAfterCompletion") not in _COMPLETIONS:
        raise Refusal(f"ActionAfterCompletion must be NONE or DELETE, not {request['ActionAfterCompletion']}")
    expression, zone = str(request.get("ScheduleExpression")), request.get("ScheduleExpressionTimezone")
    return Stop(_read_time(expression, zone), _read_target(request.get("Target") or {}))


def _read_time(expression: str, zone: str | None) -> float:
    match = _AT.fullmatch(expression)
    if match is None:
        raise Refusal(f"Invalid Schedule Expression {expression}. The sandbox knows at(yyyy-mm-ddThh:mm:ss) only.")
    if zone not in _UTC:
        raise Refusal(f"Invalid time zone {zone}: the sandbox knows UTC only.")
    try:
        return datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise Refusal(f"Invalid Schedule Expression {expression}.") from error


def _read_target(target: Json) -> tuple[str, ...]:
    if target.get("Arn") != TERMINATE:
        raise Refusal(f"Provided Arn is not in correct format: the sandbox fires {TERMINATE} only.")
    try:
        asked = json.loads(target.get("Input") or "")
        ids = asked["InstanceIds"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal('Invalid Input: expected {"InstanceIds": ["i-..."]} as JSON text.') from error
    if not isinstance(ids, list) or not ids or not all(isinstance(one, str) for one in ids):
        raise Refusal("Invalid Input: InstanceIds must be a list of instance ids.")
    return tuple(ids)


def trusts_the_scheduler(trust_policy: str) -> bool:
    """Whether the trust policy of a role lets the service assume it. Conditions are not looked at."""
    statements = _many(json.loads(trust_policy).get("Statement"))
    return any(
        statement.get("Effect") == "Allow"
        and "sts:AssumeRole" in _many(statement.get("Action"))
        and SERVICE in _many((statement.get("Principal") or {}).get("Service"))
        for statement in statements
    )


def _many(value: Any) -> list[Any]:  # noqa: ANN401 - policies allow one value where there may be several
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
