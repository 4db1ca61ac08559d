"""The restart model."""

import math
from dataclasses import replace

import pytest

from pricing.risk import (
    BUCKETS,
    PRIOR_HAZARD,
    ZERO_HAZARD,
    Hazard,
    bucket_hazard,
    expected_seconds,
    expected_seconds_from_zero,
    normal_quantile,
)
from tests.fakes.pricing_cases import offer, spot

HOUR = 3600


def test_without_preemptions_nothing_is_lost():
    assert expected_seconds(12345.678, 0.0, interval_seconds=600, restart_seconds=300) == 12345.678
    assert expected_seconds_from_zero(12345.678, 0.0) == 12345.678


def test_a_preemption_costs_half_an_interval_and_a_restart():
    """At 0.1 an hour and 0.5 + 0.1 h each, 6 % of the paid time is lost."""
    total = expected_seconds(10 * HOUR, 0.1, interval_seconds=HOUR, restart_seconds=0.1 * HOUR)
    assert total == pytest.approx(10 * HOUR / (1 - 0.06))


def test_a_hazard_beyond_the_checkpoint_interval_never_ends():
    assert math.isinf(expected_seconds(100 * HOUR, 0.5, interval_seconds=4 * HOUR, restart_seconds=600))


def test_a_short_run_loses_no_more_than_itself():
    total = expected_seconds(60, 1.0, interval_seconds=1e9, restart_seconds=0)
    assert total == pytest.approx(60 / (1 - 30 / 3600))


def test_spot_without_checkpoints_can_take_a_hundred_times_as_long_as_on_demand():
    """A user measured, at 0.15 interruptions an hour: spot without a checkpoint 3,198 h, on-demand 48.5 h, spot with
    one 17.9 h. The machines differ, so only the order can be compared: the model gives thousands of hours without a
    checkpoint and a few per cent over the uninterrupted time with one.
    """
    assert expected_seconds_from_zero(48.5 * HOUR, 0.15) > 3198 * HOUR
    with_checkpoints = expected_seconds(48.5 * HOUR, 0.15, interval_seconds=HOUR / 2, restart_seconds=600)
    assert 48.5 * HOUR < with_checkpoints < 1.1 * 48.5 * HOUR


def test_an_endless_restart_is_infinite_and_no_error():
    assert math.isinf(expected_seconds_from_zero(1e9 * HOUR, 1.0))


def test_hazards_of_the_buckets_grow_and_keep_their_order():
    hazards = [bucket_hazard(*shares, "test") for shares in BUCKETS.values()]
    assert [hazard.per_hour for hazard in hazards] == sorted(hazard.per_hour for hazard in hazards)
    assert all(hazard.low_per_hour <= hazard.per_hour <= hazard.high_per_hour for hazard in hazards)
    assert PRIOR_HAZARD.low_per_hour == 0
    assert max(hazard.high_per_hour for hazard in hazards) == pytest.approx(PRIOR_HAZARD.high_per_hour)


def test_spot_of_which_nothing_is_known_is_never_taken_as_safe():
    assert replace(spot("0.1"), hazard=None).risk is PRIOR_HAZARD
    assert replace(offer("0.5"), hazard=Hazard(1, 1, 1)).risk is ZERO_HAZARD


def test_the_worst_bucket_reaches_the_worst_public_trace():
    assert bucket_hazard(*BUCKETS[">20%"], "test").high_per_hour == pytest.approx(0.57, rel=0.05)


@pytest.mark.parametrize("rates", [(-0.1, 0, 0), (0.2, 0.1, 0.3), (0, 0.1, math.inf), (0, math.nan, 1)])
def test_a_hazard_out_of_order_is_refused(rates):
    with pytest.raises(ValueError, match="hazard"):
        Hazard(*rates)


@pytest.mark.parametrize(("probability", "deviate"), [(0.5, 0.0), (0.9, 1.2815515655), (0.95, 1.6448536270)])
def test_normal_quantiles_are_the_tabulated_ones(probability, deviate):
    assert normal_quantile(probability) == pytest.approx(deviate, abs=1e-9)
