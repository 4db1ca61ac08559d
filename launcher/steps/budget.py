"""The budget while a machine trains: its price is asked now and then, and what is owed is compared with the cap.

The agent does the same with the numbers that it was given, and comes first; the launcher's own comparison is for an
agent that is dead or could not be told of a new price.
"""

from __future__ import annotations

from launcher.events import Event, Outcome, PriceChanged, StepFailed
from launcher.limits import budget_spec, owed_usd
from launcher.providers.interface import RefusedError, UnreachableError
from launcher.report import Note
from launcher.run import Run
from launcher.services import Services
from launcher.ssh import HostKeyMismatch, SshError
from pricing.cost import PriceChange

_ASK_SECONDS = 600
"""Spot prices move a few times a day."""


class BudgetWatch:
    """Notices another price, and the end of the budget. One for each time that a step is entered."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._told = False

    def check(self, run: Run) -> Event | None:
        """`StepFailed` where the cap is reached, `PriceChanged` where the machine costs something else by now."""
        return self._used_up(run) or self._price_changed(run)

    def _used_up(self, run: Run) -> Event | None:
        facts, now = self._services.facts, self._services.clock.now()
        needed = facts.power_off_seconds + facts.save_reserve_seconds / 2
        if run.budget_usd is None or owed_usd(run, now, self._services.rates, stop_seconds=needed) < run.budget_usd:
            return None
        hint = f"go on with a higher one: `gpucost resume {run.run_id} --budget +...`"
        return StepFailed(at=now, message="the budget is used up", hint=hint, outcome=Outcome.BUDGET)

    def _price_changed(self, run: Run) -> Event | None:
        lease = run.lease
        now = self._services.clock.monotonic()
        asked = self._services.price_asked_at
        if lease is None or (asked is not None and now - asked < _ASK_SECONDS):
            return None
        self._services.price_asked_at = now
        try:
            usd = self._services.prices.usd_per_hour(lease.selection.offer)
        except (RefusedError, UnreachableError) as error:
            if not self._told:
                self._services.report(Note(f"the machine's price cannot be asked for now: {error}"))
            self._told = True
            return None
        known = lease.prices[-1].usd_per_hour if lease.prices else lease.selection.offer.usd_per_hour
        if usd is None or usd == known:
            return None
        at = self._services.clock.now()
        return PriceChanged(at=at, change=PriceChange(at, usd))


def tell_agent(run: Run, services: Services) -> None:
    """Give the agent the newest budget at the newest price; without SSH it keeps the one that it has."""
    lease = run.lease
    spec = None if lease is None else budget_spec(run, lease, services.rates, services.facts)
    if spec is None:
        return
    try:
        services.machine(run).set_budget(spec)
    except (SshError, HostKeyMismatch) as error:
        services.report(Note(f"the agent could not be told of the new budget or price: {error}"))
