"""Stopping: let the agent save, end the machine until the provider says gone, account for it, then go on or settle.

Nothing in here is ever cut short but the wait for the agent: ending a machine goes on until it is confirmed, or is
reported as unconfirmed, the loudest error there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from launcher import mailbox
from launcher.errors import Exhausted, GpucostError, StopUnconfirmed
from launcher.events import (
    Cancelled,
    CapacityRefused,
    Event,
    InstanceCreated,
    Lease,
    LeaseClosed,
    Outcome,
    Preempted,
    Replanned,
    Settled,
    StepFailed,
)
from launcher.jobspec import parse
from launcher.limits import close_entry, storage_lines
from launcher.providers.interface import (
    EndCause,
    InstanceRef,
    InstanceState,
    InstanceStatus,
    RefusedError,
    UnreachableError,
)
from launcher.recovery import verdict, without_offer
from launcher.report import Note
from launcher.results import Collected, collect
from launcher.run import Run
from launcher.services import Services
from launcher.ssh import HostKeyMismatch, SshError
from launcher.steps.budget import price_changes
from launcher.steps.sync import drain
from launcher.storage.interface import StorageError
from pricing.cost import PriceChange
from pricing.extras import Moved
from pricing.ledger import EndedBy, LedgerEntry
from pricing.planner import NoOfferFits
from remote.protocol import Phase, Reason, StopCommand

CLEAN_UP_TRIES = 3
"""Calls for what is not billed; what is left then is told."""


def stop(run: Run, services: Services) -> Event:
    """`CheckpointSynced` while the agent still saves, `LeaseClosed`, then `Replanned` or `Settled`.

    Raises StopUnconfirmed; the run stays in this state, and the next process goes on with it.
    """
    if run.lease is None:
        return _decide(run, services)
    if _may_still_save(run):
        event = _let_agent_save(run, run.lease, services)
        if event is not None:
            return event
    return _close(run, run.lease, services)


def _may_still_save(run: Run) -> bool:
    reachable = run.lease is not None and run.lease.address is not None
    return reachable and isinstance(run.cause, Cancelled | StepFailed | Preempted)


def _let_agent_save(run: Run, lease: Lease, services: Services) -> Event | None:
    until = services.clock.monotonic() + services.facts.drain_seconds
    reason = Reason.PREEMPTED if isinstance(run.cause, Preempted) else Reason.CANCELLED
    command = StopCommand(reason, services.clock.now().timestamp())
    try:
        machine = services.machine(run)
        if machine.status() is None:
            return None
        machine.ask_to_stop(command)
    except SshError as error:
        if not mailbox.post_stop(run.run_id, lease.lease_id, command, services.store):
            services.report(Note(f"the agent of {lease.lease_id} cannot be asked to save: {error}"))
            return None
        services.report(Note(f"the machine does not answer ({error}); its agent is asked through the storage"))
        until += 2 * services.facts.post_seconds
    except HostKeyMismatch as error:
        services.report(Note(f"nothing is asked of the machine of {lease.lease_id}: {error}"))
        return None
    return drain(run, services, until=until)


def _close(run: Run, lease: Lease, services: Services) -> Event:
    services.hang_up()
    entered = services.clock.monotonic()
    give_up = entered + services.facts.stop_limit_seconds
    seen_alive: datetime | None = None
    while True:
        try:
            machines = _machines(run, lease, services)
            if lease.instance_id is None and machines:
                return InstanceCreated(at=services.clock.now(), instance_id=machines[0].ref.instance_id)
            alive = [machine for machine in machines if machine.state is not InstanceState.GONE]
            if not alive and _settled_view(services, machines, entered):
                break
            for machine in alive:
                seen_alive = services.clock.now()
                services.provider.terminate(machine.ref)
        except UnreachableError as error:
            services.report(Note(f"the provider does not answer ({error}); the machine may still be billed, trying on"))
        if services.clock.monotonic() > give_up:
            raise unconfirmed(run, lease, services, f"no word of it in {services.facts.stop_limit_seconds:.0f} s")
        services.clock.sleep(services.facts.poll_seconds)
    _clean_up(run, lease, services)
    latest = _latest_end(run, lease, services)
    if seen_alive is not None:
        latest = max(latest, seen_alive)
    return LeaseClosed(at=services.clock.now(), entry=_entry(run, lease, machines, latest, services))


def _machines(run: Run, lease: Lease, services: Services) -> list[InstanceStatus]:
    """Every machine of the lease: the one in the journal, and any that carries its tag."""
    region = lease.selection.offer.region
    found = [m for m in services.provider.find(run.run_id, region) if m.lease_id == lease.lease_id]
    known = {machine.ref.instance_id for machine in found}
    if lease.instance_id is not None and lease.instance_id not in known:
        found.append(services.provider.describe(InstanceRef(region, lease.instance_id)))
    return found


def _settled_view(services: Services, machines: list[InstanceStatus], entered: float) -> bool:
    """An empty answer counts only after the grace period: a machine just made may show up late.

    It is counted from when this step was entered: a launch call may have been under way until then, and no time in the
    journal says when it was made, which may be minutes after it was asked for, nor by whose clock.
    """
    if any(machine.launched_at is not None for machine in machines):
        return True
    return services.clock.monotonic() - entered > services.facts.visible_after_seconds


def unconfirmed(run: Run, lease: Lease, services: Services, reason: str) -> StopUnconfirmed:
    """The loudest error there is, with the exact command to run."""
    region = lease.selection.offer.region
    name = lease.instance_id or f"(unknown, tag gpucost-lease={lease.lease_id})"
    by_hand = services.facts.by_hand.format(region=region, instance_id=name)
    return StopUnconfirmed(
        f"THE MACHINE {name} IN {region} IS NOT CONFIRMED GONE AND MAY STILL BE BILLED: {reason}; its own timer"
        f"{' and the cloud end' if lease.cloud_stop_at else ' ends'} it after {lease.deadline:%F %T} UTC",
        hint=f"run `gpucost stop {run.run_id}` now; by hand: `{by_hand}`",
    )


def _clean_up(run: Run, lease: Lease, services: Services) -> None:
    """What was made beside the machine goes too; none of it is billed, so a failure is told and `gc` finds it."""
    region = lease.selection.offer.region
    error = _tried(lambda: services.provider.clean_up(run.run_id, region), services)
    if error is not None:
        services.report(Note(f"key pair and security group gpucost-{run.run_id} may be left in {region}: {error}"))
    if lease.instance_id is None:
        return  # the cloud holds a stop for a machine that has a name
    # It may be armed where its answer was lost, or nobody wrote it down.
    error = _tried(lambda: services.timer.disarm(lease.lease_id, region), services)
    if error is not None and lease.cloud_stop_at is not None:
        services.report(Note(f"the cloud's stop of {lease.lease_id} is left, and ends with its time: {error}"))


def _tried(act: Callable[[], None], services: Services) -> RefusedError | UnreachableError | None:
    """Why it did not succeed: a refusal, or the last of some calls without an answer."""
    left = CLEAN_UP_TRIES
    while True:
        left -= 1
        try:
            act()
        except RefusedError as error:
            return error
        except UnreachableError as error:
            if not left:
                return error
        else:
            return None
        services.clock.sleep(services.facts.poll_seconds)


def _latest_end(run: Run, lease: Lease, services: Services) -> datetime:
    """When a machine that was not seen later was off at the latest: by its timer, or soon after its agent's last words.

    Clouds forget ended machines within the hour, and give no time for one that powered itself off.
    """
    off = timedelta(seconds=services.facts.power_off_seconds)
    ends = [services.clock.now(), lease.deadline + off]
    try:
        said = mailbox.last_words(run.run_id, lease.lease_id, services.store)
    except StorageError as error:
        services.report(Note(f"when the agent of {lease.lease_id} ended cannot be read: {error}"))
        said = None
    if said is not None and said.phase is Phase.ENDED:
        lingers = timedelta(seconds=services.facts.linger_seconds)
        ends.append(datetime.fromtimestamp(said.at, UTC) + lingers + off)
    return min(ends)


def _entry(
    run: Run, lease: Lease, machines: list[InstanceStatus], latest: datetime, services: Services
) -> LedgerEntry | None:
    started = [machine.launched_at for machine in machines if machine.launched_at is not None]
    if not started and lease.instance_id is None:
        return None
    begin = min(started) if started else lease.running_since or lease.requested_at
    by_provider = any(machine.ended_by is EndCause.PROVIDER for machine in machines)
    ended_by = EndedBy.PROVIDER if by_provider else EndedBy.US
    end = _end_of_billing(machines, begin, latest)
    lease = replace(lease, prices=(*lease.prices, *_last_prices(lease, services)))
    return close_entry(run, lease, begin, end, ended_by, services.rates, metered=_metered(lease, services))


def _last_prices(lease: Lease, services: Services) -> tuple[PriceChange, ...]:
    """What the machine came to cost since its price was asked for last."""
    try:
        return price_changes(lease, services.prices)
    except (RefusedError, UnreachableError) as error:
        services.report(Note(f"a change of the machine's price near its end is not in the ledger: {error}"))
        return ()


def _metered(lease: Lease, services: Services) -> Moved | None:
    """The agent's own count of what it moved, from its last words; None where it had none, or counted nothing."""
    said = services.folder.last_status()
    if said is None or said.lease_id != lease.lease_id or said.phase is not Phase.ENDED or not said.uploaded_bytes:
        return None
    return Moved(Decimal(said.downloaded_bytes), Decimal(said.uploaded_bytes))


