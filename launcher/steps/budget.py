"""The user's limits while a machine trains: its price is asked now and then, what is owed is compared with the cap.

The agent does the same with the numbers that it was given, and comes first; the launcher's own comparison is for an
agent that is dead or could not be told of a new price. A deadline that was brought forward is the launcher's alone: the
machine's own stops keep the time that they were made with.
"""

from __future__ import annotations

from datetime import timedelta

from launcher.events import Event, Lease, Outcome, PriceChanged, StepFailed
from launcher.limits import budget_spec, owed_usd
from launcher.providers.interface import PriceFeed, RefusedError, UnreachableError
from launcher.report import Note
from launcher.run import Run
from launcher.services import Services
from launcher.ssh import HostKeyMismatch, SshError
from pricing.cost import PriceChange

_ASK_SECONDS = 120
"""Spot prices move a few times a day; but so long the agent has to reckon with the worst."""
_ASK_AGAIN_SECONDS = 60
"""After a price that was not given: a short outage is no reason to train for ten minutes at a price nobody knows."""


class BudgetWatch:
    """Notices another price, and the end of the budget or of the time; keeps the agent's numbers fresh.

    One for each time that a step is entered.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._told = False

    def check(self, run: Run) -> Event | None:
        """`StepFailed` where a limit is reached, `PriceChanged` where the machine costs something else by now."""
        event = self._used_up(run) or self._out_of_time(run) or self._price_changed(run)
        if event is None:
            self._tell(run)
        return event

    def _used_up(self, run: Run) -> Event | None:
        now, needed = self._services.clock.now(), self._stop_seconds
        if run.budget_usd is None or owed_usd(run, now, self._services.rates, stop_seconds=needed) < run.budget_usd:
            return None
        hint = f"go on with a higher one: `gpucost resume {run.run_id} --budget +...`"
        return StepFailed(at=now, message="the budget is used up", hint=hint, outcome=Outcome.BUDGET)

    def _out_of_time(self, run: Run) -> Event | None:
        """The end by a deadline that is earlier than the one which the machine itself keeps."""
        now, lease, ends_by = self._services.clock.now(), run.lease, run.ends_by
        if lease is None or ends_by is None or ends_by >= lease.deadline:
            return None
        if now + timedelta(seconds=self._stop_seconds) < ends_by:
            return None
        message = f"the deadline has come: off by {ends_by:%F %T} UTC"
        hint = f"go on with a later one: `gpucost resume {run.run_id} --deadline ...`"
        return StepFailed(at=now, message=message, hint=hint, outcome=Outcome.DEADLINE)

    @property
    def _stop_seconds(self) -> float:
        """From the decision to the end of billing: the last save, and the stop."""
        facts = self._services.facts
        return facts.power_off_seconds + facts.save_reserve_seconds / 2

    def _price_changed(self, run: Run) -> Event | None:
        """The next change of the price that the run does not know yet."""
        lease, now = run.lease, self._services.clock.monotonic()
        if lease is None or now < self._services.price_due_at:
            return None
        try:
            change = next(iter(price_changes(lease, self._services.prices)), None)
        except (RefusedError, UnreachableError) as error:
            self._services.price_due_at = now + _ASK_AGAIN_SECONDS
            if not self._told:
                self._services.report(Note(f"the machine's price cannot be asked for now: {error}"))
            self._told = True
            return None
        if change is not None:
            return PriceChanged(at=self._services.clock.now(), change=change)
        self._services.price_due_at = now + _ASK_SECONDS
        self._services.agent_knows = ""
        return None

    def _tell(self, run: Run) -> None:
        """The agent hears of each new cap and price, and that a price is still the same."""
        lease = run.lease
        if lease is None or run.budget_usd is None:
            return
        newest = f"{lease.lease_id} {run.budget_usd} {lease.prices}"
        if self._services.agent_knows != newest:
            self._services.agent_knows = newest
            _tell_agent(run, lease, self._services)


def price_changes(lease: Lease, prices: PriceFeed) -> tuple[PriceChange, ...]:
    """How the price of a machine went on after what the lease knows. Raises RefusedError, UnreachableError."""
    offer, known = lease.selection.offer, lease.prices[-1] if lease.prices else None
    since = known.since if known else lease.running_since or lease.requested_at
    usd = known.usd_per_hour if known else offer.usd_per_hour
    changes = []
    for change in prices.changes(offer, since):
        if change.usd_per_hour != usd:
            changes.append(change)
        usd = change.usd_per_hour
    return tuple(changes)


def _tell_agent(run: Run, lease: Lease, services: Services) -> None:
    """Give the agent the newest budget at the newest price; without SSH it keeps the one that it has."""
    spec = budget_spec(run, lease, services.rates, services.facts, services.clock.now())
    if spec is None:
        return
    try:
        services.machine(run).set_budget(spec)
    except (SshError, HostKeyMismatch) as error:
        services.report(Note(f"the agent could not be told of the new budget or price: {error}"))
