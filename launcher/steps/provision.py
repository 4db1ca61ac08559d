"""Provisioning: launch the machine, wait until it lets us in."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from launcher.errors import BadInput
from launcher.events import (
    Abandoned,
    CapacityRefused,
    CloudStopArmed,
    Event,
    InstanceCreated,
    InstanceReady,
    Lease,
    Outcome,
    StepFailed,
)
from launcher.jobspec import parse
from launcher.journal import decode, replay
from launcher.machine import Machine
from launcher.mirror import Fenced
from launcher.providers.interface import (
    AskedBefore,
    CapacityError,
    InstanceRef,
    InstanceState,
    InstanceStatus,
    LaunchRequest,
    QuotaError,
    RefusedError,
    UnreachableError,
)
from launcher.report import Note
from launcher.run import Run, State
from launcher.services import Services
from launcher.ssh import HostKeyMismatch, SshError, make_key_pair
from launcher.storage.interface import StorageError
from launcher.templating import user_data

_LAUNCH_TRIES = 4
_TELL_SECONDS = 120
"""Most machines let in sooner; from then on it is told what keeps this one."""


def provision(run: Run, services: Services) -> Event:
    """`InstanceCreated`, then `InstanceReady`; or `CapacityRefused` where this offer does not work out."""
    lease = run.lease
    assert lease is not None  # noqa: S101 - the table lets nobody in without one
    if lease.instance_id is None:
        return _launch(run, lease, services)
    ref = InstanceRef(lease.selection.offer.region, lease.instance_id)
    if not lease.cloud_stop_asked:
        return _arm_cloud_stop(ref, lease, services)
    if not services.folder.private_key.exists():
        return Abandoned(at=services.clock.now(), message="the key of this machine is on the one that launched it")
    limit = parse(run.opened.job, {}, run.run_id).boot_limit or services.facts.boot_limit_seconds
    return _await_login(ref, lease, services, limit)


def _launch(run: Run, lease: Lease, services: Services) -> Event:
    _write_intent_down(services)
    try:
        ref = _launch_patiently(run, lease, services)
    except CapacityError as error:
        quota = isinstance(error, QuotaError)
        return CapacityRefused(at=services.clock.now(), message=str(error), quota=quota)
    except AskedBefore:
        services.folder.private_key.unlink(missing_ok=True)  # no machine has it
        found = _made_by_another(run, lease, services)
        if found is None:
            gone = "another launcher of this run asked for this machine, and it is not there"
            return CapacityRefused(at=services.clock.now(), message=gone)
        ref = found
    _require_owner(ref, lease, services)
    return InstanceCreated(at=services.clock.now(), instance_id=ref.instance_id)


def _write_intent_down(services: Services) -> None:
    """No machine is asked for before the storage has the intent: any launcher can find it then, and only one has it.

    Raises StorageError, Fenced.
    """
    give_up = services.clock.monotonic() + services.facts.drain_seconds
    while True:
        try:
            services.mirror.flush()
        except StorageError as error:
            if services.clock.monotonic() >= give_up:
                raise
            services.report(Note(f"nothing is launched before the storage has the journal: {error}"))
            services.clock.sleep(services.facts.poll_seconds)
        else:
            return


def _arm_cloud_stop(ref: InstanceRef, lease: Lease, services: Services) -> Event:
    """The stop that the cloud holds: set as soon as the machine has a name. A run goes on without it, and says so."""
    for attempt in range(1, _LAUNCH_TRIES + 1):
        try:
            until = services.timer.arm(ref, lease.lease_id, lease.deadline)
            return CloudStopArmed(at=services.clock.now(), until=until, message=services.timer.name)
        except RefusedError as error:
            return CloudStopArmed(at=services.clock.now(), until=None, message=f"{error} ({error.hint})")
        except UnreachableError as error:
            said = str(error)
            services.clock.sleep(2.0**attempt)
    return CloudStopArmed(at=services.clock.now(), until=None, message=said)


def _launch_patiently(run: Run, lease: Lease, services: Services) -> InstanceRef:
    """Repeat a launch whose answer was lost, with the same token: it makes one machine.

    Raises what `launch` raises, and StorageError and Fenced where the run is not known to be ours, or is another's.
    """
    for attempt in range(1, _LAUNCH_TRIES):
        try:
            return _adopt_or_launch(run, lease, services)
        except (UnreachableError, StorageError) as error:
            services.report(Note(f"the launch has no answer ({error}); asking again with the same token"))
            services.clock.sleep(2.0**attempt)
    return _adopt_or_launch(run, lease, services)


def _made_by_another(run: Run, lease: Lease, services: Services) -> InstanceRef | None:
    """The machine that a launcher before this one was given for the same intent: it may show up late."""
    services.report(Note("another launcher of this run asked for this machine; looking for it"))
    give_up = services.clock.monotonic() + services.facts.visible_after_seconds
    while True:
        with suppress(UnreachableError):
            found = _found(run, lease, services)
            if found is not None:
                return found
        if services.clock.monotonic() >= give_up:
            return None
        services.mirror.beat()
        services.clock.sleep(services.facts.poll_seconds)


def _found(run: Run, lease: Lease, services: Services) -> InstanceRef | None:
    found = services.provider.find(run.run_id, lease.selection.offer.region)
    return next((one.ref for one in found if one.lease_id == lease.lease_id), None)


def _adopt_or_launch(run: Run, lease: Lease, services: Services) -> InstanceRef:
    found = _found(run, lease, services)
    if found is not None:
        return found
    if services.clock.now() >= lease.deadline - timedelta(seconds=services.facts.save_reserve_seconds):
        raise CapacityError("the launch was asked for so long ago that its deadline has come")
    services.mirror.check()  # this computer may have slept: another launcher that ended the run would not look again
    return services.provider.launch(_request(run, lease, services))


def _require_owner(ref: InstanceRef, lease: Lease, services: Services) -> None:
    """End a machine that was made after another launcher had given its lease up. Raises Fenced, once that is done.

    This computer may have slept in the launch call, long enough for a stop elsewhere that saw no machine.
    """
    try:
        services.mirror.check()
    except StorageError:
        return  # the machine must be recorded; the record meets the same fence
    except Fenced:
        if _given_up(lease, services):
            _end_ownerless(ref, lease, services)
        raise


def _given_up(lease: Lease, services: Services) -> bool:
    """The launcher that has the run now looks for no machine of this lease, or ends whatever it finds of it.

    Where its records cannot be read it may hold the machine, which is left to it and to the deadline.
    """
    try:
        records = [decode(line, "a stored record") for line in services.mirror.records()]
        run = replay(records, "the journal in the storage")
    except (StorageError, BadInput):
        return False
    if run.lease is None or run.lease.lease_id != lease.lease_id:
        return True
    return run.lease.instance_id is None and run.state is State.STOPPING


def _end_ownerless(ref: InstanceRef, lease: Lease, services: Services) -> None:
    """Terminate until the provider says so: a machine just made may be unknown to it for a while."""
    said = "it is still said to run"
    started = services.clock.monotonic()
    while (waited := services.clock.monotonic() - started) < services.facts.stop_limit_seconds:
        try:
            services.provider.terminate(ref)
            if _ended(services.provider.describe(ref), waited, services):
                services.report(Note(f"{ref.instance_id} is ended: {lease.lease_id} was closed while it was launched"))
                return
        except (UnreachableError, RefusedError) as error:
            said = str(error)
        services.clock.sleep(services.facts.poll_seconds)
    services.report(Note(f"{ref.instance_id} MAY STILL BE BILLED UNTIL {lease.deadline:%Y-%m-%d %H:%M} UTC: {said}"))


def _request(run: Run, lease: Lease, services: Services) -> LaunchRequest:
    return LaunchRequest(
        run_id=run.run_id,
        lease_id=lease.lease_id,
        token=lease.token,
        offer=lease.selection.offer,
        disk_gib=lease.disk_gib,
        user_data=user_data(lease.deadline),
        deadline=lease.deadline,
        ssh_public_key=make_key_pair(services.folder.private_key),
        tags={
            "gpucost-name": run.opened.name,
            "gpucost-deadline": lease.deadline.isoformat(timespec="seconds"),
            "gpucost-output": run.opened.storage_url,
        },
    )


def _await_login(ref: InstanceRef, lease: Lease, services: Services, limit_seconds: float) -> Event:
    started = services.clock.monotonic()
    trouble = told = _Trouble("it is not known to run")
    while services.clock.monotonic() < started + limit_seconds:
        services.mirror.beat()
        try:
            status = services.provider.describe(ref)
        except UnreachableError as error:
            services.report(Note(f"the provider does not answer ({error}); asking again"))
            trouble = _Trouble("the provider does not answer", str(error))
            services.clock.sleep(services.facts.poll_seconds)
            continue
        if _ended(status, services.clock.monotonic() - started, services):
            reason = f"the machine ended while it started: {status.reason or 'no reason given'}"
            return CapacityRefused(at=services.clock.now(), message=reason)
        said = ""
        if status.state is InstanceState.RUNNING and status.address and status.host_key:
            event, said = _try_login(status, lease, services)
            if event is not None:
                return event
        trouble = _trouble(status, said, trouble, services.facts.user)
        if trouble.cause != told.cause and services.clock.monotonic() >= started + _TELL_SECONDS:
            services.report(Note(f"no login yet: {trouble}; waiting for {limit_seconds:.0f} s in all"))
            told = trouble
        services.clock.sleep(services.facts.poll_seconds)
    return CapacityRefused(at=services.clock.now(), message=f"no login after {limit_seconds:.0f} s: {trouble}")


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why a machine does not let us in, as far as can be told from here."""

    cause: str
    seen: str = ""
    """The last lines of its console, or the words of the connection."""

    def __str__(self) -> str:
        return f"{self.cause}; last seen: {self.seen or 'nothing'}"


