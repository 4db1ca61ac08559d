"""The launcher dies anywhere; a new one finishes the run, with one machine at any time and nothing left (C25, C16)."""

from __future__ import annotations

import pytest
from launcher_world import Cut, Killed, World

from launcher.events import Outcome
from launcher.run import State

LINES = 15
"""Journal lines of an undisturbed run after its first one."""


def test_an_undisturbed_run_has_as_many_lines_as_are_cut_here(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.drive(run_id)
    assert len(world.events(run_id)) == LINES + 1


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("line", range(1, LINES + 1))
def test_a_run_whose_launcher_died_at_a_journal_line_is_finished_by_the_next_one(tmp_path, line, before):
    world = World(tmp_path)
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(line, before))
    world.clock.sleep(20)
    run = world.drive(run_id)
    assert run == world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert len(world.provider.machines) == 1, "the machine was there already"
    assert (tmp_path / "runs" / "job" / "best.pt").read_bytes() == b"best"


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("line", range(1, LINES + 1))
def test_a_run_whose_launcher_died_is_ended_by_stop_from_another_process(tmp_path, line, before):
    world = World(tmp_path)
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(line, before))
    run = world.stop(run_id)
    assert run == world.check(run_id)
    assert len(world.provider.machines) <= 1
    expected = {Outcome.CANCELLED} if line < LINES - 3 else {Outcome.CANCELLED, Outcome.DONE}
    assert run.outcome in expected


@pytest.mark.parametrize("line", range(1, LINES + 1))
def test_a_run_that_loses_every_launcher_at_the_same_kind_of_line_still_ends(tmp_path, line):
    world = World(tmp_path)
    run_id = world.open()
    for _ in range(40):
        run = world.drive_until_killed(run_id, cut=Cut(2 + line % 3, before=False))
        if run.state is State.SETTLED:
            break
    assert world.check(run_id).outcome is Outcome.DONE


def test_a_launcher_may_die_after_any_of_its_effects(tmp_path):
    world = World(tmp_path / "whole")
    world.script.epoch, world.script.staging = 20, 10
    world.drive(world.open(epochs=2))
    effects = world.effects
    assert effects > 40
    for number in range(1, effects + 1):
        world = World(tmp_path / str(number))
        world.script.epoch, world.script.staging = 20, 10
        run_id = world.open(epochs=2)
        world.die_after_effect = number
        with pytest.raises(Killed):
            world.drive(run_id)
        world.die_after_effect = None
        world.clock.sleep(7)
        assert world.drive(run_id).outcome is Outcome.DONE, f"killed after effect {number}"
        world.check(run_id)
        assert len(world.provider.machines) == 1, f"killed after effect {number}"


@pytest.mark.parametrize("line", [2, 3, 4, 5, 6, 9])
def test_a_machine_whose_launcher_never_comes_back_ends_by_itself(tmp_path, line):
    world = World(tmp_path)
    run_id = world.open()
    run = world.drive_until_killed(run_id, cut=Cut(line, before=False))
    world.clock.sleep(24 * 3600)
    assert world.provider.alive() == []
    for machine in world.provider.machines:
        assert machine.ended_at <= run.lease.deadline


@pytest.mark.parametrize("line", [6, 9, 11])
@pytest.mark.parametrize("hours", [0.5, 3, 72])
def test_a_run_that_was_finished_while_no_launcher_lived_is_done(tmp_path, line, hours):
    """The agent's last words are in the storage; the provider may have forgotten the machine by then."""
    world = World(tmp_path)
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(line, before=False))
    world.clock.sleep(hours * 3600)
    assert world.provider.alive() == []
    run = world.drive(run_id)
    assert run.outcome is Outcome.DONE
    assert max(c.epoch for c in run.checkpoints) == 5
    assert (tmp_path / "runs" / "job" / "results.csv").exists()
    world.check(run_id, late_seconds=world.facts.linger_seconds + world.facts.power_off_seconds)


@pytest.mark.parametrize("line", [2, 3, 4, 5])
def test_a_machine_that_never_trained_is_accounted_for_even_when_the_provider_has_forgotten_it(tmp_path, line):
    world = World(tmp_path)
    run_id = world.open()
    killed = world.drive_until_killed(run_id, cut=Cut(line, before=False))
    world.clock.sleep(72 * 3600)
    run = world.stop(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert run.spent_usd <= run.budget_usd
    if killed.lease.instance_id is not None:
        world.check(run_id, late_seconds=world.facts.power_off_seconds)


def test_a_launch_that_was_asked_for_long_ago_is_not_made_any_more(tmp_path):
    """Its machine would power itself off at once, and be paid for."""
    world = World(tmp_path)
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(2, before=False))
    world.clock.sleep(24 * 3600)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert len(world.provider.machines) == 1
    assert world.machine().request.lease_id == f"{run_id}-2"
