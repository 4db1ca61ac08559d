"""Stopping: let the agent save, end the machine until the provider says gone, account for it, then go on or settle.

Nothing in here is ever cut short but the wait for the agent: ending a machine goes on until it is confirmed, or is
reported as unconfirmed, the loudest error there is.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from launcher.errors import Exhausted, GpucostError, StopUnconfirmed
from launcher.jobspec import parse
from launcher.limits import close_entry
from launcher.providers.interface import EndCause, InstanceRef, InstanceState, InstanceStatus, UnreachableError
from launcher.recovery import verdict
from launcher.report import Note
from launcher.results import collect
from launcher.run import (
    Cancelled,
    CapacityRefused,
    Event,
    InstanceCreated,
    Lease,
    LeaseClosed,
    Outcome,
    Preempted,
    Replanned,
    Run,
    Settled,
    StepFailed,
)
from launcher.services import Services
from launcher.ssh import HostKeyMismatch, SshError
from launcher.steps.sync import drain
from pricing.ledger import EndedBy, LedgerEntry
from pricing.planner import NoOfferFits
from remote.protocol import Reason


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
    try:
        machine = services.machine(run)
        if machine.status() is None:
            return None
        machine.ask_to_stop(reason, services.clock.now().timestamp())
    except (SshError, HostKeyMismatch) as error:
        services.report(Note(f"the agent of {lease.lease_id} cannot be asked to save: {error}"))
        return None
    return drain(run, services, until=until)


def _close(run: Run, lease: Lease, services: Services) -> Event:
    services.hang_up()
    region = lease.selection.offer.region
    give_up = services.clock.monotonic() + services.facts.stop_limit_seconds
    while True:
        try:
            machines = _machines(run, lease, services)
            if lease.instance_id is None and machines:
                return InstanceCreated(at=services.clock.now(), instance_id=machines[0].ref.instance_id)
            if all(machine.state is InstanceState.GONE for machine in machines) and _settled_view(
                lease, services, machines
            ):
                break
            for machine in machines:
                if machine.state is not InstanceState.GONE:
                    services.provider.terminate(machine.ref)
        except UnreachableError as error:
            services.report(Note(f"the provider does not answer ({error}); the machine may still be billed, trying on"))
        if services.clock.monotonic() > give_up:
            raise _unconfirmed(run, lease, services)
        services.clock.sleep(services.facts.poll_seconds)
    _clean_up(run, region, services)
    return LeaseClosed(at=services.clock.now(), entry=_entry(run, lease, machines, services))


def _machines(run: Run, lease: Lease, services: Services) -> list[InstanceStatus]:
    """Every machine of the lease: the one in the journal, and any that carries its tag."""
    region = lease.selection.offer.region
    found = [m for m in services.provider.find(run.run_id, region) if m.lease_id == lease.lease_id]
    known = {machine.ref.instance_id for machine in found}
    if lease.instance_id is not None and lease.instance_id not in known:
        found.append(services.provider.describe(InstanceRef(region, lease.instance_id)))
    return found


def _settled_view(lease: Lease, services: Services, machines: list[InstanceStatus]) -> bool:
    """An empty answer counts only after the grace period: a launch whose answer was lost may show up late."""
    if any(machine.launched_at is not None for machine in machines):
        return True
    grace = timedelta(seconds=services.facts.visible_after_seconds)
    return services.clock.now() - lease.requested_at > grace


def _unconfirmed(run: Run, lease: Lease, services: Services) -> StopUnconfirmed:
    region = lease.selection.offer.region
    name = lease.instance_id or f"(unknown, tag gpucost-lease={lease.lease_id})"
    by_hand = services.facts.by_hand.format(region=region, instance_id=name)
    return StopUnconfirmed(
        f"THE MACHINE {name} IN {region} IS NOT CONFIRMED GONE AND MAY STILL BE BILLED",
        hint=f"run `gpucost stop {run.run_id}` now; by hand: `{by_hand}`",
    )


def _clean_up(run: Run, region: str, services: Services) -> None:
    try:
        services.provider.clean_up(run.run_id, region)
    except UnreachableError as error:
        services.report(Note(f"key pair and security group gpucost-{run.run_id} may be left in {region}: {error}"))


def _entry(run: Run, lease: Lease, machines: list[InstanceStatus], services: Services) -> LedgerEntry | None:
    started = [machine.launched_at for machine in machines if machine.launched_at is not None]
    if not started and lease.running_since is None:
        return None
    begin = min(started) if started else lease.running_since
    assert begin is not None  # noqa: S101 - one of the two is there
    by_provider = any(machine.ended_by is EndCause.PROVIDER for machine in machines)
    ended_by = EndedBy.PROVIDER if by_provider else EndedBy.US
    return close_entry(run, lease, begin, _end_of_billing(machines, begin, services), ended_by, services.rates)


def _end_of_billing(machines: list[InstanceStatus], begin: datetime, services: Services) -> datetime:
    ends = [machine.ended_at for machine in machines if machine.ended_at is not None]
    known = len(ends) == len(machines) and max(ends) >= begin
    return max(ends) if known else services.clock.now()


def _decide(run: Run, services: Services) -> Event:
    found = verdict(run)
    now = services.clock.now()
    if found.outcome is None:
        try:
            return Replanned(at=now, selection=services.replan(run), message=found.message)
        except (NoOfferFits, Exhausted) as error:
            exhausted = isinstance(run.cause, Preempted) or isinstance(error, Exhausted)
            outcome = Outcome.BUDGET if exhausted else Outcome.REFUSED
            return _settle(run, services, outcome, f"{found.message}; no other machine: {error}")
    return _settle(run, services, found.outcome, found.message)


def _settle(run: Run, services: Services, outcome: Outcome, message: str) -> Settled:
    job = parse(run.opened.job, {}, run.run_id)
    tasks = tuple(task.name for task in job.trainings())
    if run.attempt and not isinstance(run.cause, CapacityRefused):
        try:
            copied = collect(run, tasks, services.store)
            if copied.missing:
                services.report(Note(f"no finished results of {', '.join(copied.missing)}"))
        except GpucostError as error:
            services.report(Note(f"the results are in {services.store.url}/{run.run_id} but were not copied: {error}"))
    code = run.exit_code if outcome is Outcome.FAILED else None
    return Settled(at=services.clock.now(), outcome=outcome, message=message, exit_code=code)
