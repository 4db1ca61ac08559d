"""Machines that are taken away, and offers that are refused: the run goes on elsewhere, from its newest checkpoint."""

from __future__ import annotations

import pytest
from launcher_world import DEMAND_EAST, SPOT_EAST, SPOT_WEST, Killed, World

from launcher.events import Outcome
from launcher.providers.interface import CapacityError, RefusedError, UnreachableError
from launcher.recovery import EXIT_CODES
from remote.protocol import StoredRun


def epochs_by_lease(world):
    found = {}
    for lease, _, epoch in world.script.trained:
        found.setdefault(lease.rsplit("-", 1)[-1], []).append(epoch)
    return found


@pytest.mark.parametrize("moment", [65, 100, 150, 200, 262, 330])
def test_a_preempted_run_saves_closes_its_lease_and_goes_on_in_another_place(tmp_path, moment):
    world = World(tmp_path)
    run_id = world.open()
    world.preempt_at(moment)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt, run.preemptions) == (Outcome.DONE, 2, 1)
    assert [entry.region for entry in run.entries] == ["us-east-1", "us-west-2"]
    done = epochs_by_lease(world)
    assert done["1"] + done["2"] == [1, 2, 3, 4, 5] if "1" in done else done["2"] == [1, 2, 3, 4, 5]
    assert world.machine().request.offer == SPOT_WEST


@pytest.mark.parametrize("moment", [100, 185, 300])
def test_a_machine_that_is_gone_without_a_word_costs_one_checkpoint_interval_at_most(tmp_path, moment):
    world = World(tmp_path)
    run_id = world.open()
    world.lose_at(moment)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.preemptions) == (Outcome.DONE, 1)
    done = epochs_by_lease(world)
    first = done.get("1", [])
    assert done["2"][0] == len(first) + 1
    assert world.clock.elapsed < 700


@pytest.mark.parametrize("moment", [3, 22, 45])
def test_a_machine_that_is_lost_before_it_trains_is_replaced(tmp_path, moment):
    world = World(tmp_path)
    run_id = world.open()
    world.lose_at(moment)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert len(world.provider.machines) == 2
    assert len(run.entries) == 2


def test_a_notice_shorter_than_the_save_loses_the_work_since_the_last_checkpoint_only(tmp_path):
    world = World(tmp_path)
    world.script.saving = 40
    run_id = world.open()
    world.preempt_at(150, notice_seconds=20)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert epochs_by_lease(world) == {"1": [1], "2": [2, 3, 4, 5]}


def test_a_run_that_is_preempted_after_its_last_epoch_is_done(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.preempt_at(361)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)


