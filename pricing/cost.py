"""Billing arithmetic: from seconds to money and back.

Owns billing rules, rates beside the machine itself, and the cost lines of one machine along its price timeline. What a
run pays for its traffic and its objects is in `extras`. All money is Decimal and is never rounded here; a month has 730
hours, as the clouds' own calculators have it. Taxes are in none of the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from pricing.offers import CapacityType, Offer

HOUR_SECONDS = 3600
MONTH_HOURS = 730
LONGEST_SECONDS = 10 * 365 * 24 * HOUR_SECONDS
"""No run is planned beyond ten years; the answer of `affordable_seconds` where money never runs out."""
_SECOND = timedelta(seconds=1)


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


@dataclass(frozen=True, slots=True)
class PricePiece:
    """A stretch of a machine's billed time at one price."""

    begin_second: int
    """Counted from the start of the machine."""
    seconds: int
    usd_per_hour: Decimal
    change: PriceChange | None
    """None: the offer's own price."""


def price_pieces(
    offer: Offer, seconds: float, billed: int, started_at: datetime | None = None, prices: Iterable[PriceChange] = ()
) -> tuple[PricePiece, ...]:
    """The `billed` seconds of a machine that ran for `seconds`, by the price in force; their lengths add up exactly.

    A price holds from the whole second in which it changes. What is billed beyond the running time (the minimum, a
    begun step) is charged at the last price; a change after the end does not count. Raises ValueError where there are
    prices and no `started_at`.
    """
    marks: dict[int, tuple[Decimal, PriceChange | None]] = {0: (offer.usd_per_hour, None)}
    for change in sorted(prices, key=lambda change: change.since):
        if started_at is None:
            raise ValueError("prices that change need the time at which the machine started")
        elapsed = change.since - started_at
        if elapsed.total_seconds() < seconds:
            marks[max(0, elapsed // _SECOND)] = (change.usd_per_hour, change)
    begins = sorted(marks)
    return tuple(PricePiece(begin, end - begin, *marks[begin]) for begin, end in pairwise([*begins, billed]))


def cost_lines(
    offer: Offer,
    seconds: float,
    disk_gib: int,
    rates: Rates,
    *,
    started_at: datetime | None = None,
    prices: Iterable[PriceChange] = (),
) -> tuple[CostLine, ...]:
    """What a machine costs that runs for `seconds` with a root disk of `disk_gib`: compute, disk, public IPv4.

    Compute is one line for each price that was in force; before the first change that is the offer's own.
    Raises UnknownRate; ValueError for a negative time or an unknown price.
    """
    if not (offer.usd_per_hour.is_finite() and offer.usd_per_hour > 0):
        raise ValueError(f"{offer.key}: the price is unknown")
    billed = billed_seconds(rates.rule(offer.provider), seconds)
    pieces = price_pieces(offer, seconds, billed, started_at, prices)
    return compute_lines(offer, pieces) + standing_lines(offer.provider, offer.capacity_type, billed, disk_gib, rates)


def compute_lines(offer: Offer, pieces: Iterable[PricePiece]) -> tuple[CostLine, ...]:
    """What the machine itself costs, a line for each price that was in force."""
    return tuple(_compute_line(offer, piece) for piece in pieces)


def _compute_line(offer: Offer, piece: PricePiece) -> CostLine:
    what = f"{offer.instance.name} {offer.capacity_type}, {offer.zone or offer.region}"
    change = piece.change
    return CostLine(
        what=what if change is None else f"{what} from {change.since:%H:%M}",
        quantity=Decimal(piece.seconds) / HOUR_SECONDS,
        unit="h",
        usd_per_unit=piece.usd_per_hour,
        usd=piece.usd_per_hour * piece.seconds / HOUR_SECONDS,
        source=offer.source if change is None else "price in force, as the provider gave it while the machine ran",
        observed_at=offer.observed_at if change is None else f"{change.since:%Y-%m-%dT%H:%M:%SZ}",
        verified=offer.verified and change is None,
    )


def standing_lines(
    provider: str, capacity_type: CapacityType, billed: int, disk_gib: int, rates: Rates
) -> tuple[CostLine, ...]:
    """What a machine costs beside its compute for as long as it is there: disk, public IPv4. Raises UnknownRate."""
    disk, address = rates.of(provider, DISK), rates.address(provider, capacity_type)
    month_seconds, hours = MONTH_HOURS * HOUR_SECONDS, Decimal(billed) / HOUR_SECONDS
    disk_usd = disk.usd * disk_gib * billed / month_seconds
    return (
        rate_line(f"disk, {disk_gib} GiB", Decimal(disk_gib * billed) / month_seconds, "GiB-month", disk, disk_usd),
        rate_line("public IPv4 address", hours, "h", address, address.usd * billed / HOUR_SECONDS),
    )


def rate_line(what: str, quantity: Decimal, unit: str, rate: Rate, usd: Decimal) -> CostLine:
    """So much of something at a rate of the tables."""
    return CostLine(what, quantity, unit, rate.usd, usd, rate.source, rate.observed_at, rate.verified)


def refund_lines(
    offer: Offer,
    seconds: float,
    rates: Rates,
    *,
    started_at: datetime | None = None,
    prices: Iterable[PriceChange] = (),
) -> tuple[CostLine, ...]:
    """What the provider does not charge because it took the spot machine back early: a negative line for each price."""
    rule = rates.rule(offer.provider)
    if offer.capacity_type is not CapacityType.SPOT or not 0 < seconds < rule.free_when_preempted_seconds:
        return ()
    pieces = price_pieces(offer, seconds, billed_seconds(rule, seconds), started_at, prices)
    return tuple(_refund_line(offer, piece, rule) for piece in pieces)


def _refund_line(offer: Offer, piece: PricePiece, rule: BillingRule) -> CostLine:
    return CostLine(
        what="preempted early: compute not charged",
        quantity=Decimal(piece.seconds) / HOUR_SECONDS,
        unit="h",
        usd_per_unit=-piece.usd_per_hour,
        usd=-(piece.usd_per_hour * piece.seconds / HOUR_SECONDS),
        source=rule.source,
        observed_at=offer.observed_at,
        verified=rule.verified,
    )


def total(lines: Iterable[CostLine]) -> Decimal:
    """Sum of the lines."""
    return sum((line.usd for line in lines), Decimal(0))


def affordable_seconds(usd: Decimal, cost: Callable[[int], Decimal]) -> int:
    """The longest run whose `cost` is no more than `usd`; 0 where not even the shortest fits.

    Exact inverse of a cost that never falls as the seconds grow, by bisection, at most `LONGEST_SECONDS`.
    """
    low, high = 0, LONGEST_SECONDS
    while low < high:
        middle = (low + high + 1) // 2
        if cost(middle) <= usd:
            low = middle
        else:
            high = middle - 1
    return low
