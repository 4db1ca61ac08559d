"""Whether a training is started again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.agent.retry import Attempt, decide

BAD_INPUT, OTHER, KILLED = 2, 1, -9


@pytest.mark.parametrize(
    ("attempts", "again", "why"),
    [
        ([Attempt(KILLED, 40)], True, "killed by signal 9 after 40 steps, restarted"),
        ([Attempt(OTHER, 40)], True, "exit code 1 after 40 steps, restarted"),
        ([Attempt(75, 40)], True, "exit code 75 after 40 steps, restarted"),
        ([Attempt(KILLED, 0)], False, "killed by signal 9 before its first step"),
        ([Attempt(OTHER, 0)], False, "exit code 1 before its first step"),
        ([Attempt(BAD_INPUT, 40)], False, "the configuration or the data set is unusable"),
        ([Attempt(OTHER, 40), Attempt(OTHER, 40)], False, "exit code 1, 2 times"),
        ([Attempt(OTHER, 40), Attempt(OTHER, 0)], False, "exit code 1 before its first step"),
        ([Attempt(KILLED, 40, stalled=True)], True, "no step came, restarted"),
        ([Attempt(KILLED, 0, stalled=True)], True, "no step came, restarted"),
        ([Attempt(KILLED, 9, stalled=True), Attempt(KILLED, 9, stalled=True)], False, "no step came, 2 times"),
        ([Attempt(KILLED, 9, stalled=True), Attempt(OTHER, 9)], True, "exit code 1 after 9 steps, restarted"),
        ([Attempt(OTHER, 9), Attempt(KILLED, 9, stalled=True)], True, "no step came, restarted"),
    ],
)
def test_the_history_decides(attempts: list[Attempt], again: bool, why: str) -> None:
    verdict = decide(attempts)
    assert (verdict.again, verdict.why) == (again, why)


@given(st.lists(st.builds(Attempt, st.integers(-15, 120), st.integers(0, 9), st.booleans()), min_size=3, max_size=6))
def test_no_history_gives_more_than_three_starts(attempts: list[Attempt]) -> None:
    starts = 1
    for count in range(1, len(attempts) + 1):
        if not decide(attempts[:count]).again:
            break
        starts += 1
    assert starts <= 3
