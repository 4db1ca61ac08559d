"""The status that the launcher reads."""

from __future__ import annotations

import logging

import pytest

from remote.agent.status import Board
from remote.protocol import Phase, Reason


@pytest.fixture
def board(lease):
    one = lease()
    return one, Board(one.job, one.paths, one.clock, pid=77)


def test_every_task_is_in_the_first_status(board) -> None:
    one, made = board
    made.publish()
    assert [task.name for task in one.status().tasks] == ["a"]
    assert one.status().pid == 77


def test_the_phase_only_moves_forward(board) -> None:
    _, made = board
    made.enter(Phase.TRAINING)
    made.enter(Phase.STAGING)
    assert made.status.phase is Phase.TRAINING


def test_each_phase_says_how_long_it_took(board) -> None:
    one, made = board
    one.clock.sleep(2)
    made.enter(Phase.STAGING)
    one.clock.sleep(30)
    made.enter(Phase.ENDED)
    assert made.status.phase_seconds == {"starting": 2, "staging": 30}


def test_the_first_reason_stands_and_messages_add_up(board) -> None:
    _, made = board
    made.end(Reason.PREEMPTED, "one")
    made.end(Reason.DEADLINE, "two")
    made.note("")
    assert (made.status.reason, made.status.message) == (Reason.PREEMPTED, "one; two")


def test_what_is_said_twice_is_there_once(board) -> None:
    _, made = board
    for _ in range(2):
        made.note("one")
    made.warn("one")
    assert made.status.message == "one"


def test_a_warning_is_there_while_it_lasts_behind_what_stays(board) -> None:
    _, made = board
    made.warn("passing")
    made.note("staying")
    assert made.status.message == "staying; passing"
    made.warn("")
    assert made.status.message == "staying"


def test_each_beat_is_newer(board) -> None:
    one, made = board
    made.publish()
    first = one.status().at
    one.clock.sleep(1)
    made.publish()
    assert one.status().at == first + 1


def test_a_status_that_cannot_be_written_is_logged_once(board, monkeypatch, caplog) -> None:
    _, made = board

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with caplog.at_level(logging.WARNING):
        made.publish()
        made.publish()
    assert len(caplog.records) == 1
