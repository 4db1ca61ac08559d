"""Time and its money for one kind of machine under one hazard, before any price is known.

Owns `Timing`: layout, batch, speed, phases, and the paid time as expectation, range and bound. Worked out once per
instance type and hazard, shared by all offers of that kind. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from pricing.cost import HOUR_SECONDS, CostLine, Rates, UnknownRate, billed_seconds, standing_lines
from pricing.extras import Sizes, Traffic, object_lines, objects_of, planned_sizes, planned_traffic, transfer_lines
from pricing.hardware import InstanceType
from pricing.layout import Layout, layout_for
from pricing.memory import choose_batch
from pricing.offers import CapacityType, Constraint, Misfit, Policy, type_misfit
from pricing.phases import Overheads, PhaseTimes, phase_times
from pricing.risk import Hazard, expected_seconds, normal_quantile, save_seconds
from pricing.throughput import Throughput, ThroughputEstimate
from pricing.workload import Workload

P90 = 0.9


@dataclass(frozen=True, slots=True)
class Span:
    """A paid time and everything it costs beside the machine itself."""

    seconds: int
    billed_seconds: int
    beside: tuple[CostLine, ...]
    """Disk, address, objects."""
    across: tuple[CostLine, ...]
    """Traffic with the bucket, of a machine in another region."""

    def usd(self, usd_per_hour: Decimal, *, away: bool) -> Decimal:
        """The sum of the compute and these lines, in that order; `away`: the machine is in another region."""
        usd = usd_per_hour * self.billed_seconds / HOUR_SECONDS
        for line in self.beside:
            usd += line.usd
        if away:
            for line in self.across:
                usd += line.usd
        return usd


@dataclass(frozen=True, slots=True)
class Timing:
    """How a run goes on one instance type under one hazard."""

    layout: Layout
    batch: int
    throughput: ThroughputEstimate
    phases: PhaseTimes
    """Expected, without any preemption."""
    traffic: Traffic
    """Of one machine that does it all."""
    expected: Span
    """With the expected preemptions."""
    low: Span
    """Everything goes well: fast end of the throughput range, least hazard, short overheads."""
    high: Span
    """The slow end of all three."""
    sure: Span
    """Not exceeded with the policy's confidence."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the estimates of one planning rest on."""

    throughput: Throughput
    rates: Rates
    overheads: Mapping[str, Overheads]
    """By cloud."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What distinguishes the timing of two offers."""

    instance: InstanceType
    capacity_type: CapacityType
    hazard: Hazard


def timing_of(kind: Kind, workload: Workload, policy: Policy, assumptions: Assumptions) -> Timing | Misfit:
    """Time of the run on this kind of machine, or why it cannot run there."""
    instance = kind.instance
    found = type_misfit(instance, workload, policy)
    if found is not None:
        return found
    layout = layout_for(instance.gpu_count, workload.tasks, policy.max_gpus_per_task)
    batch = choose_batch(instance, workload, layout)
    overheads = assumptions.overheads.get(instance.provider)
    if batch is None or overheads is None:
        return Misfit(Constraint.RATES, f"no overheads are known for {instance.provider}")
    try:
        estimate = assumptions.throughput.estimate(instance, workload, layout, batch)
    except KeyError:
        return Misfit(Constraint.GPU, f"nothing is known about the GPU {instance.gpu}")
    phases = phase_times(workload, layout, estimate.images_per_second, estimate, overheads)
    pace = save_seconds(kind.hazard.per_hour)
    timed = Timed(workload, layout, batch, estimate, phases, overheads, pace)
    try:
        return _timing(kind, timed, policy, assumptions.rates)
    except UnknownRate as error:
        return Misfit(Constraint.RATES, str(error))


@dataclass(frozen=True, slots=True)
class Timed:
    """One kind of machine with its speed and expected phases."""

    workload: Workload
    layout: Layout
    batch: int
    estimate: ThroughputEstimate
    phases: PhaseTimes
    overheads: Overheads
    checkpoint_seconds: float
    """Between two checkpoints, as the trainer chooses it for the hazard that is expected."""

    def paid_seconds(self, phases: PhaseTimes, per_hour: float, stretch: float) -> float:
        """Expected paid time: preemptions take work back, everything around the work takes `stretch` times as long."""
        restart = phases.restart * stretch
        interval = self.checkpoint_seconds
        work = expected_seconds(phases.work, per_hour, interval_seconds=interval, restart_seconds=restart)
        return work + phases.around * stretch

    def at(self, images_per_second: float) -> PhaseTimes:
        """Phases at another speed."""
        return phase_times(self.workload, self.layout, images_per_second, self.estimate, self.overheads)


def _timing(kind: Kind, timed: Timed, policy: Policy, rates: Rates) -> Timing | Misfit:
    hazard, spread = kind.hazard, timed.overheads.spread
    expected = timed.paid_seconds(timed.phases, hazard.per_hour, 1.0)
    low = timed.paid_seconds(timed.at(timed.estimate.high), hazard.low_per_hour, 1 / spread)
    high = timed.paid_seconds(timed.at(timed.estimate.low), hazard.high_per_hour, spread)
    if math.isinf(high):
        return Misfit(Constraint.RISK, _never_done(hazard))
    sure = expected * (high / expected) ** (normal_quantile(policy.confidence) / normal_quantile(P90))
    if policy.max_hours is not None and sure > policy.max_hours * HOUR_SECONDS:
        return Misfit(Constraint.DEADLINE, _too_late(sure, policy), sure)
    sizes = planned_sizes(timed.workload, keeps_data=policy.keeps_data)
    traffic = planned_traffic(timed.workload, timed.layout.jobs, hazard.per_hour, resumes=policy.resumes)
    bill = _Bill(kind, policy, rates, sizes, traffic)
    return Timing(
        timed.layout,
        timed.batch,
        timed.estimate,
        timed.phases,
        traffic,
        expected=bill.span(expected, hazard.per_hour),
        low=bill.span(low, hazard.low_per_hour),
        high=bill.span(high, hazard.high_per_hour),
        sure=bill.span(sure, hazard.high_per_hour),
    )


@dataclass(frozen=True, slots=True)
class _Bill:
    """What a paid time costs on one kind of machine."""

    kind: Kind
    policy: Policy
    rates: Rates
    sizes: Sizes
    traffic: Traffic

    def span(self, seconds: float, preemptions_per_hour: float) -> Span:
        """Raises UnknownRate. A machine that follows a preempted one fetches everything again."""
        provider, region = self.kind.instance.provider, self.policy.storage_region
        whole = math.ceil(seconds)
        billed = billed_seconds(self.rates.rule(provider), whole)
        machines = 1 + Decimal(preemptions_per_hour) * billed / HOUR_SECONDS
        standing = standing_lines(provider, self.kind.capacity_type, billed, self.policy.disk_gib, self.rates)
        objects = objects_of(self.sizes, self.traffic, billed, machines=machines)
        moved = self.traffic.moved(billed, machines=machines)
        return Span(
            whole,
            billed,
            beside=standing + object_lines(provider, objects, self.rates),
            across=() if region is None else transfer_lines(provider, region, moved, self.rates),
        )


def _never_done(hazard: Hazard) -> str:
    return f"at up to {hazard.high_per_hour:.2g} preemptions an hour it might never get from one checkpoint to the next"


def _too_late(seconds: float, policy: Policy) -> str:
    return (
        f"takes up to {seconds / HOUR_SECONDS:.1f} h at {policy.confidence:.0%} confidence;"
        f" the deadline is {policy.max_hours:g} h"
    )
