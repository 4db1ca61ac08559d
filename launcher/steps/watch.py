"""Hearing the agent, and what its silence means: shared by the steps that wait for it.

Silence proves nothing. When the agent is not heard by SSH, the provider is asked; only when it says that the machine is
gone does the run move, and then the agent's last words in the object storage say how far it came. While the machine
lives, what its agent posts there is as good as what it says by SSH, only later.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from launcher import mailbox
from launcher.events import (
    CheckpointSynced,
    Event,
    Lease,
    Outcome,
    Preempted,
    StepFailed,
    SyncedCheckpoint,
    TrainingExited,
)
from launcher.limits import owed_usd
from launcher.providers.interface import (
    CredentialsError,
    EndCause,
    InstanceRef,
    InstanceState,
    InstanceStatus,
    UnreachableError,
)
from launcher.report import Beat, Note
from launcher.run import Run, State
from launcher.services import Services
from launcher.ssh import HostKeyMismatch, SshError
from launcher.storage.interface import StorageError
from remote import protocol
from remote.protocol import AgentStatus, Phase, Reason


def hear(run: Run, services: Services) -> AgentStatus | None:
    """The agent's status, passed on to the reporter and kept for `gpucost status`. Raises SshError."""
    status = services.machine(run).status()
    if status is not None:
        _heard(run, status, services)
    return status


def _heard(run: Run, status: AgentStatus, services: Services) -> None:
    _keep(status, services)
    if status.message and status.reason is None and status.message != services.agent_said:
        services.agent_said = status.message
        services.report(Note(f"the agent says: {status.message}"))
    services.report(Beat(run, status, owed_usd(run, services.clock.now(), services.rates)))


def _keep(status: AgentStatus, services: Services) -> None:
    try:
        services.folder.keep_status(status)
    except OSError as error:  # a full disk under a copy for `gpucost status` is no reason to end a training
        services.report(Note(f"the status cannot be kept: {error}"))


def hear_or_ask(run: Run, services: Services) -> AgentStatus | Event | None:
    """The agent's status, by SSH or as it was posted; where the machine is gone, the event that follows; or None.

    Raises Fenced where another launcher has taken the run over.
    """
    if run.state is not State.STOPPING:
        services.mirror.beat()
    try:
        status = hear(run, services)
    except SshError as error:
        return ask_provider(run, services, str(error))
    except HostKeyMismatch as error:
        return ask_provider(run, services, str(error), stranger=True)
    if status is not None and status.reason is not None:
        return status
    return _overdue(run, services, services.facts.power_off_seconds) or status


def _overdue(run: Run, services: Services, grace_seconds: float) -> Event | None:
    """The launcher's own watch over the deadline, once nobody says that the machine has ended by itself."""
    if not _is_past(run, services, grace_seconds):
        return None
    message = "the machine is past its deadline and not known to be gone"
    now = services.clock.now()
    return TrainingExited(at=now, reason=Reason.DEADLINE.value, exit_code=None, message=message)


def _is_past(run: Run, services: Services, grace_seconds: float) -> bool:
    lease = run.lease
    assert lease is not None  # noqa: S101 - only asked while a lease is open
    return services.clock.now() > lease.deadline + timedelta(seconds=grace_seconds)


def ask_provider(run: Run, services: Services, silence: str, *, stranger: bool = False) -> AgentStatus | Event | None:
    """What the provider says about a machine that does not answer: the event where it is gone, else what is posted.

    `stranger`: another machine answers at its address. Clouds give an address away soon after a machine's end; while it
    runs, nobody else may have it.
    """
    lease = run.lease
    assert lease is not None  # noqa: S101 - only asked while a lease is open
    ref = InstanceRef(lease.selection.offer.region, str(lease.instance_id))
    try:
        status = services.provider.describe(ref)
    except (UnreachableError, CredentialsError) as error:  # a machine trains on while a runner's keys run out
        services.report(Note(f"neither the machine ({silence}) nor the provider ({error}) answers; still trying"))
        return _overdue(run, services, services.facts.stop_limit_seconds)
    if status.state in {InstanceState.GONE, InstanceState.STOPPED}:
        return _after_the_end(run, status, services)
    if stranger and status.state is InstanceState.RUNNING:
        hint = "the machine is being ended; checkpoints already in the storage are kept"
        return StepFailed(at=services.clock.now(), message=silence, hint=hint, outcome=Outcome.FAILED)
    services.report(Note(f"the machine does not answer ({silence}), the provider says {status.state}; still trying"))
    return _overdue(run, services, services.facts.power_off_seconds) or _posted(run, lease, services)


