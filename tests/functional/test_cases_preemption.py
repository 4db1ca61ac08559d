"""Cases from the field: preemption and resume, as whole runs on fakes."""

from __future__ import annotations

from dataclasses import replace

from launcher_world import SPOT_EAST, World
from pricing_cases import T4_SMALL

from launcher.events import Outcome
from pricing.hardware import InstanceType

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
    assert (run.outcome, run.attempt) == (Outcome.BUDGET, 1)
    assert "GPU memory 1" in run.message


def test_before_anything_was_trained_the_batch_follows_the_gpu(tmp_path):
    world = World(tmp_path, offers=(T4_EAST, A10G_WEST))
    run_id = world.open(batch="auto", image_size=640, model="yolov9-s")
    world.lose_at(22)
    assert world.drive(run_id).outcome is Outcome.DONE
    assert world.provider.machines[0].agent is None
    assert world.machine().agent.job.tasks[0].config["batch"] == 32
