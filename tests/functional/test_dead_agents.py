"""An agent that dies on a machine that lives: its last status stays readable, and must not be taken for life."""

from __future__ import annotations

from launcher_world import World

from launcher.events import Outcome

BEAT_LIMIT = 120


def test_an_agent_whose_status_stands_still_is_started_again_and_training_goes_on(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.clock.at(300, lambda: world.machine().kill_agent())
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt, len(run.entries)) == (Outcome.DONE, 1, 1)
    assert "the agent's status stands still for" in world.notes()


def test_an_agent_that_dies_again_ends_the_lease_with_the_checkpoint_kept(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    for moment in (300, 300 + BEAT_LIMIT + 60):
        world.clock.at(moment, lambda: world.machine().kill_agent())
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.FAILED
    assert "stands still" in run.message
    assert run.checkpoints