def _posted(run: Run, lease: Lease, services: Services) -> AgentStatus | None:
    try:
        status = mailbox.newest_status(run.run_id, lease.lease_id, services.store)
    except StorageError as error:
        services.report(Note(f"nor can the storage be asked: {error}"))
        return None
    if status is not None:
        _heard(run, status, services)
    return status


def new_checkpoint(run: Run, status: AgentStatus, services: Services) -> Event | None:
    """`CheckpointSynced`, where the status names a checkpoint that the journal does not have yet."""
    found = status.checkpoint
    if found is None or any(known.key == found.key for known in run.checkpoints):
        return None
    checkpoint = SyncedCheckpoint(found.task, found.epoch, found.step, found.key, found.sha256, found.size)
    return CheckpointSynced(at=services.clock.now(), checkpoint=checkpoint)


def ending(status: AgentStatus, services: Services) -> Event | None:
    """The event for an agent that trains no more; None while it does."""
    now = services.clock.now()
    if status.notice is not None and status.reason in {None, Reason.PREEMPTED}:
        action = status.notice.get("action", "end")
        return Preempted(at=now, message=f"the provider will {action} the machine at {status.notice.get('time', '?')}")
    if status.reason is None or status.phase not in {Phase.SYNCING, Phase.ENDED}:
        return None
    return TrainingExited(
        at=now, reason=status.reason.value, exit_code=_exit_code(status), message=status.message or _task_words(status)
    )


def _after_the_end(run: Run, instance: InstanceStatus, services: Services) -> Event | None:
    """What the end of the machine means; None while the storage, which knows how far the agent came, is silent."""
    now = services.clock.now()
    try:
        said = _last_words(run, services)
    except StorageError as error:
        if not _is_past(run, services, services.facts.stop_limit_seconds):
            services.report(Note(f"the machine is gone, and how it ended cannot be read yet: {error}"))
            return None
        message = f"the machine is gone, and how it ended cannot be read: {error}"
        return StepFailed(at=now, message=message, hint=error.hint, outcome=Outcome.FAILED)
    if said is not None:
        event = new_checkpoint(run, said, services) or ending(said, services)
        if event is not None:
            return event
    if instance.ended_by is EndCause.INSIDE:
        message = "the machine powered itself off at its deadline"
        return TrainingExited(at=now, reason=Reason.DEADLINE.value, exit_code=None, message=message)
    if instance.ended_by is EndCause.USER and _ended_at_its_deadline(run, instance, now):
        message = "the cloud ended the machine at its deadline"
        return TrainingExited(at=now, reason=Reason.DEADLINE.value, exit_code=None, message=message)
    if instance.ended_by is EndCause.USER:
        message = f"the machine was ended from outside: {instance.reason}"
        hint = f"continue with `gpucost resume {run.run_id}`"
        return StepFailed(at=now, message=message, hint=hint, outcome=Outcome.CANCELLED)
    return Preempted(at=now, message=instance.reason or "the machine is gone, and the provider gives no reason")


def _ended_at_its_deadline(run: Run, instance: InstanceStatus, now: datetime) -> bool:
    """Whether it was the stop that the cloud holds: to the provider that is one of the account's users."""
    lease = run.lease
    return lease is not None and lease.cloud_stop_at is not None and (instance.ended_at or now) >= lease.deadline


def _last_words(run: Run, services: Services) -> AgentStatus | None:
    lease = run.lease
    assert lease is not None  # noqa: S101 - only asked while a lease is open
    said = mailbox.newest_status(run.run_id, lease.lease_id, services.store)
    if said is not None:
        _keep(said, services)
    return said


def _exit_code(status: AgentStatus) -> int | None:
    codes = [task.exit_code for task in status.tasks if task.exit_code not in {None, protocol.EXIT_DONE}]
    return codes[0] if codes else None


def _task_words(status: AgentStatus) -> str:
    return next((f"{task.name}: {task.message}" for task in status.tasks if task.message), "")
