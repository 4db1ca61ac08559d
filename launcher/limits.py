"""The budget as one function of time: what is owed if a run stops now, and until when a lease may live. Pure.

Owed are the closed leases, the open machine along its price timeline until its billing ends, its traffic with a bucket
in another region, its last sync, and the objects of the run: storage, requests, download. The launcher compares that
with the cap; the deadline of a lease is its inverse; the agent gets it as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from launcher.clouds import CloudFacts
from launcher.errors import DeadlineReached, Exhausted
from launcher.events import DeadlineBasis, Lease, Selection
from launcher.run import Run, State
from launcher.units import cents_up, show_usd
from pricing.cost import (
    HOUR_SECONDS,
    LONGEST_SECONDS,
    CostLine,
    PriceChange,
    Rates,
    affordable_seconds,
    billed_seconds,
    cost_lines,
    price_pieces,
    standing_lines,
    total,
)
from pricing.extras import Moved, Objects, Sizes, Traffic, object_lines, objects_of, planned_sizes, transfer_lines
from pricing.ledger import EndedBy, LeaseInterval, LedgerEntry, ledger_entry
from pricing.offers import CapacityType, Offer
from remote.protocol import Budget, PricePoint

_ROUNDING_USD = Decimal("0.0000001")
"""More than the agent's floating-point arithmetic can lose."""
_GRAINS = 10
"""A deadline nearer than so many grains keeps its seconds: there they count."""


@dataclass(frozen=True, slots=True)
class _Machine:
    """A machine that is paid for, or would be."""

    offer: Offer
    disk_gib: int
    traffic: Traffic
    started_at: datetime
    prices: tuple[PriceChange, ...] = ()

    @staticmethod
    def of(lease: Lease) -> _Machine:
        """The machine of a lease, charged from the request on where it is not known to run yet."""
        chosen = lease.selection
        started_at = lease.running_since or lease.requested_at
        return _Machine(chosen.offer, lease.disk_gib, chosen.estimate.traffic, started_at, lease.prices)


def owed_usd(run: Run, now: datetime, rates: Rates, *, stop_seconds: float = 0.0) -> Decimal:
    """What the run costs if its machine's billing ends `stop_seconds` from now, and nothing else is done."""
    lease = run.lease
    if run.state is State.SETTLED:
        return run.spent_usd
    if lease is None or lease.instance_id is None:
        return run.spent_usd + total(storage_lines(run, rates))
    machine = _Machine.of(lease)
    return _owed(run, machine, max(0.0, (now - machine.started_at).total_seconds() + stop_seconds), rates)


def _owed(run: Run, machine: _Machine, seconds: float, rates: Rates) -> Decimal:
    """The same for a machine that is charged for `seconds` in all."""
    offer = machine.offer
    billed = billed_seconds(rates.rule(offer.provider), seconds)
    lines = cost_lines(offer, seconds, machine.disk_gib, rates, started_at=machine.started_at, prices=machine.prices)
    return run.spent_usd + total(lines) + total(_lines_beside(run, machine, billed, rates))


def _lines_beside(run: Run, machine: _Machine, billed: int, rates: Rates) -> tuple[CostLine, ...]:
    """What a run with this machine pays beside machines: the traffic of this one, and its objects."""
    objects = _objects(run, machine.traffic, billed, open_machines=1)
    transfers = _transfers(run, machine, machine.traffic.moved(billed), rates)
    return transfers + object_lines(machine.offer.provider, objects, rates)


def _transfers(run: Run, machine: _Machine, moved: Moved, rates: Rates) -> tuple[CostLine, ...]:
    """Traffic of a machine with the bucket; none inside one region, or where the bucket's region is not known."""
    region = run.opened.storage_region
    if region is None or region == machine.offer.region:
        return ()
    return transfer_lines(machine.offer.provider, region, moved, rates)


def _objects(run: Run, traffic: Traffic, open_billed: int, *, open_machines: int) -> Objects:
    billed = open_billed + sum(entry.billed_seconds for entry in run.entries)
    machines = Decimal(open_machines + len(run.entries))
    return objects_of(_sizes(run, ends=bool(open_machines)), traffic, billed, machines=machines)


def _sizes(run: Run, *, ends: bool) -> Sizes:
    """What is in the bucket; with a machine that `ends` yet, at least what its last sync is expected to leave there."""
    work = run.opened.workload
    uploaded = run.opened.data_url is None and run.data_url is not None
    data = (work.data_bytes if run.data_bytes is None else run.data_bytes) if uploaded else 0
    checkpoints = sum(checkpoint.size for checkpoint in run.checkpoints)
    if not ends:
        return Sizes(data, checkpoints, run.artifact_bytes)
    planned = planned_sizes(work, keeps_data=run.opened.data_url is None)
    return Sizes(
        max(data, planned.data_bytes),
        max(checkpoints, planned.checkpoint_bytes),
        max(run.artifact_bytes, planned.result_bytes),
    )


def storage_lines(run: Run, rates: Rates) -> tuple[CostLine, ...]:
    """What the objects of a run without an open machine cost beside its leases: for its last record."""
    objects = _objects(run, run.selection.estimate.traffic, 0, open_machines=0)
    return object_lines(run.selection.offer.provider, objects, rates)


