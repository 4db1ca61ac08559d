"""The plan: which offer a run should take, and why none of the others.

Owns filtering with reasons, the ranking, and the explanation when nothing fits. Pure: offers, rates, speeds and the
time of day are given; no price is fetched while planning.

Speed and phase times are worked out once per instance type and hazard (about two hundred), then multiplied by prices:
planning grows linearly with the offers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from pricing.cost import CostLine, Rates, compute_lines, price_pieces
from pricing.explain import (
    TooSlow,
    age_notes,
    bucket_notes,
    hint_for,
    message_for,
    option_notes,
    region_notes,
    unknown_names,
    usd_text,
)
from pricing.extras import Traffic, uncounted
from pricing.layout import Layout
from pricing.offers import Constraint, Misfit, Offer, Policy, offer_misfit
from pricing.phases import Overheads, PhaseTimes
from pricing.throughput import Throughput, ThroughputEstimate
from pricing.timing import Assumptions, Kind, Timing, timing_of
from pricing.workload import Workload

COOLED_REASON = "refused lately; cooled down for a while"


@dataclass(frozen=True, slots=True)
class PlanOption:
    """One offer with its time and cost: the expectation with preemptions, and a range from p10 to p90."""

    offer: Offer
    timing: Timing
    usd: Decimal
    usd_low: Decimal
    usd_high: Decimal
    usd_sure: Decimal
    """What a budget is held against: not exceeded with the policy's confidence."""
    storage_region: str | None
    rates: Rates = field(repr=False, compare=False)

    @property
    def layout(self) -> Layout:
        """How the trainings are spread over the GPUs."""
        return self.timing.layout

    @property
    def batch(self) -> int:
        """Batch of one training over all its GPUs."""
        return self.timing.batch

    @property
    def throughput(self) -> ThroughputEstimate:
        """Speed of each training."""
        return self.timing.throughput

    @property
    def phases(self) -> PhaseTimes:
        """Expected phase times without preemption."""
        return self.timing.phases

    @property
    def seconds(self) -> int:
        """Expected paid time, preemptions included."""
        return self.timing.expected.seconds

    @property
    def seconds_low(self) -> int:
        """Low end of the range (p10)."""
        return self.timing.low.seconds

    @property
    def seconds_high(self) -> int:
        """High end of the range (p90)."""
        return self.timing.high.seconds

    @property
    def traffic(self) -> Traffic:
        """What the machine moves between itself and the bucket."""
        return self.timing.traffic

    @property
    def lines(self) -> tuple[CostLine, ...]:
        """The terms of `usd`, each with its source; they add up to it exactly."""
        span = self.timing.expected
        pieces = price_pieces(self.offer, span.seconds, span.billed_seconds)
        return (*compute_lines(self.offer, pieces), *span.beside, *self.transfers)

    @property
    def transfers(self) -> tuple[CostLine, ...]:
        """Those for traffic with a bucket in another region."""
        return self.timing.expected.across if self.offer.is_away_from(self.storage_region) else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about this option."""
        away = self.offer.is_away_from(self.storage_region)
        missing = uncounted(self.offer.provider, self.rates, crosses=away)
        bucket = bucket_notes(self.offer, self.storage_region, self.transfers, missing)
        return option_notes(self.offer, self.layout, self.throughput) + bucket


@dataclass(frozen=True, slots=True)
class Rejection:
    """An offer that is not ranked, with the reason."""

    offer: Offer
    reason: str
    constraint: Constraint


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen option, the others cheapest first, and what was ruled out. Every offer is in exactly one of them."""

    chosen: PlanOption
    runners_up: tuple[PlanOption, ...]
    rejections: tuple[Rejection, ...]
    notes: tuple[str, ...] = ()

    @property
    def ranked(self) -> tuple[PlanOption, ...]:
        """All options, cheapest first."""
        return (self.chosen, *self.runners_up)


class NoOfferFits(Exception):
    """No offer meets the constraints. Nothing was paid for."""

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        rejections: tuple[Rejection, ...] = (),
        cheapest: PlanOption | None = None,
        affordable_epochs: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.rejections = rejections
        self.cheapest = cheapest
        """The cheapest option that fails only the budget."""
        self.affordable_epochs = affordable_epochs
        """How many epochs (of each training) the budget buys there."""
        self.counts: dict[Constraint, int] = dict(Counter(rejection.constraint for rejection in rejections))
        """How many offers each constraint removed; the first that applies counts."""


def plan_run(
    workload: Workload,
    offers: Iterable[Offer],
    policy: Policy,
    *,
    throughput: Throughput,
    rates: Rates,
    overheads: Mapping[str, Overheads],
    now: datetime,
    cooled: frozenset[str] = frozenset(),
) -> Plan:
    """Rank the offers by expected cost and take the cheapest that meets every constraint. Raises NoOfferFits.

    Equal cost: the shorter one, then the lower offer key. `cooled` holds keys of offers that were refused lately.
    """
    offers = list(offers)
    _refuse_unknown_names(offers, policy)
    search = _Search(workload, policy, Assumptions(throughput, rates, overheads), cooled)
    for offer in offers:
        search.consider(offer)
    search.rejections.sort(key=lambda rejection: (rejection.offer.key, rejection.offer.usd_per_hour))
    if not search.ranked:
        raise _no_offer_fits(search)
    chosen, *others = sorted(search.ranked, key=_order)
    notes = age_notes(chosen.offer, now) + region_notes(policy)
    return Plan(chosen, tuple(others), tuple(search.rejections), notes)


