"""The errors a user can meet, typed by what to do next. The CLI alone turns them into text and an exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process answers. Documented in README; the same for every command."""

    DONE = 0
    USAGE = 2
    NO_PLAN = 3
    EXHAUSTED = 4
    REFUSED = 5
    TRAINING_FAILED = 6
    NOT_CONFIRMED_GONE = 7
    HELD = 8
    UNDRIVEN = 9
    STOPPED = 10
    INTERRUPTED = 130


class GpucostError(Exception):
    """Base of all errors shown to the user: one sentence with the wrong value, and a hint: the next action."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class BadInput(GpucostError):
    """A job file, data set, flag or configuration cannot be used as it is. Nothing was paid for."""


class Unreadable(BadInput):
    """The records of a run are damaged, foreign, or cannot follow each other: nobody can say in which state it is."""


class NoPlan(GpucostError):
    """No offer satisfies the constraints."""

    exit_code = ExitCode.NO_PLAN


class Exhausted(GpucostError):
    """Budget or deadline ran out; the checkpoint is saved."""

    exit_code = ExitCode.EXHAUSTED


class DeadlineReached(Exhausted):
    """It was the user's own deadline that left no time."""


class ProviderError(GpucostError):
    """The provider refused, and no other offer of the plan can help."""

    exit_code = ExitCode.REFUSED


class StopUnconfirmed(GpucostError):
    """The provider does not confirm that the machine is gone: it may still be billed. The loudest error there is."""

    exit_code = ExitCode.NOT_CONFIRMED_GONE


class Undriven(GpucostError):
    """No launcher drives this run any more, and nothing happens to it by itself. Nothing was done to it."""

    exit_code = ExitCode.UNDRIVEN
