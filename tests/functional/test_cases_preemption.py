"""Cases from the field: preemption and resume, as whole runs on fakes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from launcher_world import DEMAND_EAST, SPOT_EAST, SPOT_WEST, STEADY_OFFERS, World
from pricing_cases import T4_SMALL
from run_cases import checkpoint, entry, run_in

from launcher.cli.outcome import finish
from launcher.clouds import AWS
from launcher.events import Outcome, Preempted
from launcher.planning import no_plan
from launcher.recovery import COOL_DOWN, UNSAVED_ALLOWED, resume_command
from launcher.run import State
from launcher.units import parse_usd
from pricing.hardware import InstanceType
from pricing.planner import NoOfferFits

A10G = InstanceType("aws", "g5.xlarge", "A10G", 1, 24.0, 4, 16.0, 250.0)
A10G_WEST = replace(SPOT_EAST, instance=A10G, region="us-west-2")
T4_EAST = replace(SPOT_EAST, instance=T4_SMALL)


def batches(world):
    """What each machine's trainer was told, in order."""
    return [machine.agent.job.tasks[0].config["batch"] for machine in world.provider.machines]


def test_a_batch_that_was_chosen_for_the_first_gpu_is_kept_on_every_other_one(tmp_path):
    """P12: 30 on two GPUs went on as 15 and failed. A checkpoint continues with the batch that it was made with."""
    alone = World(tmp_path / "alone", offers=(A10G_WEST,))
    alone.drive(alone.open(batch="auto", image_size=640, model="yolov9-s"))
    world = World(tmp_path / "both", offers=(T4_EAST, A10G_WEST))
    run_id = world.open(batch="auto", image_size=640, model="yolov9-s")
    world.preempt_at(200)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 2)
    assert batches(alone) == [32]
    assert batches(world) == [16, 16]


def test_a_gpu_that_the_batch_of_the_run_does_not_fit_is_left_out_once_it_has_begun(tmp_path):
    world = World(tmp_path, offers=(replace(A10G_WEST, usd_per_hour=SPOT_EAST.usd_per_hour / 2), T4_EAST))
    run_id = world.open(batch="auto", image_size=640, model="yolov9-s")
    world.preempt_at(200)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.REFUSED, 1)
    assert "GPU memory 1" in run.message


def test_before_anything_was_trained_the_batch_follows_the_gpu(tmp_path):
    world = World(tmp_path, offers=(T4_EAST, A10G_WEST))
    run_id = world.open(batch="auto", image_size=640, model="yolov9-s")
    world.lose_at(22)
    assert world.drive(run_id).outcome is Outcome.DONE
    assert world.provider.machines[0].agent is None
    assert world.machine().agent.job.tasks[0].config["batch"] == 32


# -- what the provider, and silence, say -------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [40, 100, 200, 333])
def test_a_machine_of_which_no_beat_comes_is_asked_for_at_the_provider_within_two_minutes(tmp_path, moment):
    """P06: the machine was gone, and the workflow ran on to its built-in time-out."""
    world = World(tmp_path, offers=(SPOT_EAST,))
    run_id = world.open()
    world.lose_at(moment)
    run = world.drive(run_id)
    world.check(run_id)
    told = next(e.at for e in world.home.run(run_id).journal.events() if isinstance(e, Preempted))
    assert moment < (told - world.clock.start).total_seconds() <= moment + 120
    assert run.state is State.SETTLED
    assert world.clock.elapsed < moment + 240, "and the run is over soon after, since there is no other machine"


def test_a_machine_that_is_only_out_of_reach_is_asked_for_and_not_replaced(tmp_path):
    """P04, P06: silence alone proves nothing; the provider is asked each time."""
    world = World(tmp_path)
    world.script.posts = False
    run_id = world.open()
    world.clock.at(100, lambda: setattr(world.connector, "down", True))
    asked = []
    world.clock.at(101, lambda: asked.append(world.provider.calls.count("describe")))
    world.clock.at(219, lambda: asked.append(world.provider.calls.count("describe")))
    world.clock.at(220, lambda: setattr(world.connector, "down", False))
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)
    assert asked[1] - asked[0] >= 5


# -- a launcher that must leave ----------------------------------------------------------------------------------------


def test_a_training_that_is_longer_than_its_launcher_may_live_is_collected_by_a_later_one(tmp_path):
    """P05: a CI job ends after six hours, whatever runs in it. The next job has nothing but the run's URL."""
    rare_looks = replace(AWS, poll_seconds=60, post_seconds=300)
    world = World(tmp_path, facts=rare_looks, images_per_second=0.15)
    world.script.epoch = 7200
    run_id = world.open(budget=None)
    world.kill_at(6 * 3600)
    world.drive_until_killed(run_id)
    world.clock.sleep(3600)
    later_job = world.elsewhere()
    later_job.adopt(run_id)
    run = later_job.drive(run_id)
    later_job.check(run_id, late_seconds=world.facts.linger_seconds + world.facts.power_off_seconds)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)
    assert [epoch for _, _, epoch in world.script.trained] == [1, 2, 3, 4, 5]
    assert (later_job.folder / "runs/job/best.pt").exists()


# -- a budget that is used up ------------------------------------------------------------------------------------------


