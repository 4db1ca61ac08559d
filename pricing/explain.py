"""The sentences around a plan: notes on an option, age of prices, and what to do when nothing fits.

Owns wording, no decision. Knows values, not how they were found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Protocol

from pricing.cost import CostLine, total
from pricing.layout import Layout
from pricing.offers import CapacityType, Constraint, Offer, Policy
from pricing.throughput import ThroughputEstimate
from pricing.workload import Workload

STALE_DAYS = 45
"""Spot prices of one table moved by a factor of 0.8 to 1.6 in ten weeks: half of that is where a warning begins."""
SPOT_TOLERANCE = Decimal("1.001")
"""Spot equal to on-demand is real (no discount there), and sources round differently."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong and what to do."""

    message: str
    hint: str


class Priced(Protocol):
    """What the message about a budget needs of an option."""

    @property
    def offer(self) -> Offer:
        """The offer."""

    @property
    def usd(self) -> Decimal:
        """Expected cost."""

    @property
    def usd_sure(self) -> Decimal:
        """Cost that the budget is held against."""


def option_notes(offer: Offer, layout: Layout, throughput: ThroughputEstimate) -> tuple[str, ...]:
    """What the user should know about an offer before paying for it."""
    notes = []
    instance = offer.instance
    if layout.gpus_used < instance.gpu_count:
        notes.append(f"pays for {instance.gpu_count} GPUs and uses {layout.gpus_used}")
    if instance.gpu_share < 1:
        notes.append(f"{instance.gpu_share:.0%} of one GPU")
    if throughput.limited_by == "host":
        notes.append(f"{instance.vcpus} vCPUs cannot feed the GPU: {throughput.images_per_second:.0f} images/s at most")
    if instance.gpu.startswith("V100"):
        notes.append("V100 needs torch 2.10 or older and NVIDIA driver 580")
    if not offer.verified:
        notes.append("price from one source only, not verified")
    reference = offer.on_demand_usd_per_hour
    if offer.capacity_type is CapacityType.SPOT and reference is not None:
        if offer.usd_per_hour > reference * SPOT_TOLERANCE:
            notes.append(f"spot price above on-demand ({usd_text(reference)} USD/h): check it")
        elif offer.usd_per_hour * SPOT_TOLERANCE >= reference:
            notes.append("no spot discount there at the time of the table")
    return tuple(notes)


def bucket_notes(
    offer: Offer, storage_region: str | None, transfers: Sequence[CostLine], missing: Sequence[str]
) -> tuple[str, ...]:
    """A warning where the bucket is in another region, and what is paid for and in no sum for want of a rate."""
    notes = []
    if transfers:
        moved = sum(line.quantity for line in transfers)
        notes.append(
            f"the bucket is in {storage_region}: about {moved:.3g} GB between it and {offer.region}"
            f" cost {usd_text(total(transfers))} USD; a bucket in {offer.region} would save that"
        )
    if missing:
        notes.append(f"not counted, since the rate is not known: {', '.join(missing)}")
    return tuple(notes)


def region_notes(policy: Policy) -> tuple[str, ...]:
    """What no sum can hold where nobody knows in which region the bucket is."""
    if policy.storage_region is not None:
        return ()
    return ("not counted: traffic with a bucket in another region than the machine's (the bucket's is not known here)",)


def age_notes(offer: Offer, now: datetime) -> tuple[str, ...]:
    """A warning where the price of the chosen offer is old; the oldest possible date counts."""
    observed = observed_date(offer.observed_at)
    if observed is None:
        return (f"the age of the price of {offer.key} is unknown",)
    days = (now.date() - observed).days
    if days <= STALE_DAYS:
        return ()
    return (f"the {offer.capacity_type} price of the chosen offer is up to {days} days old ({offer.observed_at})",)


def observed_date(text: str) -> date | None:
    """The earliest day an `observed_at` can mean (`2026-05-20`, `2026-06`, `2026-06/2026-10`); None: unreadable."""
    first = text.split("/")[0]
    padded = {4: f"{first}-01-01", 7: f"{first}-01"}.get(len(first), first)
    try:
        return date.fromisoformat(padded)
    except ValueError:
        return None


def unknown_names(kind: str, wanted: Iterable[str], known: set[str]) -> Complaint | None:
    """A complaint about the first name that is not known, with the nearest ones. Names are exact: it is about money."""
    for name in wanted:
        if name not in known:
            nearest = nearest_names(name, known)
            return Complaint(
                f"unknown {kind} {name!r} in the price table", f"nearest {kind} names: {', '.join(nearest)}"
            )
    return None


