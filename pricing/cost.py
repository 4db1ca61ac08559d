"""Billing arithmetic: from seconds to money and back.

Owns billing rules, rates beside the machine itself, and the cost lines of one lease. All money is Decimal and is never
rounded here; a month has 730 hours, as the clouds' own calculators have it. Not in these sums: taxes, object storage,
traffic out of the cloud.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from pricing.offers import CapacityType, Offer

HOUR_SECONDS = 3600
MONTH_HOURS = 730
LONGEST_SECONDS = 10 * 365 * 24 * HOUR_SECONDS
"""No run is planned beyond ten years; the answer of `affordable_seconds` where money never runs out."""


class UnknownRate(LookupError):
    """The tables have no such rate for this provider."""


@dataclass(frozen=True, slots=True)
class BillingRule:
    """How a provider counts time."""

    granularity_seconds: int = 1
    minimum_seconds: int = 60
    """Charged for a machine that ran at all."""
    free_when_preempted_seconds: int = 0
    """A spot machine that the provider takes back before this age is not charged for its compute."""
    source: str = ""
    verified: bool = True

    def __post_init__(self) -> None:
        if self.granularity_seconds < 1 or self.minimum_seconds < 0 or self.free_when_preempted_seconds < 0:
            raise ValueError("billing needs a granularity of at least a second and no negative times")


@dataclass(frozen=True, slots=True)
class Rate:
    """One price beside the machine's own."""

    usd: Decimal
    unit: str
    source: str
    observed_at: str
    verified: bool


@dataclass(frozen=True, slots=True)
class PriceChange:
    """The price of a running machine from a moment on."""

    since: datetime
    usd_per_hour: Decimal


DISK = "disk"
PUBLIC_IPV4 = "public IPv4"
PUBLIC_IPV4_SPOT = "public IPv4 (spot)"
OBJECT_STORAGE = "object storage"
OBJECT_PUT = "object storage write requests"
OBJECT_GET = "object storage read requests"
EGRESS = "egress to internet"
CROSS_REGION = "cross-region transfer"


@dataclass(frozen=True, slots=True)
class Rates:
    """Everything that is paid for beside the machines. Disk in USD per GiB-month, addresses per hour."""

    rates: Mapping[tuple[str, str], Rate]
    """By provider and item."""
    rules: Mapping[str, BillingRule]
    """By provider."""

    def rule(self, provider: str) -> BillingRule:
        """How the provider counts time. Raises UnknownRate."""
        try:
            return self.rules[provider]
        except KeyError:
            raise UnknownRate(f"no billing rule for {provider}") from None

    def of(self, provider: str, item: str) -> Rate:
        """One rate. Raises UnknownRate."""
        try:
            return self.rates[provider, item]
        except KeyError:
            raise UnknownRate(f"no rate for {item} on {provider}") from None

    def address(self, provider: str, capacity_type: CapacityType) -> Rate:
        """The hourly rate of a public IPv4 address. Raises UnknownRate."""
        if capacity_type is CapacityType.SPOT and (provider, PUBLIC_IPV4_SPOT) in self.rates:
            return self.rates[provider, PUBLIC_IPV4_SPOT]
        return self.of(provider, PUBLIC_IPV4)


@dataclass(frozen=True, slots=True)
class CostLine:
    """One line of a plan or a receipt. `usd` is exact; `quantity` is for reading."""

    what: str
    quantity: Decimal
    unit: str
    usd_per_unit: Decimal
    usd: Decimal
    source: str
    observed_at: str
    verified: bool
    """The price per unit was checked against a second source."""


