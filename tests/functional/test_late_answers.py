"""Machines that show up late, and launchers that look late or by another clock: nobody is taken for gone who is not."""

from __future__ import annotations

import pytest
from launcher_world import Cut, World

from launcher.events import Cancelled, InstanceCreated, Outcome
from launcher.mirror import Fenced

SHOWS_UP = 80
"""Just within the grace period."""


def slow_launch(folder):
    """The storage takes the intent 40 s late: so much later than it was asked for, the machine is made."""
    world = World(folder)
    world.provider.visible_seconds = SHOWS_UP
    world.store.fail("create", "000003", times=8)
    return world


def test_a_machine_made_long_after_it_was_asked_for_is_still_waited_for_by_a_stop(tmp_path):
    world = slow_launch(tmp_path)
    run_id = world.open()
    run = world.drive(run_id, report=world.on(InstanceCreated, world.signal))
    assert run.outcome is Outcome.CANCELLED
    assert len(run.entries) == 1
    world.check(run_id)


def test_a_machine_made_long_after_it_was_asked_for_is_not_given_up_while_it_starts(tmp_path):
    world = slow_launch(tmp_path)
    run_id = world.open()
    run = world.drive(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)


@pytest.mark.parametrize("ahead", [-300, 300])
def test_a_launcher_whose_clock_is_ahead_of_the_last_ones_waits_as_long_for_a_machine(tmp_path, ahead):
    world = World(tmp_path)
    world.provider.visible_seconds = SHOWS_UP
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(3, before=False))
    assert world.run(run_id).lease.instance_id is not None
    world.clock_ahead = ahead
    run = world.stop(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert world.provider.alive() == []
    assert len(run.entries) == 1


def test_a_laptop_that_sleeps_while_a_machine_ends_does_not_charge_its_sleep(tmp_path):
    """The machine was seen alive and asked to end; it powered itself off, and the provider gives no time for that."""
    world = World(tmp_path)
    run_id = world.open(budget="0.1")

    def close_the_lid():
        world.provider.terminates = False
        world.clock.after(43, lambda: world.machine().power_off())
        world.clock.after(44, lambda: world.clock.sleep(20_000))

    world.clock.at(200, world.signal)
    run = world.drive(run_id, report=world.on(Cancelled, close_the_lid))
    (entry,) = run.entries
    assert entry.ended_at >= world.machine().ended_at
    assert run.spent_usd <= run.budget_usd


@pytest.mark.parametrize("unseen", [0, 60])
def test_a_launch_that_slept_while_the_run_was_stopped_elsewhere_leaves_no_machine(tmp_path, unseen):
    world = World(tmp_path)
    world.provider.visible_seconds = unseen
    run_id = world.open()
    runner = world.elsewhere()

    def sleep(_request):
        runner.adopt(run_id)
        assert runner.stop(run_id).outcome is Outcome.CANCELLED

    world.provider.on_launch = sleep
    with pytest.raises(Fenced):
        world.drive(run_id)
    assert world.provider.machines
    world.clock.sleep(world.provider.end_seconds)
    assert world.provider.alive() == []
    assert "was closed while it was launched" in world.notes()


def test_a_launch_that_slept_while_the_run_was_driven_on_elsewhere_leaves_its_machine_to_that_launcher(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    runner = world.elsewhere()

    def sleep(_request):
        world.provider.on_launch = lambda _again: None
        runner.adopt(run_id)
        runner.claim(run_id)

    world.provider.on_launch = sleep
    with pytest.raises(Fenced):
        world.drive(run_id)
    assert len(world.provider.alive()) == 1
    run = runner.drive(run_id, by_force=True)
    assert len(run.entries) == len(world.provider.machines), "it is accounted for"
    runner.check(run_id)


@pytest.mark.parametrize("seen", [True, False], ids=["shows-up", "is-gone"])
def test_a_machine_that_another_launcher_asked_for_is_found_once_it_shows_up_and_never_made_twice(tmp_path, seen):
    """The first one died in its launch call. To the cloud the next one's request, with another key, is another one."""
    world = World(tmp_path)
    world.provider.visible_seconds = SHOWS_UP
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(3, before=True))
    (first,) = world.provider.machines
    if not seen:
        world.provider.lose(first)
    runner = world.elsewhere()
    runner.adopt(run_id)
    assert runner.run(run_id).lease.instance_id is None
    run = runner.drive(run_id, by_force=True)
    assert run.outcome is Outcome.DONE
    assert (first.ended_at - first.launched_at).total_seconds() < SHOWS_UP + 60
    assert world.provider.most_alive == 1
    assert world.provider.alive() == []
