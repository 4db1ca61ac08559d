"""EventBridge Scheduler that fires: moto keeps the schedules, this refuses what AWS refuses and fires what is due.

Knows moto's scheduler and IAM models. All methods are called with the daemon's one lock held.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary, WeakSet

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends
from moto.scheduler.models import EventBridgeSchedulerBackend, Schedule, ScheduleGroup, scheduler_backends

from launcher.sandbox import calls
from launcher.sandbox.calls import Answer, Call
from launcher.sandbox.ec2 import ACCOUNT
from launcher.sandbox.schedules import UNTRUSTED_ROLE, Json, Refusal, check_name, read_stop, trusts_the_scheduler

log = logging.getLogger(__name__)


class Scheduler:
    """The service in all regions. `now` gives Unix seconds."""

    def __init__(self, ask: Callable[[Call], Answer], now: Callable[[], float]) -> None:
        """`ask` lets moto answer a call."""
        self._ask = ask
        self._now = now
        self._fired: WeakSet[Schedule] = WeakSet()
        self._bodies: WeakKeyDictionary[Schedule, bytes] = WeakKeyDictionary()
        """By what request each schedule was made: the same one again, token included, is answered, not refused."""
        self.calls: dict[str, Callable[[Call], Answer]] = {
            "CreateSchedule": self._refusing(self._create),
            "UpdateSchedule": self._refusing(self._update),
            "ListSchedules": self._refusing(self._list),
            "CreateScheduleGroup": self._refusing(self._create_group),
            "DeleteScheduleGroup": self._refusing(self._delete_group),
        }
        """The calls that moto alone would answer otherwise than AWS does."""

    def tick(self) -> None:
        """Carry out what is due."""
        now = self._now()
        for region, backend in scheduler_backends[ACCOUNT].items():
            for group in list(backend.schedule_groups.values()):
                for schedule in list(group.schedules.values()):
                    if schedule.state == "ENABLED" and schedule not in self._fired:
                        self._look(region, group, schedule, now)

    def _look(self, region: str, group: ScheduleGroup, schedule: Schedule, now: float) -> None:
        stop = read_stop(_request(schedule))
        if stop.due > now:
            return
        log.info("schedule %s/%s fires: %s", group.name, schedule.name, ", ".join(stop.instance_ids))
        self._fired.add(schedule)
        try:
            ec2_backends[ACCOUNT][region].terminate_instances(list(stop.instance_ids))
        except EC2ClientError as error:
            log.warning("schedule %s/%s failed: %s", group.name, schedule.name, error.message)
        if schedule.action_after_completion == "DELETE":
            group.delete_schedule(schedule.name)

    def _refusing(self, act: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
        def answer(call: Call) -> Answer:
            try:
                return act(call)
            except Refusal as error:
                return calls.error(call, error.code, error.status, str(error))

        return answer

    def _create(self, call: Call) -> Answer:
        request = json.loads(call.body)
        name = _name(call)
        check_name(name)
        group = _group(call, request.get("GroupName"))
        existing = group.schedules.get(name)
        if existing is not None:
            if self._bodies.get(existing) == call.body:
                return calls.answer(json.dumps({"ScheduleArn": existing.arn}).encode(), "application/json")
            raise Refusal(f"Schedule {name} already exists.", code="ConflictException", status=409)
        self._check(request)
        reply = self._ask(call)
        if name in group.schedules:
            self._bodies[group.schedules[name]] = call.body
        return reply

    def _update(self, call: Call) -> Answer:
        request = json.loads(call.body)
        group = _group(call, request.get("GroupName"))
        self._check(request)
        reply = self._ask(call)
        schedule = group.schedules.get(_name(call))
        if schedule is not None:
            # An update replaces everything, by the defaults where it says nothing; moto forgets these two.
            schedule.action_after_completion = request.get("ActionAfterCompletion")
            schedule.state = request.get("State") or "ENABLED"
            self._fired.discard(schedule)
        return reply

    def _check(self, request: Json) -> None:
        stop = read_stop(request)
        if stop.due <= self._now():
            raise Refusal(f"Invalid Schedule Expression {request['ScheduleExpression']}. It is in the past.")
        arn = request["Target"].get("RoleArn")
        roles = iam_backends[ACCOUNT]["aws"].roles.values()
        if not any(role.arn == arn and trusts_the_scheduler(role.assume_role_policy_document) for role in roles):
            raise Refusal(UNTRUSTED_ROLE)

    def _list(self, call: Call) -> Answer:
        for name in parse_qs(call.environ.get("QUERY_STRING", "")).get("ScheduleGroup", []):
            _group(call, name)
        return self._ask(call)

    def _create_group(self, call: Call) -> Answer:
        name = _name(call)
        check_name(name)
        if name in _backend(call).schedule_groups:
            raise Refusal(f"Schedule group {name} already exists.", code="ConflictException", status=409)
        return self._ask(call)

    def _delete_group(self, call: Call) -> Answer:
        name = _group(call, _name(call)).name
        if name == "default":
            raise Refusal("The default schedule group cannot be deleted.")
        return self._ask(call)


def _backend(call: Call) -> EventBridgeSchedulerBackend:
    return scheduler_backends[ACCOUNT][call.region]


def _group(call: Call, name: str | None) -> ScheduleGroup:
    groups = _backend(call).schedule_groups
    name = name or "default"
    if name not in groups:
        raise Refusal(f"Schedule group {name} does not exist.", code="ResourceNotFoundException", status=404)
    return groups[name]


def _name(call: Call) -> str:
    return str(call.environ["PATH_INFO"]).rpartition("/")[2]


def _request(schedule: Schedule) -> Json:
    """A schedule that moto keeps, in the words of the request that made it."""
    return {
        "ScheduleExpression": schedule.schedule_expression,
        "ScheduleExpressionTimezone": schedule.schedule_expression_timezone,
        "Target": schedule.target,
        "ActionAfterCompletion": schedule.action_after_completion,
    }
