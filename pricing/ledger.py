"""What was really paid: one entry per closed lease, and their totals.

Owns `LedgerEntry`. Pure: an entry follows from the offer, its price timeline, the interval and the billing rule, so it
can be rebuilt from a journal at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from pricing.cost import CostLine, PriceChange, Rates, billed_seconds, cost_lines, refund_lines, total
from pricing.offers import CapacityType, Offer


class EndedBy(StrEnum):
    """Who ended the machine: the providers charge the two differently."""

    US = "us"
    PROVIDER = "provider"


class Basis(StrEnum):
    """Where the amount of an entry comes from."""

    COMPUTED = "offer price x billed time"
    TIMELINE = "price timeline x billed time"
    """The price changed while the machine ran."""
    OBJECTS = "rates x estimated bytes and requests"
    """No machine: what the objects of a run cost."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One closed lease, keyed by `lease_id`."""

    lease_id: str
    run_id: str
    provider: str
    region: str
    zone: str
    instance_type: str
    gpu: str
    gpu_count: int
    capacity_type: CapacityType
    usd_per_hour: Decimal
    """The offer's own, before any change of the price."""
    started_at: datetime
    """When billing began: the machine was running."""
    ended_at: datetime
    billed_seconds: int
    lines: tuple[CostLine, ...]
    usd: Decimal
    estimate_usd: Decimal | None
    basis: Basis


@dataclass(frozen=True, slots=True)
class LeaseInterval:
    """Which machine of which run was paid for, and how long."""

    lease_id: str
    run_id: str
    started_at: datetime
    ended_at: datetime
    ended_by: EndedBy = EndedBy.US

    @property
    def seconds(self) -> float:
        """Length of the interval. Raises ValueError where it ends before it starts."""
        seconds = (self.ended_at - self.started_at).total_seconds()
        if seconds < 0:
            raise ValueError(f"lease {self.lease_id} ends before it starts")
        return seconds


def ledger_entry(
    offer: Offer,
    interval: LeaseInterval,
    disk_gib: int,
    rates: Rates,
    *,
    prices: tuple[PriceChange, ...] = (),
    beside: tuple[CostLine, ...] = (),
    estimate_usd: Decimal | None = None,
) -> LedgerEntry:
    """The entry of one closed lease; `beside` is what it cost besides the machine. Raises UnknownRate, ValueError."""
    started_at = interval.started_at
    lines = cost_lines(offer, interval.seconds, disk_gib, rates, started_at=started_at, prices=prices)
    if interval.ended_by is EndedBy.PROVIDER:
        lines += refund_lines(offer, interval.seconds, rates, started_at=started_at, prices=prices)
    lines += beside
    return LedgerEntry(
        lease_id=interval.lease_id,
        run_id=interval.run_id,
        provider=offer.provider,
        region=offer.region,
        zone=offer.zone,
        instance_type=offer.instance.name,
        gpu=offer.instance.gpu,
        gpu_count=offer.instance.gpu_count,
        capacity_type=offer.capacity_type,
        usd_per_hour=offer.usd_per_hour,
        started_at=interval.started_at,
        ended_at=interval.ended_at,
        billed_seconds=billed_seconds(rates.rule(offer.provider), interval.seconds),
        lines=lines,
        usd=total(lines),
        estimate_usd=estimate_usd,
        basis=Basis.TIMELINE if any(change.since < interval.ended_at for change in prices) else Basis.COMPUTED,
    )


@dataclass(frozen=True, slots=True)
class LedgerTotals:
    """Sums over a set of leases."""

    leases: int
    billed_seconds: int
    usd: Decimal


def totals(entries: Iterable[LedgerEntry]) -> LedgerTotals:
    """Sums, each lease once. Raises ValueError where two different entries carry the same lease id."""
    by_lease: dict[str, LedgerEntry] = {}
    for entry in entries:
        if by_lease.setdefault(entry.lease_id, entry) != entry:
            raise ValueError(f"two different entries for lease {entry.lease_id}")
    usd = sum((entry.usd for entry in by_lease.values()), Decimal(0))
    return LedgerTotals(len(by_lease), sum(entry.billed_seconds for entry in by_lease.values()), usd)
