"""A run as a state machine whose rules are all that can happen to it, in any order: Hypothesis looks for trouble.

Between two rules no launcher lives. Some rules let one live for a while, here or elsewhere, and it dies wherever it is
then; others plan what happens to it meanwhile. At the end everything works again, and somebody brings the run home.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from unittest import mock

import cloud_truth as truth
import pytest
from cut_journal import Cut, Killed
from fake_machine import FakeMachine
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from launcher_world import OFFERS
from schedule_world import ScheduleWorld

from launcher.claim import HeldElsewhere
from launcher.errors import BadInput, NoPlan, StopUnconfirmed
from launcher.events import LimitsChanged, Outcome
from launcher.mirror import Fenced
from launcher.providers.interface import CapacityError, UnreachableError
from launcher.run import Run, State
from launcher.storage.interface import StorageError
from pricing.offers import CapacityType
from pricing.planner import NoOfferFits

ENDS = (Killed, Fenced, HeldElsewhere, StopUnconfirmed)
SOON = st.sampled_from([0, 5, 40, 70, 130, 300])
"""Seconds from now until a thing happens."""
LONG = st.sampled_from([4, 60, 400])
"""How long something is out."""
LIVES = st.sampled_from([3, 35, 65, 150, 400, 2000])
AHEAD = st.sampled_from([0, 0, 0, -200, 250])
EPOCHS = 4


class RunMachine(RuleBasedStateMachine):
    """One run, its cloud, and whoever drives it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.quick_disk = mock.patch.object(os, "fsync")
        self.quick_disk.start()
        self.world = ScheduleWorld(self.folder)
        self.machines = 0
        """Launchers on other machines so far."""
        self.lives = 0
        """Launchers so far that began and ended."""

    @initialize(budget=st.sampled_from(["0.05", "0.2", None]), epoch=st.sampled_from([20, 90]), every=st.integers(1, 2))
    def open(self, budget: str | None, epoch: int, every: int) -> None:
        self.world.script.epoch, self.world.script.checkpoint_epochs = epoch, every
        self.run_id = self.world.open(budget=budget, epochs=EPOCHS)

    # -- launchers -----------------------------------------------------------------------------------------------------

    @rule(seconds=LIVES, ahead=AHEAD)
    def a_launcher_lives(self, seconds: float, ahead: float) -> None:
        self.world.set_clock(ahead)
        self._drive(self.world, lambda: self.world.drive(self.run_id), seconds)

    @rule(line=st.integers(1, 12), before=st.booleans())
    def a_launcher_dies_at_a_line(self, line: int, before: bool) -> None:
        self._drive(self.world, lambda: self.world.drive(self.run_id, cut=Cut(line, before)))

    @rule(seconds=LIVES, ahead=AHEAD, how=st.sampled_from(["resume", "take over", "stop"]))
    def a_launcher_lives_elsewhere(self, seconds: float, ahead: float, how: str) -> None:
        self.machines += 1
        other = self.world.elsewhere(f"other{self.machines}")
        other.set_clock(ahead)
        try:
            other.adopt(self.run_id)
        except (BadInput, StorageError):
            return
        if how == "stop":
            self._drive(other, lambda: other.stop(self.run_id), seconds)
        else:
            self._drive(other, lambda: other.drive(self.run_id, by_force=how == "take over"), seconds)

    @rule(usd=st.sampled_from(["0.02", "0.5"]), seconds=LIVES)
    def a_launcher_raises_the_budget(self, usd: str, seconds: float) -> None:
        def raised(run: Run) -> LimitsChanged | None:
            if run.budget_usd is None or run.state is State.SETTLED:
                return None
            budget = run.budget_usd + Decimal(usd)
            return LimitsChanged(at=self.world.time.now(), budget_usd=budget, ends_by=run.ends_by)

        self._drive(self.world, lambda: self.world.drive(self.run_id, first=raised), seconds)

    @rule(usd=st.sampled_from(["0.1", "1"]))
    def a_run_that_is_over_is_reopened(self, usd: str) -> None:
        run = self._known_here()
        if run.outcome in {None, Outcome.DONE}:
            return
        budget = str((run.budget_usd or Decimal(0)) + Decimal(usd))
        with suppress(NoPlan, NoOfferFits):
            self._drive(self.world, lambda: self.world.reopen(self.run_id, budget=budget))

    @rule(seconds=st.sampled_from([1, 60, 600, 4000]))
    def nobody_is_there(self, seconds: float) -> None:
        self.world.clock.sleep(seconds)

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    @rule(after=SOON, seconds=LONG, what=st.sampled_from(["provider", "store", "connector", "timer", "prices"]))
    def a_service_is_out(self, after: float, seconds: float, what: str) -> None:
        port = getattr(self.world, what)
        self._between(after, seconds, lambda out: setattr(port, "down", out))
        self.world.truth.silent_seconds += seconds

    @rule(after=SOON, seconds=LONG)
    def terminating_does_nothing(self, after: float, seconds: float) -> None:
        self._between(after, seconds, lambda out: setattr(self.world.provider, "terminates", not out))
        self.world.truth.silent_seconds += seconds

    @rule(lost=st.integers(1, 4), effect=st.booleans(), then_refused=st.booleans())
    def a_launch_has_no_answer(self, lost: int, effect: bool, then_refused: bool) -> None:
        fail = self.world.provider.fail
        fail("launch", UnreachableError("read timed out"), times=lost, effect=effect)
        if then_refused:
            fail("launch", CapacityError("InsufficientInstanceCapacity"))

    @rule(number=st.integers(0, len(OFFERS) - 1))
    def an_offer_is_refused(self, number: int) -> None:
        self.world.provider.refuse(OFFERS[number].key, times=1)

    @rule(seconds=st.sampled_from([0, 30, 85]))
    def machines_show_up_late(self, seconds: float) -> None:
        self.world.provider.visible_seconds = seconds

    @rule(call=st.sampled_from(["create", "upload", "get", "list"]), effect=st.booleans())
    def a_call_of_the_storage_fails(self, call: str, effect: bool) -> None:
        self.world.store.fail(call, effect=effect)

    @rule(after=SOON, notice=st.sampled_from([5, 120]))
    def the_provider_takes_the_machine_back(self, after: float, notice: float) -> None:
        def preempt(machine: FakeMachine) -> None:
            if machine.request.offer.capacity_type is CapacityType.SPOT:
                self.world.provider.preempt(machine, notice)

        self._to_the_machine(after, preempt)

    @rule(after=SOON)
    def the_machine_is_gone(self, after: float) -> None:
        self._to_the_machine(after, self.world.provider.lose)

    @rule(after=SOON)
    def the_agent_dies(self, after: float) -> None:
        self._to_the_machine(after, lambda machine: machine.kill_agent() if machine.agent is not None else None)

    @rule(after=SOON, factor=st.sampled_from(["0.5", "1.5", "2.5"]))
    def the_price_changes(self, after: float, factor: str) -> None:
        def change() -> None:
            usd = OFFERS[0].usd_per_hour * Decimal(factor)
            self.world.truth.prices.set(OFFERS[0].key, usd)

        self.world.clock.after(after, change)

    # -- what holds ----------------------------------------------------------------------------------------------------

    @invariant()
    def there_are_never_two_machines(self) -> None:
        if self.world.provider.machines:
            truth.check_leases(self.world, self._known_here())

    def teardown(self) -> None:
        try:
            if hasattr(self, "run_id"):
                self._bring_home()
        finally:
            self.quick_disk.stop()
            shutil.rmtree(self.folder)

    def _bring_home(self) -> None:
        world = self.world
        world.clock.sleep(1000)
        world.store.heal()
        world.set_clock(0)
        for _ in range(6):
            with suppress(StopUnconfirmed, Fenced):
                world.live(lambda: world.drive(self.run_id, by_force=True))
                break
        run = world.run(self.run_id)
        assert run.state is State.SETTLED
        world.clock.sleep(48 * 3600)
        told = truth.stories(world.home.run(self.run_id).journal.events())
        truth.check_mirror(world, self.run_id)
        truth.check_nothing_is_left(world)
        truth.check_leases(world, run)
        truth.check_ends(world, told)
        truth.check_money(world, run, told)
        truth.check_work(world)
        world.check_timers(self.run_id)
        world.check_commands()

    # -- small parts ---------------------------------------------------------------------------------------------------

    def _known_here(self) -> Run:
        return self.world.run(self.run_id)

    def _drive(self, where: ScheduleWorld, life: Callable[[], Run], seconds: float | None = None) -> None:
        """One launcher, to its end or for so long."""
        mine = self.lives

        def kill() -> None:
            if self.lives == mine:
                raise Killed

        if seconds is not None:
            self.world.clock.after(seconds, kill)
        with suppress(*ENDS):
            where.live(life)
        self.lives += 1

    def _between(self, after: float, seconds: float, change: Callable[[bool], None]) -> None:
        self.world.clock.after(after, lambda: change(True))
        self.world.clock.after(after + seconds, lambda: change(False))

    def _to_the_machine(self, after: float, action: Callable[[FakeMachine], None]) -> None:
        def act() -> None:
            for machine in self.world.provider.alive():
                action(machine)

        self.world.clock.after(after, act)


RunMachine.TestCase.settings = settings(max_examples=500, stateful_step_count=12, deadline=None)
TestRunMachine = pytest.mark.timeout(900)(RunMachine.TestCase)  # a failing example takes minutes to be made simple
