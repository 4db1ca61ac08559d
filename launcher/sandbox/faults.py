"""Refusals on demand: what the cloud should answer wrongly, to whom and how often. Pure matching, no I/O."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace

RESET = "RESET"
"""As a code: the connection is reset instead of an answer."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One kind of fault. The first plan that matches a call and has some `times` left is applied to it."""

    action: str
    """Regular expression for the whole action: `RunInstances`, `.*Instances`, `CreateSchedule`, `PutObject`."""
    code: str | None = None
    """Error code of the answer; `RESET` resets the connection; none: only the delay."""
    status: int = 400
    message: str = "injected by the sandbox"
    times: int = 1
    delay_seconds: float = 0.0
    after: bool = False
    """The call takes effect first, and then its answer is lost."""
    instance_type: str | None = None
    """Only calls for an instance type that this regular expression matches whole."""
    zone: str | None = None
    """Only calls for a zone that this regular expression matches whole."""
    market: str | None = None
    """Only launches of this market: `spot` or `on-demand`."""
    key: str | None = None
    """Only S3 calls for a key that this regular expression matches whole."""


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What a plan can look at."""

    action: str
    instance_type: str | None = None
    zone: str | None = None
    market: str | None = None
    key: str | None = None


def matches(plan: FaultPlan, call: CallFacts) -> bool:
    """Whether `plan` speaks of `call`, whatever its `times`."""
    return (
        _fits(plan.action, call.action)
        and _fits(plan.instance_type, call.instance_type)
        and _fits(plan.zone, call.zone)
        and (plan.market is None or plan.market == call.market)
        and _fits(plan.key, call.key)
    )


def _fits(pattern: str | None, value: str | None) -> bool:
    return pattern is None or (value is not None and re.fullmatch(pattern, value) is not None)


class Faults:
    """The plans that are armed, used up in the order in which they came. Safe to use from several threads."""

    def __init__(self) -> None:
        self._plans: list[FaultPlan] = []
        self._lock = threading.Lock()

    def add(self, plan: FaultPlan) -> None:
        """Arm one more plan. Raises ValueError for a pattern that is no regular expression."""
        for pattern in (plan.action, plan.instance_type, plan.zone, plan.key):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        with self._lock:
            self._plans.append(plan)

    def clear(self) -> None:
        """Disarm all."""
        with self._lock:
            self._plans.clear()

    def pending(self) -> int:
        """How many plans still wait."""
        with self._lock:
            return len(self._plans)

    def take(self, call: CallFacts) -> FaultPlan | None:
        """The plan for this call, with one of its times used up."""
        with self._lock:
            for index, plan in enumerate(self._plans):
                if matches(plan, call):
                    if plan.times <= 1:
                        del self._plans[index]
                    else:
                        self._plans[index] = replace(plan, times=plan.times - 1)
                    return plan
        return None
