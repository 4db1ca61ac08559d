"""The stop that a cloud in memory holds, and the prices that it asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from fake_compute import FakeProvider, Fault
from launcher_clock import FakeClock

from launcher.providers.interface import InstanceRef, RefusedError, UnreachableError
from pricing.cost import PriceChange
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


@dataclass(frozen=True)
class Price:
    """What an offer costs from a moment on."""

    since: datetime
    offer_key: str
    usd_per_hour: Decimal


@dataclass
class FakePrices:
    """A `PriceFeed`: what was set; what is not in it cannot change. Any zone: the dearest that is known."""

    clock: FakeClock
    history: list[Price] = field(default_factory=list)
    down: bool = False
    """No call is answered."""
    calls: int = 0
    failed: int = 0
    """So many were not answered."""
    _faults: list[Exception] = field(default_factory=list)

    def fail(self, error: Exception, *, times: int = 1) -> None:
        """The next `times` calls raise `error`."""
        self._faults += [error] * times

    def set(self, offer_key: str, usd_per_hour: Decimal) -> None:
        """From now on this offer, and its machines, cost so much."""
        self.history.append(Price(self.clock.now(), offer_key, usd_per_hour))

    @property
    def prices(self) -> dict[str, Decimal]:
        """Those in force."""
        return {price.offer_key: price.usd_per_hour for price in self.history}

    def changes(self, offer: Offer, since: datetime) -> tuple[PriceChange, ...]:
        self.calls += 1
        if self.down or self._faults:
            self.failed += 1
            raise UnreachableError("no route to the prices") if self.down else self._faults.pop(0)
        before, any_zone, after = offer.key.partition("*")
        prices: dict[str, Decimal] = {}
        highest: dict[datetime, Decimal] = {}
        for price in self.history:
            if price.offer_key == offer.key or (any_zone and self._fits(price, before, after)):
                prices[price.offer_key] = price.usd_per_hour
                highest[max(since, price.since)] = max(prices.values())
        return tuple(PriceChange(at, usd) for at, usd in highest.items())

    @staticmethod
    def _fits(price: Price, before: str, after: str) -> bool:
        return price.offer_key.startswith(before) and price.offer_key.endswith(after)
