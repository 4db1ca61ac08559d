"""The loop: the step of the current state gives an event, the journal keeps it, the run advances.

The only writer of the journal while a run is driven. A signal becomes `Cancelled` between two records; whatever a step
raises becomes `StepFailed`, so that no error leads around the stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from launcher.errors import BadInput, DeadlineReached, ExitCode, GpucostError, StopUnconfirmed
from launcher.events import Cancelled, Event, Outcome, Settled, StepFailed
from launcher.interrupts import Interrupted
from launcher.journal import Journal
from launcher.mirror import Fenced
from launcher.providers.interface import RefusedError, UnreachableError
from launcher.report import Happened, Note
from launcher.run import IllegalTransition, Run, State, advance
from launcher.services import Services
from launcher.ssh import SshError
from launcher.steps.prepare import prepare
from launcher.steps.provision import provision
from launcher.steps.stage import stage
from launcher.steps.stop import stop, unconfirmed
from launcher.steps.sync import sync
from launcher.steps.train import train
from launcher.storage.interface import StorageError
from remote.dataset import DatasetError

Step = Callable[[Run, Services], Event]

STEPS: Mapping[State, Step] = {
    State.PLANNED: prepare,
    State.PROVISIONING: provision,
    State.STAGING: stage,
    State.TRAINING: train,
    State.SYNCING: sync,
    State.STOPPING: stop,
}

_OUTCOMES = {
    ExitCode.NO_PLAN: Outcome.REFUSED,
    ExitCode.REFUSED: Outcome.REFUSED,
    ExitCode.EXHAUSTED: Outcome.BUDGET,
    ExitCode.INTERRUPTED: Outcome.CANCELLED,
}

log = logging.getLogger(__name__)


def drive(run: Run, journal: Journal, services: Services) -> Run:
    """Take a run to `settled`. The caller holds the journal's lock and has claimed the run.

    Raises StopUnconfirmed, Fenced, and BadInput where the journal cannot be written and no machine can be there.
    """
    while run.state is not State.SETTLED:
        stopping = run.state is State.STOPPING
        event = _stop(run, services) if stopping else _legal(run, _step(run, services), services)
        advanced = advance(run, event)
        _record(event, run, journal, services)
        run = advanced
        services.report(Happened(event, run))
        _mirror(run, services, ending=stopping)
    with suppress(OSError):
        services.folder.private_key.unlink()  # its machines are confirmed gone; a run taken up again makes another
    return run


def _legal(run: Run, event: Event, services: Services) -> Event:
    """The event, or `StepFailed` for one that the table does not know here: a fault must lead to the stop too."""
    try:
        advance(run, event)
    except IllegalTransition as error:
        return _failed(error, services)
    return event


def _record(event: Event, run: Run, journal: Journal, services: Services) -> None:
    try:
        services.mirror.add(journal.append(event))
    except OSError as error:
        reason = f"the journal {journal.path} cannot be written: {error}"
        if run.lease is None:
            raise BadInput(reason, hint=f"make room, then `gpucost resume {run.run_id}`") from error
        raise _still_billed(run, reason, services) from error


def _mirror(run: Run, services: Services, *, ending: bool) -> None:
    """Copy the journal to the storage: once before a machine is ended, since it may be another launcher's by now.

    Not again before it is gone, and not at all where the storage was out just now: its end waits for nothing. Without
    a machine there is time to ask whose the run is, before it goes on elsewhere or is called over.
    """
    if ending and run.lease is not None:
        return
    told = services.mirror.flush_if_possible(at_once=run.lease is None)
    if told is not None:
        services.report(Note(f"the journal cannot be copied to the storage now, training goes on: {told}"))


def _step(run: Run, services: Services) -> Event:
    try:
        with services.interrupts.raising():
            return STEPS[run.state](run, services)
    except Fenced:
        raise  # another launcher has the run: it is not ours to stop
    except Interrupted as how:
        services.hang_up()
        return Cancelled(at=services.clock.now(), message=str(how))
    except Exception as error:  # noqa: BLE001 - no error may lead around the stop
        unpaid = run.lease is None or run.lease.instance_id is None
        return _failed(error, services, unpaid=unpaid)


def _stop(run: Run, services: Services) -> Event:
    """The stop step, which no other error than its own may end."""
    try:
        return STEPS[State.STOPPING](run, services)
    except StopUnconfirmed:
        raise
    except (RefusedError, UnreachableError) as error:
        raise _still_billed(run, str(error), services) from error
    except Exception as error:
        log.exception("unexpected error while stopping")
        words = f"{type(error).__name__}: {error}"
        if run.lease is None:
            return Settled(at=services.clock.now(), outcome=Outcome.FAILED, message=words)
        raise _still_billed(run, words, services) from error


def _still_billed(run: Run, reason: str, services: Services) -> StopUnconfirmed:
    if run.lease is None:
        return StopUnconfirmed(f"THE STOP OF {run.run_id} FAILED: {reason}", hint=f"`gpucost stop {run.run_id}`")
    return unconfirmed(run, run.lease, services, reason)


def _failed(error: Exception, services: Services, *, unpaid: bool = False) -> StepFailed:
    now = services.clock.now()
    if isinstance(error, StorageError) and unpaid:
        return StepFailed(at=now, message=str(error), hint=error.hint, outcome=Outcome.REFUSED)
    if isinstance(error, DeadlineReached):
        return StepFailed(at=now, message=str(error), hint=error.hint, outcome=Outcome.DEADLINE)
    if isinstance(error, GpucostError):
        outcome = _OUTCOMES.get(error.exit_code, Outcome.FAILED)
        return StepFailed(at=now, message=str(error), hint=error.hint, outcome=outcome)
    if isinstance(error, RefusedError):
        return StepFailed(at=now, message=str(error), hint=error.hint, outcome=Outcome.REFUSED)
    if isinstance(error, UnreachableError):
        hint = "check the network, then `gpucost resume`"
        return StepFailed(
            at=now, message=f"the provider cannot be reached: {error}", hint=hint, outcome=Outcome.REFUSED
        )
    if isinstance(error, DatasetError):
        return StepFailed(at=now, message=str(error), hint=error.hint, outcome=Outcome.FAILED)
    if isinstance(error, SshError):
        return StepFailed(at=now, message=str(error), hint="`gpucost resume` tries again", outcome=Outcome.FAILED)
    log.exception("unexpected error")
    hint = "this is a fault in gpucost; its traceback is in gpucost.log of the state directory"
    return StepFailed(at=now, message=f"{type(error).__name__}: {error}", hint=hint, outcome=Outcome.FAILED)