def billed_seconds(rule: BillingRule, seconds: float) -> int:
    """Seconds charged for a machine that ran `seconds`; 0 only for one that never ran. Raises ValueError below 0."""
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a machine cannot run for {seconds} seconds")
    if seconds == 0:
        return 0
    step = rule.granularity_seconds
    whole = int(seconds) if int(seconds) == seconds else int(seconds) + 1
    return max(rule.minimum_seconds, -(-whole // step) * step)


def cost_lines(offer: Offer, seconds: float, disk_gib: int, rates: Rates) -> tuple[CostLine, ...]:
    """What a machine costs that runs for `seconds` with a root disk of `disk_gib`: compute, disk, public IPv4.

    Raises UnknownRate; ValueError for a negative time or an unknown price.
    """
    _require_price(offer)
    billed = billed_seconds(rates.rule(offer.provider), seconds)
    hours = Decimal(billed) / HOUR_SECONDS
    compute = CostLine(
        what=f"{offer.instance.name} {offer.capacity_type}, {offer.zone or offer.region}",
        quantity=hours,
        unit="h",
        usd_per_unit=offer.usd_per_hour,
        usd=offer.usd_per_hour * billed / HOUR_SECONDS,
        source=offer.source,
        observed_at=offer.observed_at,
        verified=offer.verified,
    )
    return (compute, _disk_line(offer.provider, billed, disk_gib, rates), _address_line(offer, billed, rates))


def _require_price(offer: Offer) -> None:
    if not (offer.usd_per_hour.is_finite() and offer.usd_per_hour > 0):
        raise ValueError(f"{offer.key}: the price is unknown")


def _disk_line(provider: str, billed: int, disk_gib: int, rates: Rates) -> CostLine:
    rate = rates.of(provider, DISK)
    return CostLine(
        what=f"disk, {disk_gib} GiB",
        quantity=Decimal(disk_gib * billed) / (MONTH_HOURS * HOUR_SECONDS),
        unit="GiB-month",
        usd_per_unit=rate.usd,
        usd=rate.usd * disk_gib * billed / (MONTH_HOURS * HOUR_SECONDS),
        source=rate.source,
        observed_at=rate.observed_at,
        verified=rate.verified,
    )


def _address_line(offer: Offer, billed: int, rates: Rates) -> CostLine:
    rate = rates.address(offer.provider, offer.capacity_type)
    return CostLine(
        what="public IPv4 address",
        quantity=Decimal(billed) / HOUR_SECONDS,
        unit="h",
        usd_per_unit=rate.usd,
        usd=rate.usd * billed / HOUR_SECONDS,
        source=rate.source,
        observed_at=rate.observed_at,
        verified=rate.verified,
    )


def refund_lines(offer: Offer, seconds: float, rates: Rates) -> tuple[CostLine, ...]:
    """What the provider does not charge because it took the spot machine back early: one negative line, or none."""
    rule = rates.rule(offer.provider)
    if offer.capacity_type is not CapacityType.SPOT or not 0 < seconds < rule.free_when_preempted_seconds:
        return ()
    billed = billed_seconds(rule, seconds)
    line = CostLine(
        what="preempted early: compute not charged",
        quantity=Decimal(billed) / HOUR_SECONDS,
        unit="h",
        usd_per_unit=-offer.usd_per_hour,
        usd=-(offer.usd_per_hour * billed / HOUR_SECONDS),
        source=rule.source,
        observed_at=offer.observed_at,
        verified=rule.verified,
    )
    return (line,)


def total(lines: Iterable[CostLine]) -> Decimal:
    """Sum of the lines."""
    return sum((line.usd for line in lines), Decimal(0))


def affordable_seconds(offer: Offer, usd: Decimal, disk_gib: int, rates: Rates) -> int:
    """The longest run whose `cost_lines` add up to no more than `usd`; 0: not even the minimum charge fits.

    Exact inverse of `total(cost_lines(...))`, found by bisection, at most `LONGEST_SECONDS`.
    """
    low, high = 0, LONGEST_SECONDS
    while low < high:
        middle = (low + high + 1) // 2
        if total(cost_lines(offer, middle, disk_gib, rates)) <= usd:
            low = middle
        else:
            high = middle - 1
    return low
