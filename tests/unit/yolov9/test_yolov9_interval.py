import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.yolov9 import interval
from remote.yolov9.interval import CEILING_SECONDS, FLOOR_SECONDS, PRIOR_STALL_SECONDS, Pace, choose, optimum

HOUR = 3600.0
stalls = st.floats(1e-4, 1e4)
hazards = st.floats(0, 1e3)


def test_the_optimum_is_dalys_and_youngs_where_the_stall_is_short():
    """Against values worked out by hand from the published series."""
    assert optimum(60, 6 * HOUR) == pytest.approx(1610.0 * (1 + 0.037268 / 3 + 0.0013889 / 9) - 60, rel=1e-3)
    assert optimum(0.1, 10 * HOUR) == pytest.approx(math.sqrt(2 * 0.1 * 10 * HOUR), rel=2e-3)
    assert optimum(100, 50) == 50
    assert optimum(0, HOUR) == 0


@given(stalls, stalls, st.floats(1, 1e7))
def test_a_longer_stall_never_brings_checkpoints_closer(a, b, mean):
    assert optimum(min(a, b), mean) <= optimum(max(a, b), mean) * (1 + 1e-9)


@given(stalls, st.floats(1, 1e7), st.floats(1, 1e7))
def test_rarer_preemptions_never_bring_checkpoints_closer(stall, a, b):
    """Where the series holds: a stall of less than twice the mean time between preemptions."""
    low, high = sorted((a, b))
    if stall < 2 * low:
        assert optimum(stall, low) <= optimum(stall, high) * (1 + 1e-9)


@given(st.floats(1e-3, 50), st.floats(100, 1e6))
def test_no_other_interval_loses_less(stall, mean):
    """Daly's model of the whole time: work, saves, and repeated work after exponential failures."""

    def waste(work: float) -> float:
        return math.expm1((work + stall) / mean) / work

    best = optimum(stall, mean)
    assert all(waste(best) <= waste(best * factor) for factor in (0.5, 0.8, 1.25, 2))


@given(stalls, hazards)
def test_what_is_chosen_is_within_floor_and_ceiling(stall, hazard):
    assert FLOOR_SECONDS <= choose(stall, hazard) <= CEILING_SECONDS


def test_without_a_known_hazard_it_is_the_ceiling_and_under_the_worst_one_the_floor():
    assert choose(1.0, 0.0) == CEILING_SECONDS
    assert choose(1.0, 5e-324) == CEILING_SECONDS
    assert choose(0.01, 1000.0) == FLOOR_SECONDS


@given(stalls, hazards, st.floats(0, 1e5))
def test_the_users_value_wins(stall, hazard, wanted):
    assert choose(stall, hazard, wanted) == wanted


def test_a_pace_is_due_after_its_interval_and_again_after_the_next():
    pace = Pace(10.0, 0.0, now=100.0)
    assert not pace.due(109.9)
    assert pace.due(110.0)
    pace.saved(112.0, 1.0)
    assert not pace.due(121.9)
    assert pace.due(122.0)


def test_one_that_is_hurried_is_due_until_it_is_saved():
    pace = Pace(None, 0.0, now=0.0)
    pace.hurry()
    assert pace.due(0.0)
    assert pace.due(1.0)
    pace.saved(1.0, 0.1)
    assert not pace.due(2.0)


def test_a_pace_starts_with_the_prior_and_follows_what_is_measured():
    pace = Pace(None, 0.5, now=0.0)
    assert pace.seconds == choose(PRIOR_STALL_SECONDS, 0.5)
    pace.saved(1.0, 20.0)  # the first one gets the memory
    assert pace.seconds == choose(PRIOR_STALL_SECONDS, 0.5)
    pace.saved(2.0, 2.0)
    assert pace.seconds == choose(2.0, 0.5)
    for _ in range(interval.REMEMBERED):
        pace.saved(3.0, 0.5)
    assert pace.seconds == choose(0.5, 0.5)


def test_one_save_in_a_busy_moment_changes_nothing():
    pace = Pace(None, 0.5, now=0.0)
    for stall in (9.0, 1.0, 1.0, 30.0):
        pace.saved(1.0, stall)
    assert pace.seconds == choose(1.0, 0.5)
