"""The live view: what is shown, how often, and what happens when nobody can see it any more."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from decimal import Decimal

import pytest
from launcher_clock import FakeClock
from run_cases import RUN_ID, SAMPLES, later, run_in

from launcher.events import CloudStopArmed, DataStaged, LeaseClosed, LimitsChanged, RunOpened
from launcher.live import QUIET_SECONDS, LiveView, describe
from launcher.report import Beat, Happened, Note
from launcher.run import State
from remote.protocol import AgentStatus, Phase, TaskProgress, TaskState, TaskStatus


def beat(step=33, at=170.0, phase=Phase.TRAINING):
    progress = TaskProgress(step // 10, 10, step, 100, 41.26, loss=1.2, map50=0.4)
    tasks = [TaskStatus("job", TaskState.RUNNING, 1, progress=progress)]
    status = AgentStatus(RUN_ID, f"{RUN_ID}-1", phase, later(at).timestamp(), 1.0, 7, tasks)
    return Beat(run_in(State.TRAINING), status, Decimal("0.0123"))


@pytest.fixture
def view():
    clock = FakeClock()
    out = io.StringIO()
    return LiveView(out, clock), out, clock


@pytest.mark.parametrize("event", SAMPLES.values(), ids=lambda event: type(event).__name__)
def test_every_event_but_a_reopening_has_one_line(event):
    text = describe(event, run_in(State.TRAINING))
    assert "\n" not in text
    assert bool(text) == (type(event).__name__ != "Reopened")


def test_an_event_is_shown_with_its_time(view):
    show, out, _ = view
    show(Happened(SAMPLES[LeaseClosed], run_in(State.STOPPING)))
    assert out.getvalue() == "09:08:20  confirmed gone: 600 s billed, $0.0360\n"


def test_a_lease_without_a_machine_is_said_so():
    event = replace(SAMPLES[LeaseClosed], entry=None)
    assert describe(event, run_in(State.STOPPING)) == "confirmed: no machine of this lease exists"


def test_new_limits_hold_at_once_and_the_stops_of_the_machine_keep_their_time():
    text = describe(SAMPLES[LimitsChanged], run_in(State.TRAINING))
    assert text == (
        "new limits: at most $7.00, off by 2026-12-02 10:00:00 UTC; "
        "they hold at once, the machine's own stops keep their time"
    )


def test_progress_shows_speed_money_and_the_time_that_is_left(view):
    show, out, clock = view
    show(beat(step=20, at=100))
    clock.sleep(QUIET_SECONDS)
    show(beat(step=40, at=140))
    first, second = out.getvalue().splitlines()
    assert first == ("          training  epoch 2/10  41.3 images/s  loss 1.200  mAP50 0.400  $0.0123 of $5.00")
    assert second.endswith("$0.0123 of $5.00  ETA 2 min 00 s")


def test_without_a_terminal_progress_is_a_line_now_and_then(view):
    show, out, clock = view
    for _ in range(60):
        show(beat())
        clock.sleep(1)
    assert len(out.getvalue().splitlines()) == 60 / QUIET_SECONDS


def test_no_time_left_is_promised_before_training_or_after(view):
    show, out, clock = view
    for phase in (Phase.STAGING, Phase.SYNCING):
        show(beat(phase=phase))
        clock.sleep(QUIET_SECONDS)
    assert "ETA" not in out.getvalue()


def test_what_another_machine_does_again_is_told_once(view):
    show, out, clock = view
    show(beat(step=33))
    for step in (21, 25):
        clock.sleep(1)
        again = beat(step=step)
        (task,) = again.status.tasks
        resumed = replace(task, progress=replace(task.progress, resumed_step=20))
        show(replace(again, status=replace(again.status, lease_id=f"{RUN_ID}-2", tasks=[resumed])))
    assert out.getvalue().count("job goes on from step 20: 13 steps are done again") == 1


def test_a_run_is_named_with_the_url_by_which_any_machine_knows_it():
    assert describe(SAMPLES[RunOpened], run_in(State.PLANNED)) == (
        f"run {RUN_ID}; from any machine: gpucost status s3://bucket/runs/{RUN_ID}"
    )
    local = run_in(State.PLANNED, cloud="sandbox")
    assert describe(SAMPLES[RunOpened], local) == f"run {RUN_ID}", "nobody else has this cloud"


def test_the_stops_are_counted_when_the_cloud_answers_and_when_the_agent_trains():
    armed = replace(run_in(State.TRAINING).lease, cloud_stop_asked=True, cloud_stop_at=later(3660))
    run = replace(run_in(State.TRAINING), lease=armed)
    assert describe(SAMPLES[CloudStopArmed], run).startswith("3 of 4 stops armed: launcher, machine timer, cloud")
    assert "4 of 4 stops armed: launcher, agent, machine timer, cloud schedule; off by" in describe(
        SAMPLES[DataStaged], run
    )
    refused = replace(SAMPLES[CloudStopArmed], until=None, message="no such role")
    run = replace(run, lease=replace(armed, cloud_stop_at=None))
    assert "cloud schedule (no such role)" in describe(refused, run)


def test_a_terminal_that_says_it_has_no_columns_is_taken_for_a_narrow_one(monkeypatch):
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((0, 0)))
    out = Terminal()
    LiveView(out, FakeClock())(beat())
    assert len(out.getvalue()) == 80
    assert "epoch 3/10" in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def fileno(self):
        return 2


class ClosedTerminal(io.StringIO):
    """What is left when the window is closed, or the pipe has no reader."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error

    def isatty(self):
        return True

    def fileno(self):
        raise OSError(9, "Bad file descriptor")


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(5, "Input/output error"), ValueError("I/O operation on closed file")]
)
def test_a_terminal_that_is_gone_ends_no_run(error):
    """After SIGHUP the machine still has to be ended, and nobody reads how."""
    show = LiveView(ClosedTerminal(error), FakeClock())
    show(Note("a line"))
    show(beat())
    show(Happened(SAMPLES[LeaseClosed], run_in(State.STOPPING)))