def test_a_preemption_while_no_launcher_lives_is_made_up_for_by_the_next_one(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.kill_at(130)
    with pytest.raises(Killed):
        world.drive(run_id)
    world.preempt_at(150)
    world.clock.sleep(600)
    run = world.drive(run_id)
    world.check(run_id, late_seconds=260)
    assert (run.outcome, run.preemptions) == (Outcome.DONE, 1)
    assert epochs_by_lease(world) == {"1": [1], "2": [2, 3, 4, 5]}


def test_a_silent_death_while_no_launcher_lives_is_made_up_for_too(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.kill_at(200)
    with pytest.raises(Killed):
        world.drive(run_id)
    world.lose_at(250)
    world.clock.sleep(1000)
    run = world.drive(run_id)
    assert run.outcome is Outcome.DONE
    assert epochs_by_lease(world) == {"1": [1, 2, 3], "2": [4, 5]}
    assert world.provider.alive() == []


def test_a_run_that_is_taken_away_again_and_again_ends_after_eight_machines(tmp_path):
    world = World(tmp_path, offers=tuple(offer_in(f"region-{n}") for n in range(12)))
    run_id = world.open(epochs=100)
    for machine in range(20):
        world.lose_at(100 + 100 * machine)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.FAILED, 8)
    assert "8 machines were tried" in run.message


def offer_in(region):
    from launcher_world import offer

    return offer("0.20", region, SPOT_EAST.capacity_type)


def test_a_refused_offer_is_left_out_and_the_next_best_one_taken(tmp_path):
    world = World(tmp_path)
    world.provider.refuse(SPOT_EAST.key)
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert run.selection.offer == SPOT_WEST
    assert [refusal.offer_key for refusal in run.refusals] == [SPOT_EAST.key]
    assert len(run.entries) == 1, "a refused launch costs nothing"


def test_refusals_walk_down_the_plan_to_on_demand(tmp_path):
    world = World(tmp_path)
    world.provider.refuse(SPOT_EAST.key)
    world.provider.refuse(SPOT_WEST.key)
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.selection.offer == DEMAND_EAST
    assert world.provider.calls.count("launch") == 3


def test_a_run_that_every_offer_refuses_ends_refused_and_paid_nothing(tmp_path):
    world = World(tmp_path)
    for offer in world.offers:
        world.provider.refuse(offer.key)
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.REFUSED
    assert int(EXIT_CODES[run.outcome]) == 5
    assert run.spent_usd == 0
    assert "InsufficientInstanceCapacity" in run.message
    assert "no other machine" in run.message


def test_a_refused_offer_is_tried_again_after_its_cool_down(tmp_path):
    world = World(tmp_path)
    world.provider.refuse(SPOT_EAST.key, times=1)
    world.script.epoch = 900
    world.images_per_second = 1.5
    run_id = world.open()
    world.lose_at(2400)
    run = world.drive(run_id)
    world.check(run_id)
    assert [entry.region for entry in run.entries] == ["us-west-2", "us-east-1"]
    assert run.outcome is Outcome.DONE


def test_credentials_that_are_refused_end_the_run_at_once_with_the_next_action(tmp_path):
    world = World(tmp_path)
    world.provider.fail("launch", RefusedError("AWS refuses the credentials", hint="run `aws configure`"))
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.REFUSED
    assert "refuses the credentials" in run.message
    assert world.provider.calls.count("launch") == 1
    assert run.cause.hint == "run `aws configure`"


@pytest.mark.parametrize(("visible_seconds", "launches"), [(0, 1), (20, 2)], ids=["found-by-tag", "same-token"])
def test_a_launch_whose_answer_is_lost_makes_one_machine(tmp_path, visible_seconds, launches):
    world = World(tmp_path)
    world.provider.visible_seconds = visible_seconds
    world.provider.fail("launch", UnreachableError("read timed out"), effect=True)
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)
    assert len(world.provider.machines) == 1
    assert world.provider.calls.count("launch") == launches
    assert "same token" in world.notes()


def test_a_launch_that_is_never_answered_ends_what_it_may_have_made(tmp_path):
    """The true double-launch path: the effect is done, every answer lost, the machine invisible for a while."""
    world = World(tmp_path)
    world.provider.visible_seconds = 40
    world.provider.fail("launch", UnreachableError("read timed out"), effect=True, times=10)
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.REFUSED
    assert len(world.provider.machines) == 1


def test_a_capacity_error_with_a_machine_behind_it_leaves_no_machine(tmp_path):
    world = World(tmp_path)
    world.provider.visible_seconds = 30
    world.provider.fail("launch", CapacityError("InsufficientInstanceCapacity"), effect=True)
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert len(run.entries) == 2


def test_a_machine_that_never_lets_in_is_given_up_and_another_place_tried(tmp_path):
    """S07, S09: bounded, with what was last seen on its console."""
    world = World(tmp_path)
    world.provider.console_seconds = 5000
    run_id = world.open()

    def mend():
        world.provider.console_seconds = 30

    world.clock.at(500, mend)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert "last seen: booting" in run.refusals[0].reason
    assert [entry.region for entry in run.entries] == ["us-east-1", "us-west-2"]


def test_a_provider_that_fails_for_a_moment_while_the_machine_boots_is_asked_again(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.provider.fail("describe", UnreachableError("RequestLimitExceeded"), times=3)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)


def test_a_provider_that_fails_for_a_moment_before_the_launch_is_asked_again(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.provider.fail("find", UnreachableError("503"), times=2)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)


def test_the_resumed_training_starts_from_the_newest_manifest(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.preempt_at(200)
    run = world.drive(run_id)
    folder = StoredRun(run_id).checkpoints("job")
    stored = sorted(key for key in world.store.objects if key.startswith(folder) and key.endswith(".pt"))
    assert f"{world.store.url}/{stored[-1]}" == run.checkpoints[0].key
    steps = [int(key.rsplit("/", 1)[1].split("-")[0]) for key in stored]
    assert steps == [10, 20, 25, 30, 40, 50]
