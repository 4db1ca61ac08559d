"""When things must be over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.agent import deadline


def test_saving_takes_at_most_half_of_what_is_left_and_never_more_than_the_reserve() -> None:
    assert deadline.save_seconds(now=0, gone_at=120, reserve=90) == 60
    assert deadline.save_seconds(now=0, gone_at=10_000, reserve=90) == 90
    assert deadline.save_seconds(now=10, gone_at=5, reserve=90) == 0


@given(st.floats(0, 1e5), st.floats(-100, 1e5), st.floats(0, 1000))
def test_save_upload_and_outcome_follow_each_other_before_the_end(now: float, left: float, reserve: float) -> None:
    gone_at = now + left
    saved = now + deadline.save_seconds(now, gone_at, reserve)
    assert now <= saved <= max(now, gone_at)
    assert saved <= gone_at - deadline.outcome_seconds(saved, gone_at) or left <= 0


@pytest.mark.parametrize(("age", "there"), [(0, True), (179, True), (180, False), (1000, False)])
def test_a_launcher_counts_as_there_for_the_linger_time(age: float, there: bool) -> None:
    assert deadline.launcher_watches(now=1000, seen_at=1000 - age, linger=180) is there