def nearest_names(name: str, known: set[str]) -> list[str]:
    """Up to five known names that look like `name`, or all where few are known."""
    import difflib  # here, since most plans never need it and it costs start-up time

    folded = {each.casefold(): each for each in sorted(known)}
    begins = [each for key, each in folded.items() if key.startswith(name.casefold())]
    close = [folded[key] for key in difflib.get_close_matches(name.casefold(), folded, n=5, cutoff=0.5)]
    found = list(dict.fromkeys(begins + close))
    return found[:5] or sorted(known)[:12]


@dataclass(frozen=True, slots=True)
class TooSlow:
    """The quickest of the offers that fail only the deadline."""

    offer: Offer
    seconds: float
    """How long it may take there, with the confidence that was asked for."""


def message_for(
    counts: Mapping[Constraint, int],
    cheapest: Priced | None,
    epochs: int | None,
    workload: Workload,
    policy: Policy,
    quickest: TooSlow | None = None,
) -> str:
    """One sentence that says what failed, in numbers."""
    if cheapest is not None and policy.budget_usd is not None:
        return (
            f"no offer fits the budget of {usd_text(policy.budget_usd)} USD:"
            f" the cheapest run costs {usd_text(cheapest.usd)} USD (up to {usd_text(cheapest.usd_sure)}"
            f" at {policy.confidence:.0%} confidence) on {_where(cheapest.offer)};"
            f" the budget buys {epochs} of {workload.epochs} epochs there"
        )
    removed = ", ".join(f"{constraint} {count}" for constraint, count in _most_first(counts))
    if quickest is not None and policy.max_hours is not None:
        return (
            f"no offer fits the deadline of {time_text(policy.max_hours * 3600)}: the quickest takes up to"
            f" {time_text(quickest.seconds)} at {policy.confidence:.0%} confidence, {_where(quickest.offer)};"
            f" removed by constraint: {removed}"
        )
    return f"no offer fits; removed by constraint: {removed}"


def _where(offer: Offer) -> str:
    return f"{offer.instance.name} {offer.capacity_type} in {offer.region}"


def time_text(seconds: float) -> str:
    """Whole minutes, rounded up: what has to be allowed. Less than one is given in seconds."""
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def usd_text(usd: Decimal) -> str:
    """Cents, or as many digits as a smaller amount needs to be seen."""
    if 0 < usd < Decimal("0.0001"):
        return f"{usd:.1g}" if usd < Decimal("1e-9") else f"{usd:.9f}".rstrip("0")
    return f"{usd:.2f}" if usd >= Decimal("0.1") else f"{usd:.4f}"


HINTS = {
    Constraint.CLOUD: "allow more clouds",
    Constraint.REGION: "allow more regions",
    Constraint.GPU: "allow more GPU types",
    Constraint.MARKET: "set market to any",
    Constraint.PROVIDER: "choose a cloud that machines can be started on",
    Constraint.PRICE: "refresh the prices",
    Constraint.SUPPORT: "choose another GPU type",
    Constraint.CHECKPOINTS: "set market to on-demand, or give an output that checkpoints can be restored from",
    Constraint.COOLED: "wait a few minutes, or allow more regions",
    Constraint.WASTE: "choose a type with fewer GPUs, or say that idle GPUs are fine",
    Constraint.MEMORY: "lower batch or image_size, or allow a GPU with more memory",
    Constraint.RATES: "refresh the prices",
    Constraint.RISK: "set market to on-demand, or write checkpoints more often",
    Constraint.DEADLINE: "allow more time, lower epochs or image_size, or allow faster GPUs",
    Constraint.BUDGET: "raise the budget, or lower epochs or image_size",
}


def hint_for(counts: Mapping[Constraint, int], epochs: int | None, workload: Workload) -> str:
    """The next action: about the last constraint that offers failed on, since relaxing it helps first."""
    if epochs:
        return f"raise the budget, or train {epochs} of the {workload.epochs} epochs"
    reached = max(counts, key=lambda constraint: list(Constraint).index(constraint), default=None)
    return HINTS[reached] if reached is not None else ""


def _most_first(counts: Mapping[Constraint, int]) -> list[tuple[Constraint, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
