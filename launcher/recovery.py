"""What follows once a lease is closed: another machine, or the end. Pure, and the one place that decides it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from launcher.errors import DeadlineReached, Exhausted, ExitCode
from launcher.events import (
    Abandoned,
    Cancelled,
    CapacityRefused,
    DeadlineBasis,
    Outcome,
    Preempted,
    Refusal,
    StepFailed,
    SyncedCheckpoint,
    TrainingExited,
)
from launcher.run import Run
from launcher.units import cents_up
from pricing.offers import Constraint, Offer
from pricing.planner import NoOfferFits
from remote.protocol import Reason

COOL_DOWN = timedelta(minutes=30)
"""A refused place seldom has capacity again sooner; a run that retries it at once only loses time."""
MAX_MACHINES = 8
"""Paid for in one run: beyond it something is wrong that another machine will not mend."""
MAX_REFUSALS = 30
"""Launches that came to nothing; they cost time alone, an hour at most."""
QUOTA_REGIONS = 2
"""A quota that is used up in so many regions is taken for one that the account has nowhere: new accounts have none."""
_FIXED_SHARE = Decimal("0.2")
"""Of a whole run's cost: what every machine costs before and after it trains."""

EXIT_CODES = {
    Outcome.DONE: ExitCode.DONE,
    Outcome.BUDGET: ExitCode.EXHAUSTED,
    Outcome.DEADLINE: ExitCode.EXHAUSTED,
    Outcome.REFUSED: ExitCode.REFUSED,
    Outcome.FAILED: ExitCode.TRAINING_FAILED,
    Outcome.CANCELLED: ExitCode.INTERRUPTED,
}

_DEADLINE_OUTCOMES = {
    DeadlineBasis.BUDGET: (Outcome.BUDGET, "the budget is used up"),
    DeadlineBasis.USER: (Outcome.DEADLINE, "the deadline has come"),
    DeadlineBasis.ESTIMATE: (Outcome.DEADLINE, "the run took more than twice what its plan expected at worst"),
}


UNSAVED_ALLOWED = 2
"""One preemption may come before the first checkpoint by bad luck; the second says that none will be there in time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Go on with another machine (`outcome` is None), or end with this outcome."""

    outcome: Outcome | None
    message: str


def verdict(run: Run) -> Verdict:
    """What the cause of the stop leads to."""
    match run.cause:
        case Cancelled(message=message):
            return Verdict(Outcome.CANCELLED, message)
        case StepFailed(message=message, outcome=outcome):
            return Verdict(outcome, message)
        case TrainingExited(reason=reason, message=message):
            return _after_training(run, Reason(reason), message)
        case Preempted(message=message) | CapacityRefused(message=message) | Abandoned(message=message):
            return _try_again(run, message)
        case _:
            return Verdict(Outcome.FAILED, "the run was stopped without a cause")


def _after_training(run: Run, reason: Reason, message: str) -> Verdict:
    if reason is Reason.COMPLETED:
        return Verdict(Outcome.DONE, "")
    if reason is Reason.PREEMPTED:
        return _try_again(run, message or "preempted")
    if reason is Reason.CANCELLED:
        return Verdict(Outcome.CANCELLED, message or "stopped")
    if _stopped_for_money(run, reason) and _has_more_money(run):
        return _try_again(run, "it ended for a lower budget: going on with the one that was given since")
    if reason is Reason.BUDGET:
        return Verdict(*_DEADLINE_OUTCOMES[DeadlineBasis.BUDGET])
    if reason is Reason.DEADLINE and _has_more_time(run):
        return _try_again(run, "slower than its plan: going on with twice the time, within the limits that were given")
    if reason is Reason.DEADLINE:
        outcome, words = _DEADLINE_OUTCOMES[run.deadline_basis or DeadlineBasis.BUDGET]
        return Verdict(outcome, words)
    return Verdict(Outcome.FAILED, message or reason.value)


def _stopped_for_money(run: Run, reason: Reason) -> bool:
    return reason is Reason.BUDGET or (reason is Reason.DEADLINE and run.deadline_basis is DeadlineBasis.BUDGET)


def _has_more_money(run: Run) -> bool:
    """Whether it stopped for a cap that holds no more. What the new one pays for is seen when the rest is planned."""
    held = [cap for cap in run.caps if cap is not None]
    return run.budget_usd is not None and bool(held) and run.budget_usd > min(held)


