"""The run: states, events, the table of transitions, and the fold of a journal into a `Run`.

All state logic is in this file and none of it does I/O or looks at a clock: events come in, runs come out. The state
says where a run is, the outcome why it ended; they are never merged. Once `LaunchRequested` is written, a machine may
be paid for, and the only way out leads through `stopping` and `LeaseClosed`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from launcher.events import (
    Abandoned,
    ArtifactsSynced,
    Cancelled,
    CapacityRefused,
    CheckpointSynced,
    Claimed,
    CloudStopArmed,
    DataStaged,
    DeadlineBasis,
    Event,
    InstanceCreated,
    InstanceReady,
    LaunchRequested,
    Lease,
    LeaseClosed,
    LimitsChanged,
    Outcome,
    Preempted,
    PriceChanged,
    Refusal,
    Reopened,
    Replanned,
    RunOpened,
    Selection,
    Settled,
    StepFailed,
    SyncedCheckpoint,
    TrainingExited,
)
from pricing.cost import CostLine, total
from pricing.ledger import LedgerEntry
from remote.protocol import Reason


class State(StrEnum):
    """Where a run is."""

    PLANNED = "planned"
    PROVISIONING = "provisioning"
    STAGING = "staging"
    TRAINING = "training"
    SYNCING = "syncing"
    STOPPING = "stopping"
    SETTLED = "settled"


STOPS_A_LEASE: tuple[type[Event], ...] = (CapacityRefused, Preempted, Abandoned, StepFailed, Cancelled)
_UNSETTLED = tuple(state for state in State if state is not State.SETTLED)

TRANSITIONS: dict[tuple[State, type[Event]], State] = (
    {
        (State.PLANNED, LaunchRequested): State.PROVISIONING,
        (State.PLANNED, Cancelled): State.STOPPING,
        (State.PLANNED, StepFailed): State.STOPPING,
        (State.PROVISIONING, InstanceCreated): State.PROVISIONING,
        (State.PROVISIONING, CloudStopArmed): State.PROVISIONING,
        (State.PROVISIONING, InstanceReady): State.STAGING,
        (State.STAGING, DataStaged): State.TRAINING,
        (State.STAGING, CheckpointSynced): State.STAGING,
        (State.STAGING, TrainingExited): State.SYNCING,
        (State.TRAINING, CheckpointSynced): State.TRAINING,
        (State.TRAINING, TrainingExited): State.SYNCING,
        (State.SYNCING, CheckpointSynced): State.SYNCING,
        (State.SYNCING, ArtifactsSynced): State.STOPPING,
        (State.STOPPING, InstanceCreated): State.STOPPING,
        (State.STOPPING, CheckpointSynced): State.STOPPING,
        (State.STOPPING, LeaseClosed): State.STOPPING,
        (State.STOPPING, Cancelled): State.STOPPING,
        (State.STOPPING, Replanned): State.PLANNED,
        (State.STOPPING, Settled): State.SETTLED,
        (State.SETTLED, Reopened): State.PLANNED,
    }
    | {
        (state, event): State.STOPPING
        for state in (State.PROVISIONING, State.STAGING, State.TRAINING, State.SYNCING)
        for event in STOPS_A_LEASE
    }
    | {(state, PriceChanged): state for state in (State.STAGING, State.TRAINING, State.SYNCING)}
    | {(state, event): state for state in _UNSETTLED for event in (Claimed, LimitsChanged)}
)


class IllegalTransition(Exception):
    """An event that the table does not allow in this state; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Run:
    """The fold of a journal."""

    opened: RunOpened
    state: State
    selection: Selection
    budget_usd: Decimal | None = None
    """Cap of all leases together, reopened ones included."""
    ends_by: datetime | None = None
    caps: tuple[Decimal | None, ...] = ()
    """`budget_usd` when the newest lease was made, and each one that was given since."""
    lease: Lease | None = None
    """The open lease: none before the first launch and after each close."""
    attempt: int = 0
    """Launches asked for so far."""
    overruns: int = 0
    """Leases that trained until twice the longest time that their plan expected: the next one gets twice as much."""
    deadline_basis: DeadlineBasis | None = None
    """What set the newest lease's deadline."""
    preemptions: int = 0
    unsaved_preemptions: int = 0
    """Of those, how many ended a training that had begun and left no checkpoint at all."""
    data_url: str | None = None
    data_sha256: str | None = None
    data_files: int | None = None
    data_bytes: int | None = None
    cause: Event | None = None
    """What led to `stopping`: an event of `STOPS_A_LEASE` or `TrainingExited`."""
    checkpoints: tuple[SyncedCheckpoint, ...] = ()
    """The newest one of each task."""
    batch: int | None = None
    """Of each training, fixed once one has begun: its checkpoints continue with no other, whatever the next GPU."""
    entries: tuple[LedgerEntry, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    artifacts: int = 0
    artifact_bytes: int = 0
    storage: tuple[CostLine, ...] = ()
    """What the objects of a settled run cost beside its machines."""
    outcome: Outcome | None = None
    message: str = ""
    exit_code: int | None = None
    settled_at: datetime | None = None
    results_dir: str = ""
    """Where the results go on this machine."""
    driven_by: str = ""
    """The launcher that claimed the run last."""
    collected: bool = True
    """False: there are results in the storage that were not copied to the user's folder."""

    @property
    def run_id(self) -> str:
        """Identity of the run: also the tag on everything it makes."""
        return self.opened.run_id

    @property
    def url(self) -> str:
        """Where the run is in the storage: its name on every other machine."""
        return f"{self.opened.storage_url}/{self.run_id}"

    @property
    def spent_usd(self) -> Decimal:
        """What the closed leases cost, and after the end the objects too."""
        return sum((entry.usd for entry in self.entries), Decimal(0)) + total(self.storage)


def opened(event: RunOpened) -> Run:
    """A run from its first record."""
    return Run(
        event,
        State.PLANNED,
        event.selection,
        budget_usd=event.budget_usd,
        ends_by=event.ends_by,
        results_dir=event.results_dir,
    )


def advance(run: Run, event: Event) -> Run:
    """The run after `event`. Raises IllegalTransition, and then nothing has changed."""
    target = TRANSITIONS.get((run.state, type(event)))
    if target is None:
        raise IllegalTransition(f"{type(event).__name__} cannot happen to a run that is {run.state}")
    _refuse_double_lease(run, event)
    moved = replace(_apply(run, event), state=target)
    enters = run.state is not State.STOPPING or isinstance(event, Cancelled)
    if target is State.STOPPING and enters and isinstance(event, STOPS_A_LEASE):
        return replace(moved, cause=event)
    return moved


def _refuse_double_lease(run: Run, event: Event) -> None:
    if isinstance(event, LaunchRequested) and run.lease is not None:
        raise IllegalTransition(f"lease {run.lease.lease_id} is still open")
    if isinstance(event, LeaseClosed) and run.lease is None:
        raise IllegalTransition("there is no open lease to close")
    if isinstance(event, Replanned | Settled) and run.lease is not None:
        raise IllegalTransition(f"lease {run.lease.lease_id} must be closed first")


def _apply(run: Run, event: Event) -> Run:  # noqa: C901 - one flat case for each event
    match event:
        case LaunchRequested(lease=lease):
            return replace(
                run,
                lease=lease,
                caps=(run.budget_usd,),
                attempt=run.attempt + 1,
                deadline_basis=lease.deadline_basis,
                cause=None,
                data_url=event.data_url,
                data_sha256=event.data_sha256,
                data_files=event.data_files,
                data_bytes=event.data_bytes,
            )
        case InstanceCreated(instance_id=instance_id):
            return _with_lease(run, instance_id=instance_id)
        case InstanceReady():
            return _with_lease(run, address=event.address, host_key=event.host_key, running_since=event.running_since)
        case DataStaged():
            return replace(run, batch=run.batch or run.selection.batch)
        case CheckpointSynced(checkpoint=checkpoint):
            others = tuple(c for c in run.checkpoints if c.task != checkpoint.task)
            return replace(run, checkpoints=(*others, checkpoint), batch=run.batch or run.selection.batch)
        case TrainingExited():
            overran = event.reason == Reason.DEADLINE.value and run.deadline_basis is DeadlineBasis.ESTIMATE
            return replace(run, cause=event, exit_code=event.exit_code, overruns=run.overruns + overran)
        case ArtifactsSynced(files=files, bytes=size):
            return replace(run, artifacts=files, artifact_bytes=size)
        case Claimed(launcher=launcher):
            return replace(run, driven_by=launcher)
        case CloudStopArmed(until=until):
            return _with_lease(run, cloud_stop_at=until, cloud_stop_asked=True)
        case PriceChanged(change=change):
            return _with_lease(run, prices=(*_lease(run).prices, change))
        case LimitsChanged(budget_usd=budget_usd, ends_by=ends_by):
            return replace(run, budget_usd=budget_usd, ends_by=ends_by, caps=(*run.caps, budget_usd))
        case CapacityRefused(message=message, quota=quota):
            return _refused(run, event.at, message, quota=quota)
        case Abandoned(message=message) if run.state is not State.PROVISIONING:
            return _refused(run, event.at, message)  # it had let us in: its place may be what is broken
        case Preempted(message=message):
            unsaved = run.state in {State.TRAINING, State.SYNCING} and not run.checkpoints
            return replace(
                _refused(run, event.at, message),
                preemptions=run.preemptions + 1,
                unsaved_preemptions=run.unsaved_preemptions + unsaved,
            )
        case LeaseClosed(entry=entry):
            return replace(run, lease=None, entries=run.entries if entry is None else (*run.entries, entry))
        case Replanned(selection=selection):
            return replace(run, selection=selection)
        case Reopened():
            return replace(
                run,
                budget_usd=event.budget_usd,
                ends_by=event.ends_by,
                selection=event.selection,
                checkpoints=tuple(known for known in run.checkpoints if known.task not in event.lost),
                outcome=None,
                message="",
                exit_code=None,
                settled_at=None,
                storage=(),
            )
        case Settled():
            return replace(
                run,
                outcome=event.outcome,
                message=event.message,
                exit_code=event.exit_code,
                settled_at=event.at,
                collected=event.collected,
                storage=event.storage,
            )
        case _:
            return run


def _lease(run: Run) -> Lease:
    if run.lease is None:
        raise IllegalTransition("there is no open lease")
    return run.lease


def _with_lease(run: Run, **changes: Any) -> Run:  # noqa: ANN401 - fields of Lease, checked by its constructor
    return replace(run, lease=replace(_lease(run), **changes))


def _refused(run: Run, at: datetime, reason: str, *, quota: bool = False) -> Run:
    refusal = Refusal(run.selection.offer.key, at, reason, quota)
    return replace(run, refusals=(*run.refusals, refusal))