def _trouble(status: InstanceStatus, said: str, before: _Trouble, user: str) -> _Trouble:
    """The likeliest cause, from how far the machine came."""
    seen = said or status.console_tail or before.seen
    if status.state is not InstanceState.RUNNING:
        return _Trouble("it is still being started", seen)
    if not status.address:
        return _Trouble("it has no public address, since its subnet gives none", seen)
    if not status.host_key:
        return _Trouble("its console shows no host key: a slow or broken boot", seen)
    if "uthentication" in said:
        return _Trouble(f"it does not take the key for user {user}: another image, or a broken boot", seen)
    if "refused" in said:
        return _Trouble("nothing answers on its SSH port: a slow or broken boot", seen)
    return _Trouble(
        "its SSH port is out of reach: a security group, a route, or this computer's address has changed", seen
    )


def _ended(status: InstanceStatus, waited_seconds: float, services: Services) -> bool:
    if status.state in {InstanceState.PENDING, InstanceState.RUNNING}:
        return False
    # A machine just made may be unknown for a while: clouds answer late.
    return status.launched_at is not None or waited_seconds > services.facts.visible_after_seconds


def _try_login(status: InstanceStatus, lease: Lease, services: Services) -> tuple[Event | None, str]:
    now = services.clock.now()
    ready = InstanceReady(
        at=now,
        address=str(status.address),
        host_key=str(status.host_key),
        running_since=status.launched_at or lease.requested_at,
    )
    reachable = replace(lease, address=ready.address, host_key=ready.host_key)
    machine = Machine(reachable, services.facts, services.folder.private_key, services.connect)
    try:
        machine.hello()
    except SshError as error:
        return None, str(error)
    except HostKeyMismatch as error:
        hint = "nothing was sent to it; the machine is being ended"
        return StepFailed(at=now, message=str(error), hint=hint, outcome=Outcome.REFUSED), ""
    finally:
        machine.close()
    return ready, ""
