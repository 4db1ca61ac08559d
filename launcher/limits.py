"""The budget as a function of time: what is owed if a run stops now, and until when a lease may live. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from launcher.clouds import CloudFacts
from launcher.errors import Exhausted
from launcher.events import DeadlineBasis, Lease, Selection
from launcher.run import Run
from launcher.units import show_usd
from pricing.cost import Rates, affordable_seconds, cost_lines, total
from pricing.ledger import EndedBy, LeaseInterval, LedgerEntry, ledger_entry


def owed_usd(run: Run, now: datetime, rates: Rates) -> Decimal:
    """What the run costs if its machine ends now: all closed leases and the open one."""
    lease = run.lease
    if lease is None or lease.instance_id is None:
        return run.spent_usd
    seconds = max(0.0, (now - (lease.running_since or lease.requested_at)).total_seconds())
    return run.spent_usd + total(cost_lines(lease.selection.offer, seconds, lease.disk_gib, rates))


def lease_deadline(
    run: Run, selection: Selection, disk_gib: int, now: datetime, rates: Rates, facts: CloudFacts
) -> tuple[datetime, DeadlineBasis]:
    """Until when the next machine may live: the least of what budget, twice the plan's p90 and the user allow.

    Raises Exhausted where nothing useful fits any more.
    """
    limits = [(2 * selection.estimate.seconds_high + facts.save_reserve_seconds, DeadlineBasis.ESTIMATE)]
    if run.budget_usd is not None:
        left = run.budget_usd - run.spent_usd
        affordable = affordable_seconds(selection.offer, max(left, Decimal(0)), disk_gib, rates)
        limits.append((affordable - facts.power_off_seconds, DeadlineBasis.BUDGET))
    if run.ends_by is not None:
        limits.append(((run.ends_by - now).total_seconds(), DeadlineBasis.USER))
    seconds, basis = min(limits)
    if seconds <= facts.save_reserve_seconds:
        raise Exhausted(
            f"the {basis} leaves {max(0, round(seconds))} s for another machine, less than it takes to save and stop",
            hint=f"{show_usd(run.spent_usd)} are spent; raise the limit: `gpucost resume {run.run_id} --budget ...`",
        )
    return now + timedelta(seconds=seconds), basis


def close_entry(
    run: Run, lease: Lease, started_at: datetime, ended_at: datetime, ended_by: EndedBy, rates: Rates
) -> LedgerEntry:
    """The ledger entry of a lease whose machine is gone."""
    interval = LeaseInterval(
        lease.lease_id, run.run_id, started_at, max(started_at + timedelta(seconds=1), ended_at), ended_by
    )
    estimate = lease.selection.estimate.usd
    return ledger_entry(lease.selection.offer, interval, lease.disk_gib, rates, estimate_usd=estimate)
