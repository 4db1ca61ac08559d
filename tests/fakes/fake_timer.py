"""The stop that a cloud in memory holds, and the prices that it asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from fake_compute import FakeProvider, Fault
from launcher_clock import FakeClock

from launcher.providers.interface import InstanceRef, RefusedError, UnreachableError
from pricing.offers import Offer


@dataclass(frozen=True)
class Stop:
    """One stop that is armed."""

    ref: InstanceRef
    fires: datetime
    """Not before; within the precision after it."""


@dataclass
class FakeTimer:
    """A `CloudTimer` that ends machines of a fake cloud, whatever became of everybody else.

    As on AWS it fires somewhere within its precision, and then forgets the stop.
    """

    clock: FakeClock
    provider: FakeProvider
    precision_seconds: float = 60
    works: bool = True
    """False: what is armed does not fire."""
    permitted: bool = True
    """False: nobody may arm it."""
    down: bool = False
    """No call is answered; what is armed fires all the same."""
    armed: dict[str, Stop] = field(default_factory=dict)
    """By lease id."""
    fired: list[str] = field(default_factory=list)
    """Leases whose machine it ended, or tried to."""
    calls: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Those of the calls that were not answered, or with an error."""
    after_call: Callable[[str], None] = lambda _name: None
    name: str = "a timer of the fake cloud"
    _faults: list[Fault] = field(default_factory=list)

    def fail(self, call: str, error: Exception, *, times: int = 1, effect: bool = False) -> None:
        """The next `times` calls of `arm` or `disarm` raise `error`; with `effect` they are carried out first."""
        self._faults += [Fault(call, error, effect)] * times

    def arm(self, ref: InstanceRef, lease_id: str, deadline: datetime) -> datetime:
        fault = self._called("arm")
        if fault is not None and not fault.effect:
            raise fault.error
        until = self._armed(ref, lease_id, deadline)
        self.after_call("timer.arm")
        if fault is not None:
            raise fault.error
        return until

    def disarm(self, lease_id: str, region: str) -> None:
        fault = self._called("disarm")
        if fault is None or fault.effect:
            self.armed.pop(lease_id, None)
            self.after_call("timer.disarm")
        if fault is not None:
            raise fault.error

    def _armed(self, ref: InstanceRef, lease_id: str, deadline: datetime) -> datetime:
        if not self.permitted:
            raise RefusedError("AccessDeniedException: no role to stop it with", hint="make the role")
        step = timedelta(seconds=self.precision_seconds)
        stop = Stop(ref, self.clock.start - (self.clock.start - deadline) // step * step)
        if stop.fires < self.clock.now():
            raise RefusedError("ValidationException: it is in the past", hint="end the machine")
        if self.armed.get(lease_id) != stop:
            self.armed[lease_id] = stop
            moment = (stop.fires + step / 2 - self.clock.start).total_seconds()
            self.clock.at(moment, lambda: self._fire(lease_id, stop))
        return stop.fires + step

    def _fire(self, lease_id: str, stop: Stop) -> None:
        if self.works and self.armed.get(lease_id) is stop:
            del self.armed[lease_id]
            self.fired.append(lease_id)
            self.provider.end_by_cloud(stop.ref)

    def _called(self, call: str) -> Fault | None:
        self.calls.append(call)
        if self.down:
            self.failed.append(call)
            raise UnreachableError("no route to the timer")
        for fault in self._faults:
            if fault.call == call:
                self._faults.remove(fault)
                self.failed.append(call)
                return fault
        return None


@dataclass
class FakePrices:
    """A `PriceFeed`: prices by offer key; what is not in it cannot change. Any zone: the dearest that is known."""

    prices: dict[str, Decimal] = field(default_factory=dict)
    down: bool = False
    """No call is answered."""
    calls: int = 0
    _faults: list[Exception] = field(default_factory=list)

    def fail(self, error: Exception, *, times: int = 1) -> None:
        """The next `times` calls raise `error`."""
        self._faults += [error] * times

    def usd_per_hour(self, offer: Offer) -> Decimal | None:
        self.calls += 1
        if self.down:
            raise UnreachableError("no route to the prices")
        if self._faults:
            raise self._faults.pop(0)
        before, any_zone, after = offer.key.partition("*")
        if not any_zone:
            return self.prices.get(offer.key)
        known = [usd for key, usd in self.prices.items() if key.startswith(before) and key.endswith(after)]
        return max(known, default=None)