def out_of_budget(folder):
    """A run that trains eight times slower than its plan believes, and its world."""
    world = World(folder)
    world.script.epoch, world.offers = 400, STEADY_OFFERS
    run_id = world.open(epochs=10, budget="0.065")
    run = world.drive(run_id)
    assert (run.outcome, len(run.checkpoints)) == (Outcome.BUDGET, 1)
    return world, run


def test_a_run_that_is_out_of_money_says_the_command_that_goes_on_and_it_is_enough(tmp_path, capsys):
    """P14: stopped at a balance of zero, topped up by 40 USD, and the resume failed with no reason."""
    world, run = out_of_budget(tmp_path)
    assert finish(run, as_json=False) == 4
    (command,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  try: ")]
    more = command.removeprefix(f"  try: gpucost resume {run.run_id} --budget +")
    world.images_per_second = 2.5  # the plan has learned; the machine is as slow as it was
    again = world.reopen(run.run_id, budget=str(run.budget_usd + parse_usd(more)))
    world.check(run.run_id)
    assert again.outcome is Outcome.DONE
    assert again.entries[0] == run.entries[0], "what was spent before counts too"
    trained = [epoch for _, _, epoch in world.script.trained]
    assert trained == list(range(1, 11)), "from the checkpoint that the end of the budget left"


def test_a_top_up_that_buys_nothing_is_refused_with_what_the_rest_costs(tmp_path):
    """P14: with a reason, before anything is started; the checkpoint stays."""
    world, run = out_of_budget(tmp_path)
    launches = world.provider.calls.count("launch")
    with pytest.raises(NoOfferFits, match=r"the cheapest run costs 0\.0\d+ USD .* the budget buys 0 of 9 epochs"):
        world.reopen(run.run_id, budget=str(run.spent_usd + parse_usd("0.002")))
    assert world.provider.calls.count("launch") == launches
    assert world.run(run.run_id).checkpoints == run.checkpoints


def test_the_refused_top_up_names_the_budget_that_is_enough(tmp_path):
    world, run = out_of_budget(tmp_path)
    with pytest.raises(NoOfferFits) as caught:
        world.reopen(run.run_id, budget=str(run.spent_usd + parse_usd("0.002")))
    command = no_plan(caught.value, replace(run, storage=())).hint.strip("`")
    assert command.startswith(f"gpucost resume {run.run_id} --budget ")
    assert world.reopen(run.run_id, budget=command.split()[-1]).outcome is Outcome.DONE


def test_a_run_whose_only_place_was_taken_away_is_not_called_out_of_money(tmp_path):
    """P14: more money would not help it; half an hour later the same place may do."""
    world = World(tmp_path, offers=(SPOT_EAST,))
    run_id = world.open()
    world.lose_at(200)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.REFUSED
    assert resume_command(run) == f"gpucost resume {run_id}"
    world.clock.sleep(COOL_DOWN.total_seconds())
    assert world.reopen(run_id, budget="5").outcome is Outcome.DONE


def test_a_run_that_was_taken_away_too_late_for_its_deadline_ended_by_its_deadline(tmp_path):
    world = World(tmp_path)
    run_id = world.open(deadline="12m")
    world.lose_at(400)
    world.script.epoch = 200
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DEADLINE, 1)


@pytest.mark.parametrize("outcome", [one for one in Outcome if one not in {Outcome.BUDGET, Outcome.DONE}])
def test_a_run_that_ended_for_another_reason_is_not_asked_for_money(outcome):
    run = replace(run_in(State.SETTLED), outcome=outcome)
    assert resume_command(run) == f"gpucost resume {run.run_id}"


@pytest.mark.parametrize(
    ("checkpoints", "spent", "more"),
    [((), "0", "0.18"), ((5,), "0", "0.11"), ((5,), "0.90", "0.93"), ((10,), "0", "0.05")],
    ids=["nothing done", "half done", "half done and dear", "all done but the end"],
)
def test_the_raise_is_the_rest_at_the_dear_end_of_the_plan_or_at_the_pace_so_far(checkpoints, spent, more):
    """The plan said up to 0.15 USD for ten epochs."""
    run = replace(
        run_in(State.SETTLED),
        outcome=Outcome.BUDGET,
        checkpoints=tuple(map(checkpoint, checkpoints)),
        entries=(replace(entry(), usd=Decimal(spent)),),
    )
    assert resume_command(run).partition("+")[2] == more


# -- spot without a checkpoint -----------------------------------------------------------------------------------------


def test_a_run_that_saves_nothing_before_it_is_taken_away_leaves_spot(tmp_path):
    """P07, P15: without a checkpoint each spot restart begins from zero. Once is bad luck, twice is the rule."""
    world = World(tmp_path, offers=(SPOT_EAST, SPOT_WEST, replace(SPOT_WEST, region="eu-west-1"), DEMAND_EAST))
    world.script.checkpoint_epochs = 5
    world.script.saving = 500
    run_id = world.open()
    for moment in (200, 450):
        world.lose_at(moment)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.unsaved_preemptions == UNSAVED_ALLOWED
    assert [entry.capacity_type for entry in run.entries] == ["spot", "spot", "on-demand"]
    assert run.outcome is Outcome.DONE