def _end_of_billing(machines: list[InstanceStatus], begin: datetime, latest: datetime) -> datetime:
    """The provider's own word on the end, where it gives one; else the latest moment that it can have been."""
    ends = [machine.ended_at for machine in machines if machine.ended_at is not None]
    known = len(ends) == len(machines) and max(ends) >= begin
    return max(ends) if known else latest


def _decide(run: Run, services: Services) -> Event:
    found = verdict(run)
    now = services.clock.now()
    if found.outcome is None:
        try:
            return Replanned(at=now, selection=services.replan(run), message=found.message)
        except (NoOfferFits, Exhausted) as error:
            return _settle(run, services, without_offer(run, error), f"{found.message}; no other machine: {error}")
    return _settle(run, services, found.outcome, found.message)


def _settle(run: Run, services: Services, outcome: Outcome, message: str) -> Settled:
    tasks = parse(run.opened.job, {}, run.run_id).task_names
    collected = True
    if run.attempt and not isinstance(run.cause, CapacityRefused):
        try:
            copied = _collect_patiently(run, tasks, services)
            # A run that was stopped has not been told of them.
            run = replace(run, artifact_bytes=max(run.artifact_bytes, copied.bytes))
            if copied.missing:
                services.report(Note(f"no finished results of {', '.join(copied.missing)}"))
        except (GpucostError, OSError) as error:
            collected = False
            services.report(Note(f"the results are in {services.store.url}/{run.run_id} but were not copied: {error}"))
    code = run.exit_code if outcome is Outcome.FAILED else None
    return Settled(
        at=services.clock.now(),
        outcome=outcome,
        message=message,
        exit_code=code,
        collected=collected,
        storage=storage_lines(run, services.rates) if run.entries else (),
    )


def _collect_patiently(run: Run, tasks: tuple[str, ...], services: Services) -> Collected:
    """Nothing is paid for any more: a storage that does not answer is asked again for a while, or until two signals."""
    give_up = services.clock.monotonic() + services.facts.drain_seconds
    while True:
        try:
            return collect(run, tasks, services.store)
        except StorageError as error:
            if services.clock.monotonic() >= give_up or services.interrupts.count >= 2:
                raise
            services.report(Note(f"the results cannot be copied yet: {error}"))
            services.clock.sleep(services.facts.poll_seconds)
