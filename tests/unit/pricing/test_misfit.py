"""Why an offer cannot be used: the reason, with its numbers."""

from dataclasses import replace
from decimal import Decimal

import pytest

from pricing.hardware import InstanceType
from pricing.layout import Concurrent, Ddp, layout_for
from pricing.memory import AUTO_BATCH_MOST, choose_batch, needed_gib, usable_gib
from pricing.offers import Market, Policy, misfit
from pricing.workload import Workload
from tests.fakes.pricing_cases import A10_SLICE, A100, T4_FOUR, T4_METAL, T4_SMALL, V100, WORKLOAD, offer, spot


def test_an_offer_that_meets_everything_has_no_misfit():
    assert misfit(offer(), WORKLOAD, Policy()) is None


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy(clouds=("gcp",)), "cloud aws is not among gcp"),
        (Policy(regions=("eu-west-1", "eu-west-2")), "region us-east-1 is not among eu-west-1, eu-west-2"),
        (Policy(gpus=("L4",)), "GPU T4 is not among L4"),
        (Policy(market=Market.SPOT), "on-demand is not the market asked for (spot)"),
        (Policy(provisionable=("gcp",)), "estimate only: no machine can be started on aws yet"),
    ],
)
def test_a_policy_says_what_it_rules_out(policy, reason):
    assert misfit(offer(), WORKLOAD, policy) == reason


@pytest.mark.parametrize("price", ["0", "-1", "NaN"])
def test_a_price_that_is_no_price_is_unknown_and_never_cheapest(price):
    assert misfit(offer(price), WORKLOAD, Policy()) == "the price is unknown"


def test_spot_is_refused_when_no_checkpoint_can_be_restored():
    reason = misfit(spot("0.1"), WORKLOAD, Policy(checkpoints_restorable=False))
    assert reason == "spot, and no checkpoint can be restored: a preemption starts from zero"
    assert misfit(offer(), WORKLOAD, Policy(checkpoints_restorable=False)) is None


def test_eight_gpus_are_never_paid_for_to_use_one_without_saying_so():
    """Someone who asked for one T4 got a g4dn.metal at 7.82 USD an hour."""
    metal = offer("7.824", instance=T4_METAL)
    assert misfit(metal, WORKLOAD, Policy()) == "pays for 8 GPUs and would use 1"
    assert misfit(metal, WORKLOAD, Policy(idle_gpus_allowed=True)) is None
    assert misfit(metal, replace(WORKLOAD, tasks=8), Policy()) is None
    assert misfit(metal, WORKLOAD, Policy(max_gpus_per_task=8)) is None


def test_v100_on_aws_is_rejected_because_no_image_drives_it():
    assert "no current AWS image drives V100" in misfit(offer("3.06", instance=V100), WORKLOAD, Policy())


def test_a_machine_that_is_not_sold_on_demand_is_no_on_demand_offer():
    a3 = InstanceType("gcp", "a3-highgpu-1g", "H100", 1, 80.0, 26, 234.0, 750.0)
    assert misfit(offer("11.0", instance=a3), WORKLOAD, Policy()) == "a3-highgpu-1g is not sold on demand"
    assert misfit(spot("2.0", instance=a3), WORKLOAD, Policy()) is None


def test_too_little_memory_is_named_in_numbers():
    large = replace(WORKLOAD, variant="yolov9-e", image_size=640, batch=16)
    reason = misfit(offer("0.4", instance=A10_SLICE), large, Policy())
    assert reason == "needs 24.5 GiB per GPU for batch 16, has 7.4 of 8"


def test_a_batch_that_does_not_divide_over_the_gpus_is_refused():
    reason = misfit(offer(instance=T4_FOUR), replace(WORKLOAD, batch=30), Policy(max_gpus_per_task=4))
    assert reason == "batch 30 does not divide over 4 GPUs"


def test_memory_need_grows_with_batch_and_area():
    assert needed_gib("yolov9-s", 640, 16) > needed_gib("yolov9-s", 640, 8) > needed_gib("yolov9-s", 320, 8)


def test_the_memory_estimate_covers_what_was_measured():
    """Reserved memory of the reference code on an H200 without a loader; the margin lies above it."""
    for variant, batch, reserved in (("yolov9-s", 64, 25.87), ("yolov9-c", 32, 33.73), ("yolov9-e", 16, 21.12)):
        assert reserved < needed_gib(variant, 640, batch) < 1.35 * reserved


def test_an_automatic_batch_is_the_largest_power_of_two_that_fits():
    workload = replace(WORKLOAD, variant="yolov9-c", image_size=640, batch=None)
    batch = choose_batch(T4_SMALL, workload, Ddp())
    assert batch == 8
    assert needed_gib("yolov9-c", 640, batch) <= usable_gib(T4_SMALL) < needed_gib("yolov9-c", 640, 2 * batch)


def test_an_automatic_batch_stays_within_the_nominal_one_and_leaves_steps_in_an_epoch():
    assert choose_batch(A100, replace(WORKLOAD, batch=None, train_images=100_000), Ddp()) == AUTO_BATCH_MOST
    assert choose_batch(A100, replace(WORKLOAD, batch=None, train_images=200), Ddp()) == 16
    assert choose_batch(A100, replace(WORKLOAD, batch=None, train_images=5), Ddp()) == 1


def test_a_batch_that_was_asked_for_is_used_or_refused_but_never_changed():
    assert choose_batch(T4_SMALL, replace(WORKLOAD, batch=30), Ddp()) == 30
    assert choose_batch(T4_SMALL, replace(WORKLOAD, batch=4096), Ddp()) is None


@pytest.mark.parametrize(
    ("gpus", "tasks", "spread", "layout"),
    [
        (1, 1, 1, Ddp(1)),
        (1, 5, 1, Ddp(1)),
        (8, 1, 1, Ddp(1)),
        (8, 1, 8, Ddp(8)),
        (4, 10, 1, Concurrent(4)),
        (8, 3, 8, Concurrent(3)),
    ],
)
def test_a_layout_uses_as_many_gpus_as_the_trainings_can(gpus, tasks, spread, layout):
    assert layout_for(gpus, tasks, spread) == layout


@pytest.mark.parametrize(
    "change",
    [{"variant": "yolov9"}, {"epochs": 0}, {"batch": 0}, {"train_images": -5}, {"image_size": 0}, {"tasks": 10**16}],
)
def test_absurd_workloads_are_refused(change):
    with pytest.raises(ValueError, match=r"unknown model|must be at least"):
        replace(WORKLOAD, **change)


@pytest.mark.parametrize(
    "bad",
    [
        {"budget_usd": Decimal("-1")},
        {"budget_usd": Decimal("NaN")},
        {"max_hours": 0.0},
        {"max_hours": float("nan")},
        {"confidence": 1.0},
        {"disk_gib": 0},
    ],
)
def test_absurd_policies_are_refused(bad):
    with pytest.raises(ValueError, match="must"):
        Policy(**bad)


def test_an_offer_key_names_place_type_and_market():
    assert offer().key == "aws/us-east-1/*/g4dn.xlarge/on-demand"
    assert spot("0.1", zone="use1-az2").key == "aws/us-east-1/use1-az2/g4dn.xlarge/spot"


def test_a_workload_knows_only_known_variants():
    with pytest.raises(ValueError, match="unknown model 'yolov8-n'; known: yolov9-t"):
        Workload("yolov8-n", 640, 16, 1, 1, 1, 1)
