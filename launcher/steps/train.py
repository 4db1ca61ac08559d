"""Training: read the agent's beat until it trains no more. The agent does not need the launcher for it."""

from __future__ import annotations

from launcher.events import Event
from launcher.run import Run
from launcher.services import Services
from launcher.steps.budget import BudgetWatch
from launcher.steps.install import Watchdog
from launcher.steps.watch import ending, hear_or_ask, new_checkpoint


def train(run: Run, services: Services) -> Event:
    """`CheckpointSynced`, `PriceChanged`, `TrainingExited`, `Preempted`, `Abandoned` or `StepFailed`."""
    watchdog = Watchdog(services)
    budget = BudgetWatch(services)
    while True:
        heard = hear_or_ask(run, services)
        if isinstance(heard, Event):
            return heard
        event = None
        if heard is not None:
            event = new_checkpoint(run, heard, services) or ending(heard, services)
        event = event or watchdog.check(run, heard) or budget.check(run)
        if event is not None:
            return event
        services.clock.sleep(services.facts.poll_seconds)
