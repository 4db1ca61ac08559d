"""Ctrl-C, SIGTERM and `stop` at any moment: journaled, handed to the agent, saved, ended, confirmed (C18)."""

from __future__ import annotations

import signal

import pytest
from launcher_world import Killed, World

from launcher.events import (
    ArtifactsSynced,
    Cancelled,
    CapacityRefused,
    CheckpointSynced,
    DataStaged,
    InstanceCreated,
    InstanceReady,
    LaunchRequested,
    LeaseClosed,
    Outcome,
    Preempted,
    Replanned,
    TrainingExited,
)
from launcher.recovery import EXIT_CODES
from launcher.run import State

MOMENTS = [*range(0, 70, 6), *range(70, 390, 23), 370, 372, 374, 376]


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_at_any_moment_ends_saved_and_confirmed(tmp_path, moment):
    world = World(tmp_path)
    run_id = world.open()
    world.signal_at(moment)
    run = world.drive(run_id)
    assert run == world.check(run_id)
    if "Cancelled" not in world.events(run_id):
        assert moment >= 370, "it came when the machine was being ended already"
        return
    assert run.outcome is Outcome.CANCELLED
    assert int(EXIT_CODES[run.outcome]) == 130
    assert "SIGINT" in run.message
    at = {type(e).__name__: e.at for e in world.home.run(run_id).journal.events()}["Cancelled"]
    assert (at - world.clock.start).total_seconds() - moment <= 2
    if 60 < moment < 360:
        saved = world.run(run_id).checkpoints[0]
        assert saved.step == 5 + 10 * ((moment - 60) // 60), "what was trained since the last epoch is saved too"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_shutdown_of_the_launchers_machine_counts_as_an_interrupt(tmp_path, number):
    world = World(tmp_path)
    run_id = world.open()
    world.clock.at(150, lambda: world.signal(number))
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert number.name in run.message


@pytest.mark.parametrize(
    "kind",
    [
        LaunchRequested,
        InstanceCreated,
        InstanceReady,
        DataStaged,
        CheckpointSynced,
        TrainingExited,
        ArtifactsSynced,
        LeaseClosed,
    ],
)
def test_an_interrupt_right_after_a_record_closes_the_lease(tmp_path, kind):
    world = World(tmp_path)
    run_id = world.open()
    run = world.drive(run_id, report=world.on(kind, world.signal))
    assert run == world.check(run_id)
    late = kind in {ArtifactsSynced, LeaseClosed}
    assert run.outcome is (Outcome.DONE if late else Outcome.CANCELLED)


@pytest.mark.parametrize("kind", [CapacityRefused, Preempted, Replanned])
def test_an_interrupt_between_two_machines_starts_no_other_one(tmp_path, kind):
    world = World(tmp_path)
    if kind is CapacityRefused:
        world.provider.refuse(world.offers[0].key)
    else:
        world.preempt_at(150)
    run_id = world.open()
    run = world.drive(run_id, report=world.on(kind, world.signal))
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert len(world.provider.machines) <= 1


def test_a_second_signal_shortens_the_saving_and_never_the_ending(tmp_path):
    world = World(tmp_path)
    world.script.saving = 60
    run_id = world.open()
    world.signal_at(150)
    world.signal_at(153)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert world.clock.elapsed < 180
    assert "not waiting any longer" in world.notes()


def test_many_signals_do_not_lead_around_the_stop(tmp_path):
    world = World(tmp_path)
    world.provider.end_seconds = 200
    run_id = world.open()
    for moment in range(150, 400, 3):
        world.signal_at(moment)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED


def test_an_interrupt_while_nobody_answers_still_waits_for_the_provider(tmp_path):
    world = World(tmp_path)
    run_id = world.open()

    def everything(down):
        world.connector.down = world.provider.down = world.store.down = down

    world.clock.at(150, lambda: everything(True))
    world.signal_at(160)
    world.clock.at(400, lambda: everything(False))
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert "may still be billed" in world.notes()


@pytest.mark.parametrize("moment", [10, 25, 45, 150, 365])
def test_a_launcher_that_dies_while_it_stops_is_followed_by_one_that_finishes(tmp_path, moment):
    world = World(tmp_path)
    run_id = world.open()
    world.signal_at(moment)
    world.kill_at(moment + 6)
    world.drive_until_killed(run_id)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert [name for name in world.events(run_id) if name == "Cancelled"] == ["Cancelled"]


def test_a_machine_that_shows_up_late_after_a_cancelled_launch_is_found_and_ended(tmp_path):
    """Eventual consistency: right after the launch the provider denies that the machine exists."""
    world = World(tmp_path)
    world.provider.visible_seconds = 45
    run_id = world.open()

    def cancelled():
        world.signal()

    world.provider.after_call = lambda name: cancelled() if name == "provider.launch" else None
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert len(world.provider.machines) == 1
    assert "InstanceCreated" in world.events(run_id)[3:], "found by its tag while stopping"
    assert len(run.entries) == 1


def test_nothing_is_started_for_a_run_that_is_cancelled_before_its_launch(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    run = world.stop(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.CANCELLED, 0)
    assert world.provider.calls == []


def test_the_cancelled_state_is_stopping_until_the_provider_confirms(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    seen = []
    world.signal_at(150)

    def report(_update):
        seen.append((world.run(run_id).state, bool(world.provider.alive())))

    world.drive(run_id, report=report)
    assert (State.SETTLED, True) not in seen
    assert Cancelled.__name__ in world.events(run_id)


def test_a_stop_right_after_a_preemption_starts_no_other_machine(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.preempt_at(200)

    def die():
        raise Killed

    with pytest.raises(Killed):
        world.drive(run_id, report=world.on(Preempted, die))
    assert world.run(run_id).state is State.STOPPING
    run = world.stop(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert len(world.provider.machines) == 1
