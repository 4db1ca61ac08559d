"""Time that no change of the machine's clock sets back."""

from __future__ import annotations

import pytest
from agent_ports import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from remote.agent.forward import ForwardClock, not_before
from remote.protocol import AgentStatus, Budget, Phase, PricePoint


@pytest.mark.parametrize(("skew", "told"), [(0, 100), (-5 * 3600, 100), (600, 700)])
def test_the_later_of_wall_clock_and_time_passed_counts(skew: float, told: float) -> None:
    clock = FakeClock()
    forward = ForwardClock(clock)
    clock.sleep(100)
    clock.skew = skew
    assert forward.now() == clock.start + told


def test_an_agent_that_is_started_again_goes_on_from_the_last_beat() -> None:
    clock = FakeClock()
    clock.skew = -3600
    forward = ForwardClock(clock, not_before=clock.start)
    assert forward.now() == clock.start
    clock.sleep(10)
    assert forward.now() == clock.start + 10


@pytest.mark.parametrize(
    ("launched", "beat", "over"), [(0.0, None, 0), (50.0, None, 50), (50.0, 90.5, 90.5), (0.0, 9, 9)]
)
def test_launch_and_last_beat_are_over_whatever_the_clock_says(lease, launched, beat, over) -> None:
    budget = Budget(1, 0, [PricePoint(launched + 60, 1)], 0)  # its prices begin where the minimum charge ends
    last = None if beat is None else AgentStatus("run", "lease", Phase.TRAINING, beat, 1.0, 77)
    assert not_before(lease(budget=budget, launched_at=launched).job, last) == over


def test_waiting_is_that_of_the_machine() -> None:
    clock = FakeClock()
    forward = ForwardClock(clock)
    forward.sleep(5)
    assert forward.monotonic() == clock.start + 5


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(-1e6, 1e6)), max_size=8))
def test_no_series_of_changes_makes_it_fall_behind_what_has_passed(steps: list[tuple[float, float]]) -> None:
    clock = FakeClock()
    forward = ForwardClock(clock)
    for seconds, skew in steps:
        clock.sleep(seconds)
        clock.skew = skew
        assert forward.now() >= clock.time - 1e-6
