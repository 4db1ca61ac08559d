"""Whether a training that ended badly is started again: one pure function of its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remote.protocol import EXIT_BAD_INPUT

STALLS_ALLOWED = 1
FAILURES_ALLOWED = 1


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a trainer that ended without being done and without being asked to."""

    exit_code: int
    steps: int
    """Batches finished in this attempt."""
    stalled: bool = False
    """It was ended because no step came."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Start again or not, and why."""

    again: bool
    why: str


def decide(attempts: Sequence[Attempt]) -> Verdict:
    """Judge the last attempt in the light of all of them.

    A stall is worth one restart. Anything else is worth one restart if steps were made since the last start: what kills
    a training before its first step will do so again. Bad input never gets better.
    """
    last = attempts[-1]
    if last.stalled:
        stalls = sum(attempt.stalled for attempt in attempts)
        again = stalls <= STALLS_ALLOWED
        return Verdict(again, "no step came, restarted" if again else f"no step came, {stalls} times")
    if last.exit_code == EXIT_BAD_INPUT:
        return Verdict(again=False, why="the configuration or the data set is unusable")
    if last.steps == 0:
        return Verdict(again=False, why=f"{ending(last.exit_code)} before its first step")
    failures = sum(not attempt.stalled for attempt in attempts)
    if failures > FAILURES_ALLOWED:
        return Verdict(again=False, why=f"{ending(last.exit_code)}, {failures} times")
    return Verdict(again=True, why=f"{ending(last.exit_code)} after {last.steps} steps, restarted")


def ending(exit_code: int) -> str:
    """How a process ended, in words."""
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