def _order(option: PlanOption) -> tuple[Decimal, int, str]:
    return (option.usd, option.seconds, option.offer.key)


def _refuse_unknown_names(offers: list[Offer], policy: Policy) -> None:
    if not offers:
        raise NoOfferFits("there are no offers to plan with", hint="use the shipped price table")
    wrong = (
        unknown_names("cloud", policy.clouds, {offer.instance.provider for offer in offers})
        or unknown_names("region", policy.regions, {offer.region for offer in offers})
        or unknown_names("GPU", policy.gpus, {offer.instance.gpu for offer in offers})
    )
    if wrong is not None:
        raise NoOfferFits(wrong.message, hint=wrong.hint)


class _Search:
    """One pass over the offers: what fits goes to `ranked`, the rest to `rejections`."""

    def __init__(self, workload: Workload, policy: Policy, assumptions: Assumptions, cooled: frozenset[str]) -> None:
        self.workload = workload
        self.policy = policy
        self.assumptions = assumptions
        self.cooled = cooled
        self.ranked: list[PlanOption] = []
        self.rejections: list[Rejection] = []
        self.too_expensive: list[PlanOption] = []
        self.quickest: TooSlow | None = None
        self._timings: dict[Kind, Timing | Misfit] = {}

    def consider(self, offer: Offer) -> None:
        """Rank the offer or reject it."""
        found = self._judge(offer)
        if isinstance(found, PlanOption):
            self.ranked.append(found)
        else:
            self.rejections.append(Rejection(offer, found.reason, found.constraint))

    def _judge(self, offer: Offer) -> PlanOption | Misfit:
        found = offer_misfit(offer, self.policy)
        if found is not None:
            return found
        if self.cooled and offer.key in self.cooled:
            return Misfit(Constraint.COOLED, COOLED_REASON)
        kind = Kind(offer.instance, offer.capacity_type, offer.risk)
        timing = self._timings.get(kind)
        if timing is None:
            timing = self._timings[kind] = timing_of(kind, self.workload, self.policy, self.assumptions)
        if isinstance(timing, Misfit):
            self._note_time(offer, timing)
            return timing
        option = _option(offer, timing, self.policy.storage_region, self.assumptions.rates)
        if self.policy.budget_usd is not None and option.usd_sure > self.policy.budget_usd:
            self.too_expensive.append(option)
            return Misfit(Constraint.BUDGET, _over_budget(option, self.policy))
        return option

    def _note_time(self, offer: Offer, found: Misfit) -> None:
        if found.seconds is not None and (self.quickest is None or found.seconds < self.quickest.seconds):
            self.quickest = TooSlow(offer, found.seconds)


def _option(offer: Offer, timing: Timing, storage_region: str | None, rates: Rates) -> PlanOption:
    price, away = offer.usd_per_hour, offer.is_away_from(storage_region)
    return PlanOption(
        offer=offer,
        timing=timing,
        usd=timing.expected.usd(price, away=away),
        usd_low=timing.low.usd(price, away=away),
        usd_high=timing.high.usd(price, away=away),
        usd_sure=timing.sure.usd(price, away=away),
        storage_region=storage_region,
        rates=rates,
    )


def _over_budget(option: PlanOption, policy: Policy) -> str:
    return (
        f"costs {usd_text(option.usd)} USD, up to {usd_text(option.usd_sure)} at {policy.confidence:.0%} confidence;"
        f" the budget is {usd_text(policy.budget_usd or Decimal(0))} USD"
    )


def _no_offer_fits(search: _Search) -> NoOfferFits:
    counts = Counter(rejection.constraint for rejection in search.rejections)
    cheapest = min(search.too_expensive, key=lambda option: (option.usd_sure, _order(option)), default=None)
    epochs = None
    if cheapest is not None:
        epochs = affordable_epochs(cheapest.offer, search.workload, search.policy, search.assumptions)
    return NoOfferFits(
        message_for(counts, cheapest, epochs, search.workload, search.policy, search.quickest),
        hint=hint_for(counts, epochs, search.workload),
        rejections=tuple(search.rejections),
        cheapest=cheapest,
        affordable_epochs=epochs,
    )


def affordable_epochs(offer: Offer, workload: Workload, policy: Policy, assumptions: Assumptions) -> int | None:
    """The most epochs (of each training) that fit the budget with this offer and policy; None without a budget.

    At most what the workload asks for; 0: not even one fits. Found by bisection over the same estimate.
    """
    if policy.budget_usd is None:
        return None
    kind = Kind(offer.instance, offer.capacity_type, offer.risk)
    away = offer.is_away_from(policy.storage_region)
    low, high = 0, workload.epochs
    while low < high:
        middle = (low + high + 1) // 2
        timing = timing_of(kind, replace(workload, epochs=middle), policy, assumptions)
        if isinstance(timing, Timing) and timing.sure.usd(offer.usd_per_hour, away=away) <= policy.budget_usd:
            low = middle
        else:
            high = middle - 1
    return low
