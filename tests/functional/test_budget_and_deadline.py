"""The cap holds: whatever limit comes first ends the machine, and what was trained until then is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from cut_journal import Killed
from launcher_world import DEMAND_EAST, STEADY_OFFERS, World, offer

from launcher.events import DeadlineBasis, LimitsChanged, Outcome
from launcher.recovery import EXIT_CODES
from launcher.run import State

TIGHT = "0.065"
"""Enough for ten epochs as the plan sees them; it pays for eighteen minutes."""


def slow_world(folder):
    """Trains eight times slower than its plan believes."""
    world = World(folder)
    world.script.epoch, world.offers = 400, STEADY_OFFERS
    return world


def cap_of(usd, run, world):
    return LimitsChanged(at=world.time.now(), budget_usd=Decimal(usd), ends_by=run.ends_by)


def test_a_run_that_runs_out_of_budget_ends_saved_and_under_it(tmp_path):
    world = slow_world(tmp_path)
    run_id = world.open(epochs=10, budget=TIGHT)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.deadline_basis is DeadlineBasis.BUDGET
    assert run.outcome is Outcome.BUDGET
    assert int(EXIT_CODES[run.outcome]) == 4
    assert run.spent_usd <= run.budget_usd
    assert run.checkpoints[0].epoch == 1
    assert run.checkpoints[0].step > 10, "the work since the last epoch was saved too"
    assert (tmp_path / "runs/job/best.pt").exists()


def test_the_budget_holds_when_the_agent_hangs_and_the_timer_of_the_machine_must_do_it(tmp_path):
    world = slow_world(tmp_path)
    run_id = world.open(epochs=10, budget=TIGHT)
    world.clock.at(500, lambda: world.machine().kill_agent())
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.BUDGET


def test_the_budget_holds_when_agent_and_timer_fail_and_only_the_launcher_is_left(tmp_path):
    world = slow_world(tmp_path)
    world.provider.timers = False
    run_id = world.open(epochs=10, budget=TIGHT)
    world.clock.at(500, lambda: world.machine().kill_agent())
    run = world.drive(run_id)
    assert run.outcome is Outcome.BUDGET
    assert world.provider.alive() == []
    assert run.spent_usd < Decimal("1.1") * run.budget_usd, "a minute late, and the ending takes its time"


def test_a_reopened_run_goes_on_from_its_checkpoint_and_sums_its_ledger(tmp_path):
    world = slow_world(tmp_path)
    run_id = world.open(epochs=10, budget=TIGHT)
    first = world.drive(run_id)
    assert first.outcome is Outcome.BUDGET
    world.script.epoch = 60
    run = world.reopen(run_id, budget="5")
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert run.budget_usd == 5
    assert len(run.entries) == 2
    assert run.entries[0] == first.entries[0]
    assert [epoch for _, _, epoch in world.script.trained] == list(range(1, 11))


@pytest.mark.parametrize("first", [TIGHT, "5"], ids=["from-the-start", "lowered"])
def test_a_budget_that_was_raised_goes_on_after_the_agent_stopped_for_the_old_one(tmp_path, first):
    world = slow_world(tmp_path)
    run_id = world.open(epochs=10, budget=first)
    world.kill_at(500)
    world.drive_until_killed(run_id)
    if first != TIGHT:
        world.kill_at(world.clock.elapsed + 60)
        with pytest.raises(Killed):
            world.drive(run_id, first=lambda run: cap_of(TIGHT, run, world))
    world.clock.sleep(3600)
    assert not world.machine().alive
    world.script.epoch = 60
    run = world.drive(run_id, first=lambda run: cap_of("4", run, world))
    world.check(run_id, late_seconds=3600)
    assert (run.outcome, len(run.entries)) == (Outcome.DONE, 2)


def test_a_raised_budget_that_pays_for_no_other_machine_ends_the_run(tmp_path):
    world = slow_world(tmp_path)
    run_id = world.open(epochs=10, budget=TIGHT)
    world.kill_at(500)
    world.drive_until_killed(run_id)
    world.clock.sleep(3600)
    run = world.drive(run_id, first=lambda run: cap_of(f"{TIGHT}1", run, world))
    assert (run.outcome, run.attempt) == (Outcome.BUDGET, 1)


def test_the_users_deadline_ends_the_machine_in_time(tmp_path):
    world = slow_world(tmp_path)
    run_id = world.open(epochs=10, deadline="20m")
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.deadline_basis) == (Outcome.DEADLINE, DeadlineBasis.USER)
    assert int(EXIT_CODES[run.outcome]) == 4
    assert world.machine().ended_at <= world.clock.start + timedelta(minutes=20)
    assert run.checkpoints[0].epoch == 2


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [({"budget_usd": Decimal("0.02")}, Outcome.BUDGET), ({"ends_by": timedelta(seconds=30)}, Outcome.DEADLINE)],
    ids=["cap", "deadline"],
)
def test_a_limit_that_is_tightened_while_the_data_is_staged_ends_the_machine_then(tmp_path, changes, outcome):
    world = World(tmp_path)
    world.script.staging, world.offers = 1800, STEADY_OFFERS
    run_id = world.open(epochs=10, budget="3", deadline="3h")
    world.kill_at(300)
    assert world.drive_until_killed(run_id).state is State.STAGING
    given_at = world.time.now()

    def tightened(run):
        ends_by = given_at + changes["ends_by"] if "ends_by" in changes else run.ends_by
        return LimitsChanged(at=given_at, budget_usd=changes.get("budget_usd", run.budget_usd), ends_by=ends_by)

    run = world.drive(run_id, first=tightened)
    world.check(run_id)
    assert run.outcome is outcome
    assert world.machine().ended_at <= given_at + timedelta(seconds=300), "long before the data is there"


@pytest.mark.parametrize("seconds", [30, 400])
def test_a_deadline_that_is_brought_forward_ends_the_machine_that_trains(tmp_path, seconds):
    world = slow_world(tmp_path)
    run_id = world.open(epochs=10, deadline="3h")
    world.kill_at(600)
    assert world.drive_until_killed(run_id).state is State.TRAINING
    given_at = world.time.now()
    ends_by = given_at + timedelta(seconds=seconds)
    run = world.drive(run_id, first=lambda run: LimitsChanged(at=given_at, budget_usd=run.budget_usd, ends_by=ends_by))
    world.check(run_id)
    assert run.outcome is Outcome.DEADLINE
    assert f"{ends_by:%F %T} UTC" in run.message
    stop_seconds = world.facts.power_off_seconds + world.facts.save_reserve_seconds / 2
    assert world.machine().ended_at <= given_at + timedelta(seconds=max(seconds, stop_seconds))
    assert run.checkpoints, "the work was saved first"


def test_without_a_budget_twice_the_plans_worst_case_is_the_limit(tmp_path):
    world = slow_world(tmp_path)
    run_id = world.open(epochs=10, budget=None)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.deadline_basis) == (Outcome.DEADLINE, DeadlineBasis.ESTIMATE)
    assert "twice what its plan expected" in run.message


def test_a_run_that_is_slower_than_planned_goes_on_with_twice_the_time_within_its_budget(tmp_path):
    world = slow_world(tmp_path)
    run_id = world.open(epochs=10, budget="4")
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert run.overruns >= 1
    lived = [entry.billed_seconds for entry in run.entries]
    assert len(lived) == run.overruns + 1
    epochs = [epoch for _, _, epoch in world.script.trained]
    assert epochs == sorted(set(epochs)), "no epoch was trained twice"


def test_a_second_machine_gets_only_what_the_first_one_left(tmp_path):
    world = World(tmp_path)
    run_id = world.open(epochs=8, budget="0.08")
    world.lose_at(300)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.spent_usd <= Decimal("0.08")
    assert run.outcome in {Outcome.DONE, Outcome.BUDGET}


def test_a_preempted_run_whose_rest_does_not_fit_the_budget_ends_there(tmp_path):
    world = World(tmp_path, offers=(DEMAND_EAST, offer("0.53", "us-west-2", DEMAND_EAST.capacity_type)))
    world.script.epoch = 300
    run_id = world.open(epochs=8, budget="0.16")
    world.lose_at(700)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.BUDGET, 1)
    assert run.checkpoints[0].epoch == 2
    assert "no other machine" in run.message


@pytest.mark.parametrize("moment", [35, 61, 200])
def test_a_machine_that_dies_silently_is_charged_no_longer_than_it_was_seen(tmp_path, moment):
    world = World(tmp_path)
    run_id = world.open()
    world.lose_at(moment)
    run = world.drive(run_id)
    world.check(run_id, late_seconds=45)
    assert run.outcome is Outcome.DONE


def test_a_lease_with_no_time_left_is_not_asked_for(tmp_path):
    world = World(tmp_path, facts=replace(World(tmp_path / "x").facts, save_reserve_seconds=4000))
    run_id = world.open(deadline="40m")
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DEADLINE, 0)
    assert "less than it takes to save and stop" in run.message
    assert world.provider.calls == []
