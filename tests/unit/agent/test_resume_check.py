"""Whether a training goes on where its checkpoint was."""

from __future__ import annotations

import pytest

from remote.agent.resume import ResumeCheck
from remote.protocol import TaskProgress, TaskState, TaskStatus


def status(resumed: int | None, saved: int | None = 0, task: str = "a") -> TaskStatus:
    progress = TaskProgress(0, 9, 70, 900, 1.0, resumed_step=resumed, saved_step=saved)
    return TaskStatus(task, TaskState.RUNNING, 1, progress=progress)


@pytest.mark.parametrize(
    ("resumed", "saved", "said"),
    [
        (60, 60, None),
        (61, 61, None),
        (40, 40, "training of a began at step 40 although a checkpoint of step 60 was restored"),
        (None, 0, "training of a began at step 0 although a checkpoint of step 60 was restored"),
        (None, None, "training of a began at step 0 although a checkpoint of step 60 was restored"),
        (58, None, None),
    ],
    ids=["there", "later", "earlier", "zero", "zero, untold", "earlier, untold: the stored step may be some too high"],
)
def test_the_beginning_is_held_against_what_was_restored(resumed, saved, said) -> None:
    assert ResumeCheck({"a": 60}).look(status(resumed, saved)) == said


def test_a_training_that_nothing_was_restored_for_may_begin_anywhere() -> None:
    check = ResumeCheck({"a": 60})
    assert check.look(status(None, task="b")) is None


def test_before_the_first_progress_nothing_is_said() -> None:
    check = ResumeCheck({"a": 60})
    assert check.look(TaskStatus("a")) is None
    assert check.look(status(None)) is not None


def test_a_disagreement_is_said_once() -> None:
    check = ResumeCheck({"a": 60})
    assert check.look(status(None)) is not None
    assert check.look(status(None)) is None


def test_a_later_attempt_that_begins_earlier_is_seen_too() -> None:
    check = ResumeCheck({"a": 60})
    assert check.look(status(60)) is None
    assert check.look(status(None)) is not None
