"""What follows once a lease is closed: another machine, or the end. Pure, and the one place that decides it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from launcher.errors import ExitCode
from launcher.events import Cancelled, CapacityRefused, DeadlineBasis, Outcome, Preempted, StepFailed, TrainingExited
from launcher.run import Run
from remote.protocol import Reason

COOL_DOWN = timedelta(minutes=30)
"""A refused place seldom has capacity again sooner; a run that retries it at once only loses time."""
MAX_ATTEMPTS = 8
"""Machines asked for in one run: beyond it something is wrong that another machine will not mend."""

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
        case Preempted(message=message) | CapacityRefused(message=message):
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
    if reason is Reason.DEADLINE:
        outcome, words = _DEADLINE_OUTCOMES[run.deadline_basis or DeadlineBasis.BUDGET]
        return Verdict(outcome, words)
    return Verdict(Outcome.FAILED, message or reason.value)


def _try_again(run: Run, message: str) -> Verdict:
    if run.attempt >= MAX_ATTEMPTS:
        outcome = Outcome.FAILED if isinstance(run.cause, Preempted) else Outcome.REFUSED
        return Verdict(outcome, f"{message}; {run.attempt} machines were tried")
    return Verdict(None, message)


def cooled(run: Run, now: datetime) -> frozenset[str]:
    """Keys of the offers to leave out for now."""
    return frozenset(refusal.offer_key for refusal in run.refusals if now - refusal.at < COOL_DOWN)


def epochs_done(run: Run, tasks: tuple[str, ...]) -> int:
    """Epochs that every task has safely in the storage."""
    by_task = {checkpoint.task: checkpoint.epoch for checkpoint in run.checkpoints}
    return min((by_task.get(task, 0) for task in tasks), default=0)
