"""Seeing that a training stands still."""

from __future__ import annotations

from remote.agent.stall import StallWatch


def test_a_training_that_never_makes_a_step_stalls_after_the_floor() -> None:
    watch = StallWatch(600, now=0)
    watch.see(40, 30, now=30)
    assert not watch.stalled(630)
    assert watch.stalled(631)


def test_a_resumed_training_is_given_the_same_time_for_its_first_step() -> None:
    """P13: what it tells of its beginning is no step, however high."""
    watch = StallWatch(600, now=0)
    watch.see(5000, told_at=30, now=30)
    for second in range(31, 632):
        watch.see(5000, told_at=30, now=second)
        assert watch.stalled(second) is (second > 630)
    assert watch.steps == 0


def test_steps_keep_it_alive() -> None:
    watch = StallWatch(10, now=0)
    for second in range(1, 100):
        watch.see(second, second, now=second)
        assert not watch.stalled(second)


def test_slow_steps_raise_the_limit_to_twenty_medians() -> None:
    watch = StallWatch(600, now=0)
    for step in range(6):
        watch.see(step, step, now=60.0 * step)
    assert watch.limit() == 1200
    assert not watch.stalled(300 + 1200)
    assert watch.stalled(300 + 1201)


def test_several_steps_between_two_looks_share_the_time() -> None:
    watch = StallWatch(1, now=0)
    watch.see(0, 0, now=0)
    watch.see(10, 5, now=5)
    assert watch.limit() == 10


def test_one_long_pause_does_not_move_the_median() -> None:
    watch = StallWatch(1, now=0)
    times = [0, 1, 2, 3, 500, 501, 502]
    for step, now in enumerate(times):
        watch.see(step, now, now)
    assert watch.limit() == 20


def test_steps_are_counted_from_the_first_one_seen() -> None:
    watch = StallWatch(600, now=0)
    assert watch.steps == 0
    watch.see(100, 1, now=1)
    assert watch.steps == 0
    watch.see(130, 2, now=2)
    assert watch.steps == 30


def test_a_long_validation_is_no_stall_and_a_hanging_one_is() -> None:
    watch = StallWatch(60, now=0)
    for second in range(0, 300, 30):
        watch.see(40, told_at=second, now=second)
        assert not watch.stalled(second)
    watch.see(40, told_at=270, now=330)
    assert watch.stalled(331)


def test_a_validation_does_not_count_into_the_step_time() -> None:
    watch = StallWatch(1, now=0)
    for step, told_at in enumerate([0, 1, 2]):
        watch.see(step, told_at, now=told_at)
    watch.see(2, told_at=50, now=50)
    watch.see(3, told_at=51, now=51)
    assert watch.limit() == 20