def _has_more_time(run: Run) -> bool:
    """A plan was wrong, and not the training: it has saved something, and the user's own limits hold it."""
    limited = run.budget_usd is not None or run.ends_by is not None
    return run.deadline_basis is DeadlineBasis.ESTIMATE and limited and bool(run.checkpoints)


def _try_again(run: Run, message: str) -> Verdict:
    machines = len(run.entries)
    if machines >= MAX_MACHINES or run.attempt - machines >= MAX_REFUSALS:
        outcome = Outcome.REFUSED if isinstance(run.cause, CapacityRefused) else Outcome.FAILED
        return Verdict(outcome, f"{message}; {run.attempt} machines were tried")
    return Verdict(None, message)


def without_offer(run: Run, error: NoOfferFits | Exhausted) -> Outcome:
    """What a run is called that has work left and no other machine: a limit of the user's ended it, or the provider."""
    if isinstance(error, Exhausted):
        return Outcome.DEADLINE if isinstance(error, DeadlineReached) else Outcome.BUDGET
    if isinstance(run.cause, CapacityRefused):
        return Outcome.REFUSED
    if error.cheapest is not None or (run.budget_usd is not None and run.spent_usd >= run.budget_usd):
        return Outcome.BUDGET
    return Outcome.DEADLINE if Constraint.DEADLINE in error.counts else Outcome.REFUSED


def cooled(refusals: Iterable[Refusal], offers: Iterable[Offer], now: datetime) -> frozenset[str]:
    """Keys of the offers to leave out for now: a refused place alone, a used-up quota with all that it covers.

    What `QUOTA_REGIONS` regions have no quota for is left out in every region.
    """
    fresh = [refusal for refusal in refusals if now - refusal.at < COOL_DOWN]
    if not fresh:
        return frozenset()
    places = {refusal.offer_key for refusal in fresh}
    listed = list(offers)
    used_up = {refusal.offer_key for refusal in fresh if refusal.quota}
    quotas = {(_quota(offer), offer.region) for offer in listed if offer.key in used_up}
    regions = Counter(quota for quota, _ in quotas)
    return frozenset(places) | {
        offer.key
        for offer in listed
        if (_quota(offer), offer.region) in quotas or regions[_quota(offer)] >= QUOTA_REGIONS
    }


def _quota(offer: Offer) -> tuple[str, str, str]:
    """What shares a region's quota: clouds count vCPUs by market and family, and AWS puts P apart from G and VT."""
    family = offer.instance.name[:1]
    return offer.provider, offer.capacity_type.value, family


def loses_work_on_spot(run: Run) -> bool:
    """Whether preemptions took everything more than once, since no checkpoint can be restored.

    Spot is then a lottery, and the run goes on on demand or not at all.
    """
    return run.unsaved_preemptions >= UNSAVED_ALLOWED


def epochs_done(run: Run, tasks: tuple[str, ...]) -> int:
    """Epochs that every task has safely in the storage."""
    by_task = {checkpoint.task: checkpoint.epoch for checkpoint in run.checkpoints}
    return min((by_task.get(task, 0) for task in tasks), default=0)


def ended_early(run: Run, epochs: Mapping[str, int]) -> tuple[SyncedCheckpoint, ...]:
    """Last checkpoints of the trainings of a run that is done which took fewer epochs than they were given."""
    if run.outcome is not Outcome.DONE:
        return ()
    return tuple(last for last in run.checkpoints if last.epoch < epochs.get(last.task, 0))


def resume_command(run: Run) -> str:
    """The command that goes on with a run that ended early; with a used-up budget it raises that by about the rest."""
    command = f"gpucost resume {run.run_id}"
    return f"{command} --budget +{rest_usd(run)}" if run.outcome is Outcome.BUDGET else command


def rest_usd(run: Run) -> Decimal:
    """What the rest may cost: at the dear end of the first plan, or at the pace so far where that is dearer."""
    work, whole = run.opened.workload, run.opened.selection.estimate.usd_high
    everywhere = len(run.checkpoints) >= work.tasks
    done = min((checkpoint.epoch for checkpoint in run.checkpoints), default=0) if everywhere else 0
    left = max(work.epochs - done, 1)
    paced = run.spent_usd / max(done, 1) * left
    rest = max(whole * left / work.epochs, paced) + _FIXED_SHARE * whole
    return cents_up(rest)