def lease_deadline(
    run: Run, selection: Selection, disk_gib: int, now: datetime, rates: Rates, facts: CloudFacts
) -> tuple[datetime, DeadlineBasis]:
    """Until when the next machine may live: the least of what budget, twice the plan's p90 and the user allow.

    The plan's part doubles with each lease that it ended.
    Whole minutes where the cloud's timers know no seconds. Raises Exhausted where nothing useful fits any more.
    """
    expected = 2 ** (1 + run.overruns) * selection.estimate.seconds_high
    limits = [(expected + facts.save_reserve_seconds, DeadlineBasis.ESTIMATE)]
    if run.budget_usd is not None:
        machine = _Machine(selection.offer, disk_gib, selection.estimate.traffic, now)
        affordable = affordable_seconds(run.budget_usd, lambda seconds: _owed(run, machine, seconds, rates))
        limits.append((affordable - facts.power_off_seconds, DeadlineBasis.BUDGET))
    if run.ends_by is not None:
        limits.append(((run.ends_by - now).total_seconds(), DeadlineBasis.USER))
    seconds, basis = min(limits)
    if seconds <= facts.save_reserve_seconds:
        of_user = basis is DeadlineBasis.USER
        more = "--deadline 2h" if of_user else f"--budget +{cents_up(selection.estimate.usd_high)}"
        kind = DeadlineReached if of_user else Exhausted
        raise kind(
            f"the {basis} leaves {max(0, round(seconds))} s for another machine, less than it takes to save and stop",
            hint=f"{show_usd(run.spent_usd)} are spent; raise the limit: `gpucost resume {run.run_id} {more}`",
        )
    return _rounded(now + timedelta(seconds=seconds), now, facts.deadline_grain_seconds), basis


def _rounded(deadline: datetime, now: datetime, grain_seconds: int) -> datetime:
    if deadline - now <= timedelta(seconds=_GRAINS * grain_seconds):
        return deadline
    whole = deadline.replace(microsecond=0)
    return whole - timedelta(seconds=int(whole.timestamp()) % grain_seconds)


def budget_spec(run: Run, lease: Lease, rates: Rates, facts: CloudFacts, now: datetime) -> Budget | None:
    """`owed_usd` of this lease in the numbers that the agent evaluates; None where there is no cap.

    From `now` on a spot machine is reckoned at its on-demand price, above which no cloud bills it: the agent cannot ask
    what it costs, and if nobody tells it any more, the cap must hold all the same. So a launcher tells it again and
    again. The agent's sum is never less than the exact one, and more by at most one billing step and a rounding. The
    minimum charge is in the fixed part, so its prices begin where the minimum ends.
    """
    if run.budget_usd is None:
        return None
    known = _Machine.of(lease)
    machine = replace(known, prices=(*known.prices, *_dearest_from(known, now)))
    rule = rates.rule(machine.offer.provider)
    minimum = billed_seconds(rule, 1)
    pieces = dict(_prices(machine, minimum))
    hourly = {begin: price + _beside_usd_per_hour(run, machine, rates) for begin, price in pieces.items()}
    step = max(hourly.values()) * rule.granularity_seconds / HOUR_SECONDS
    started = machine.started_at.timestamp()
    return Budget(
        cap_usd=math.nextafter(float(run.budget_usd), -math.inf),
        fixed_usd=_up(_owed(run, machine, minimum, rates) + step + _ROUNDING_USD),
        points=[PricePoint(started + begin, _up(usd)) for begin, usd in hourly.items()],
        stop_seconds=facts.power_off_seconds,
    )


def _dearest_from(machine: _Machine, now: datetime) -> Iterator[PriceChange]:
    """The on-demand price from `now` on, where a spot machine costs less as far as is known."""
    most, usd = machine.offer.on_demand_usd_per_hour, machine.offer.usd_per_hour
    if machine.prices:
        usd = machine.prices[-1].usd_per_hour
    if machine.offer.capacity_type is CapacityType.SPOT and most is not None and most > usd:
        yield PriceChange(max(now, machine.started_at), most)


def _prices(machine: _Machine, from_second: int) -> Iterator[tuple[int, Decimal]]:
    """Price of the machine from a second of its life on: the one in force at `from_second`, then each later one."""
    pieces = price_pieces(machine.offer, LONGEST_SECONDS, LONGEST_SECONDS, machine.started_at, machine.prices)
    for piece in pieces:
        if piece.begin_second + piece.seconds > from_second:
            yield max(from_second, piece.begin_second), piece.usd_per_hour


def _beside_usd_per_hour(run: Run, machine: _Machine, rates: Rates) -> Decimal:
    """What grows with the machine's time beside its price: disk, address, traffic, requests."""
    offer, hour = machine.offer, HOUR_SECONDS
    standing = standing_lines(offer.provider, offer.capacity_type, hour, machine.disk_gib, rates)
    one, two = (total(_lines_beside(run, machine, hours * hour, rates)) for hours in (1, 2))
    return total(standing) + two - one


def _up(usd: Decimal) -> float:
    return math.nextafter(float(usd), math.inf)


def close_entry(
    run: Run,
    lease: Lease,
    started_at: datetime,
    ended_at: datetime,
    ended_by: EndedBy,
    rates: Rates,
    *,
    metered: Moved | None = None,
) -> LedgerEntry:
    """The ledger entry of a lease whose machine is gone: its prices, and its traffic with a bucket elsewhere.

    `metered`: what the agent counted of that traffic; else it is estimated.
    """
    interval = LeaseInterval(
        lease.lease_id, run.run_id, started_at, max(started_at + timedelta(seconds=1), ended_at), ended_by
    )
    machine = _Machine.of(lease)
    billed = billed_seconds(rates.rule(machine.offer.provider), interval.seconds)
    return ledger_entry(
        machine.offer,
        interval,
        lease.disk_gib,
        rates,
        prices=lease.prices,
        beside=_transfers(run, machine, metered or machine.traffic.moved(billed), rates),
        estimate_usd=lease.selection.estimate.usd,
    )
