"""`post` as the agent sees it: kept alive, never waited for but at the end."""

from __future__ import annotations

import pytest

from remote.agent.transfers import LONGEST_PAUSE_SECONDS, RESTART_SECONDS, PostProgram, Transfers


@pytest.fixture
def post(lease):
    """A maker of post programs whose child follows the plans."""

    def make(*plans):
        one = lease()
        one.programs.plans["transfer/post"] = list(plans)
        return one, PostProgram(Transfers(one.job, one.paths, one.programs), one.clock)

    return make


def keep_for(one, made, seconds: int) -> int:
    """Starts within so many beats."""
    before = len(one.programs.started)
    for _ in range(seconds):
        made.keep()
        one.clock.sleep(1)
    return len(one.programs.started) - before


def test_it_is_started_once_and_left_alone(post) -> None:
    one, made = post(lambda child: None)
    assert keep_for(one, made, 100) == 1
    assert one.programs.argvs == [["py", "-m", "remote.transfer", "post", str(one.paths.root)]]


def test_one_that_keeps_dying_is_started_after_longer_and_longer_pauses(post) -> None:
    one, made = post(lambda child: child.ends_in(1, 1))
    starts = [keep_for(one, made, 600) for _ in range(5)]
    assert starts[0] == 7, "after 5, 10, 20, 40, 80, 160 s"
    assert max(starts[1:]) <= 2, f"then every {LONGEST_PAUSE_SECONDS:.0f} s"


def test_one_that_lived_long_is_started_again_soon(post) -> None:
    long = LONGEST_PAUSE_SECONDS + 1
    one, made = post(
        *[lambda child: child.ends_in(1, 1)] * 4, lambda child: child.ends_in(long, -9), lambda child: None
    )
    keep_for(one, made, 5 + 10 + 20 + 40 + 8)
    assert len(one.programs.started) == 5
    assert keep_for(one, made, int(long + RESTART_SECONDS + 1)) == 1


def test_one_that_cannot_be_started_stops_nothing(post) -> None:
    one, made = post()
    assert keep_for(one, made, 100) == 0
    made.finish(one.clock.time + 10)
    assert len(one.programs.argvs) < 8


def test_the_last_status_is_waited_for_and_then_the_program_is_ended(post) -> None:
    one, made = post(lambda child: child.ends_in(50))
    made.keep()
    began = one.clock.time
    made.finish(began + 10)
    assert one.clock.time - began == pytest.approx(10, abs=0.5)
    assert one.programs.started[0].signals == ["KILL"]


def test_one_that_is_done_is_not_waited_for(post) -> None:
    one, made = post(lambda child: child.ends_in(2))
    made.keep()
    began = one.clock.time
    made.finish(began + 10)
    assert one.clock.time - began == pytest.approx(2, abs=0.5)
