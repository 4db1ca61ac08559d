"""Staging: put the agent on the machine, start it, wait until it trains."""

from __future__ import annotations

from launcher.events import DataStaged, Event, Outcome, StepFailed
from launcher.jobspec import parse
from launcher.run import Run
from launcher.services import Services
from launcher.ssh import SshError
from launcher.steps.budget import BudgetWatch
from launcher.steps.install import Watchdog, install
from launcher.steps.watch import ending, hear_or_ask
from remote.protocol import AgentStatus, Phase

_FIRST_BEAT_SECONDS = 60
"""The agent writes its status within a second or two of its start."""


def stage(run: Run, services: Services) -> Event:
    """`DataStaged` once the agent trains; or what the agent, the provider or the user's limits say instead."""
    lease = run.lease
    assert lease is not None  # noqa: S101 - the table lets nobody in without one
    heard = hear_or_ask(run, services)
    if heard is None:
        failure = install(run, lease, services)
        if failure is not None:
            return failure
    started = services.clock.monotonic()
    watchdog, budget = Watchdog(services), BudgetWatch(services)
    while True:
        heard = hear_or_ask(run, services)
        if isinstance(heard, Event):
            return heard
        if heard is None and services.clock.monotonic() - started > _FIRST_BEAT_SECONDS:
            failure = _not_started(run, services)
            if failure is not None:
                return failure
        event = ending(heard, services) if heard is not None else None
        event = event or watchdog.check(run, heard) or budget.check(run)
        if event is not None:
            return event
        if heard is not None and _trains(heard):
            return DataStaged(at=services.clock.now())
        services.clock.sleep(services.facts.poll_seconds)


def _not_started(run: Run, services: Services) -> Event | None:
    """What the agent's log says on a machine that lets us in and has no status; None where it does not let us in."""
    task = parse(run.opened.job, {}, run.run_id).trainings()[0].name
    try:
        machine = services.machine(run)
        if machine.status() is not None:
            return None
        said = machine.log_tail(task).strip().splitlines()[-1:]
    except SshError:
        return None
    message = f"the agent did not start: {' '.join(said) or 'its log is empty'}"
    hint = "the machine is being ended; its image may lack python3 3.10 or newer"
    return StepFailed(at=services.clock.now(), message=message, hint=hint, outcome=Outcome.FAILED)


def _trains(status: AgentStatus) -> bool:
    return status.phase in {Phase.TRAINING, Phase.SYNCING, Phase.ENDED}
