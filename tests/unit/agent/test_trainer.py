"""One training: configuration, stalls, restarts, exit codes."""

from __future__ import annotations

import pytest

from remote.agent.trainer import DUMP_SECONDS, Trainer, TrainerSettings, last_line, worker_exit_code
from remote.protocol import TaskSpec, TaskState

SETTINGS = TrainerSettings(["py"], "/data", stall_floor_seconds=60, shutdown_seconds=90)

REPORT = """
============================================================
remote.yolov9.train FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_10:00:00
  host      : h
  rank      : 0 (local_rank: 0)
  exitcode  : {code} (pid: 1234)
  error_file: <N/A>
"""


@pytest.fixture
def trainer(lease):
    """A maker of started trainers, and their lease."""

    def make(*plans, world_size: int = 1):
        one = lease()
        one.programs.plans["task/a"] = [plan(one) for plan in plans]
        task = TaskSpec("a", {"epochs": 9}, world_size)
        made = Trainer(task, one.paths.task("a"), SETTINGS, one.programs, one.clock)
        made.start(0, {})
        return one, made

    return make


def look_for(one, made, seconds: float) -> None:
    for _ in range(int(seconds)):
        one.clock.sleep(1)
        made.look()


def standing_still(one):
    return one.training(None, steps_per_second=0)


def test_a_training_that_stands_still_is_dumped_killed_and_restarted_once(trainer) -> None:
    one, made = trainer(standing_still, standing_still)
    look_for(one, made, 62)
    assert one.programs.started[0].signals == ["USR1"]
    look_for(one, made, DUMP_SECONDS + 2)
    assert one.programs.started[0].signals == ["USR1", "KILL"]
    assert (made.state, made.status().attempts) == (TaskState.RUNNING, 2)
    look_for(one, made, 70)
    assert (made.state, made.stalled) == (TaskState.FAILED, True)
    assert made.status().message == "no step came, 2 times"


def test_ranks_that_hang_in_the_first_step_after_a_resume_are_restarted_once_and_then_given_up(trainer) -> None:
    """P13, D01: after the floor, not after the half hour of a collective's own time-out."""

    def hanging(one):
        return one.training(None, steps_per_second=0, resumed_step=500)

    one, made = trainer(hanging, hanging, world_size=2)
    look_for(one, made, SETTINGS.stall_floor_seconds + DUMP_SECONDS + 3)
    assert one.programs.started[0].signals == ["USR1", "KILL"]
    assert (made.state, made.status().attempts) == (TaskState.RUNNING, 2)
    look_for(one, made, SETTINGS.stall_floor_seconds + DUMP_SECONDS + 3)
    assert (made.state, made.stalled, made.status().attempts) == (TaskState.FAILED, True, 2)


def test_a_training_that_recovers_after_a_stall_is_done(trainer) -> None:
    one, made = trainer(standing_still, lambda one: one.training(30))
    look_for(one, made, 110)
    status = made.status()
    assert (status.state, status.attempts, status.exit_code, status.message) == (TaskState.DONE, 2, 0, "")


def test_a_stop_is_asked_for_once_and_ends_stall_watching(trainer) -> None:
    def deaf(one):
        def plan(child) -> None:
            standing_still(one)(child)
            child.save_seconds = None

        return plan

    one, made = trainer(deaf)
    made.ask_to_stop()
    made.ask_to_stop()
    look_for(one, made, 100)
    assert one.programs.started[0].signals == ["TERM"]
    made.kill("too slow")
    made.look()
    assert (made.state, made.status().message) == (TaskState.INTERRUPTED, "too slow")


def test_a_restart_counts_its_own_steps(trainer) -> None:
    one, made = trainer(lambda one: one.training(10, code=1), lambda one: one.training(0, code=1, steps_per_second=0))
    look_for(one, made, 15)
    assert made.status().message == "exit code 1 before its first step"
    assert made.status().attempts == 2


def test_the_reason_of_a_failure_is_the_last_line_of_its_log(trainer) -> None:
    one, made = trainer(lambda one: one.training(3, code=1, steps_per_second=0))
    one.paths.task("a").log.write_text("epoch 1\nCUDA out of memory: 14 GiB\n\n")
    look_for(one, made, 5)
    assert made.status().message == "exit code 1 before its first step; CUDA out of memory: 14 GiB"


def test_what_a_trainer_leaves_running_is_ended_with_it(trainer) -> None:
    one, made = trainer(lambda one: one.training(3))
    look_for(one, made, 5)
    assert (made.state, made.status().exit_code) == (TaskState.DONE, 0)
    assert one.programs.started[0].swept


def test_a_trainer_that_cannot_be_started_has_failed(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = []
    made = Trainer(TaskSpec("a", {}), one.paths.task("a"), SETTINGS, one.programs, one.clock)
    made.start(0, {})
    assert made.state is TaskState.FAILED
    assert made.status().message.startswith("cannot be started: [Errno 2]")


def test_progress_that_cannot_be_read_is_no_progress(trainer) -> None:
    def garbage(one):
        def plan(child) -> None:
            child.on_poll = lambda _now: one.paths.task("a").progress.write_text("{")

        return plan

    one, made = trainer(garbage)
    look_for(one, made, 3)
    assert made.status().progress is None
    assert made.state is TaskState.RUNNING


def test_the_code_of_a_rank_is_read_behind_torchrun(trainer) -> None:
    one, made = trainer(lambda one: one.training(3, code=1), world_size=2)
    one.paths.task("a").log.write_text(REPORT.format(code=2))
    look_for(one, made, 5)
    assert (made.status().exit_code, made.status().attempts) == (2, 1)


@pytest.mark.parametrize(
    ("tail", "code", "expected"),
    [(REPORT.format(code=-9), 1, -9), ("no report", 1, 1), (REPORT.format(code=2), 0, 0)],
)
def test_torchrun_codes(tail: str, code: int, expected: int) -> None:
    assert worker_exit_code(tail, code) == expected


def test_a_last_line_is_short_and_says_something() -> None:
    assert last_line("") == ""
    assert last_line("a\n  b  \n\n") == "b"
    assert len(last_line("x" * 1000)) == 300
