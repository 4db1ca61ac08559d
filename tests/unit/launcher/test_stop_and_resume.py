"""`stop` and `resume` beside other processes of the same run: whoever comes second adds nothing that cannot follow."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
from launcher_clock import FakeClock
from run_cases import RUN_ID, SAMPLES, STRAIGHT, opened

from launcher import app
from launcher.context import Context
from launcher.errors import BadInput
from launcher.events import Cancelled, LeaseClosed, Outcome, Settled
from launcher.home import Home, RunFolder
from launcher.interrupts import STOPPED
from launcher.journal import Journal
from launcher.run import State

NOWHERE = replace(opened(), cloud="nowhere", results_dir="/")
"""A run whose cloud cannot be connected to, so that nothing is driven here."""
TRAINING = (NOWHERE, *STRAIGHT[1:5])
ENDED = (SAMPLES[Cancelled], SAMPLES[LeaseClosed], replace(SAMPLES[Settled], outcome=Outcome.CANCELLED))


class OvertakenJournal(Journal):
    """Another process appends its events just before this one gets the lock."""

    events_of_the_other = ()

    def writing(self):
        for event in self.events_of_the_other:
            self.append(event)
        type(self).events_of_the_other = ()
        return super().writing()


@dataclass(frozen=True)
class OvertakenFolder(RunFolder):
    @property
    def journal(self):
        return OvertakenJournal(self.root / "journal.jsonl")


@dataclass(frozen=True)
class OvertakenHome(Home):
    def run(self, run_id):
        return OvertakenFolder(self.runs / run_id)


@pytest.fixture
def context(tmp_path):
    return Context(OvertakenHome(tmp_path), FakeClock(), lambda _update: None, tmp_path)


@pytest.fixture
def journal(context):
    made = context.home.run(RUN_ID).journal
    for event in TRAINING:
        made.append(event)
    return made


def test_a_stop_that_finds_the_run_stopped_by_another_process_adds_nothing(context, journal):
    OvertakenJournal.events_of_the_other = ENDED
    run = app.stop(RUN_ID, context)
    assert (run.state, run.outcome) == (State.SETTLED, Outcome.CANCELLED)
    assert tuple(journal.events()) == TRAINING + ENDED


def test_a_stop_that_finds_the_run_being_stopped_leaves_the_first_word(context, journal):
    OvertakenJournal.events_of_the_other = ENDED[:1]
    with pytest.raises(BadInput, match="nowhere"):
        app.stop(RUN_ID, context)
    assert tuple(journal.events()) == TRAINING + ENDED[:1]


def test_a_stop_of_a_settled_run_is_no_fault(context, journal):
    for event in ENDED:
        journal.append(event)
    assert app.stop(RUN_ID, context).outcome is Outcome.CANCELLED


def test_a_run_that_nobody_drives_is_cancelled_from_here(context, journal):
    with pytest.raises(BadInput, match="nowhere"):
        app.stop(RUN_ID, context)
    assert isinstance(journal.events()[-1], Cancelled)


LAUNCHER = """
import sys
from pathlib import Path
from launcher.journal import Journal
with Journal(Path(sys.argv[1])).writing():
    print("driving", flush=True)
    try:
        sys.stdin.read()
    except KeyboardInterrupt:
        pass
"""


def test_a_launcher_that_dies_of_the_stop_does_not_turn_it_into_a_resume(context, journal):
    argv = [sys.executable, "-c", LAUNCHER, str(journal.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout.readline() == "driving\n"
        context = replace(context, clock=WaitingClock(launcher))
        with pytest.raises(BadInput, match="nowhere"):
            app.stop(RUN_ID, context)
    assert isinstance(journal.events()[-1], Cancelled)


ASKED_LAUNCHER = """
import sys
from pathlib import Path
from launcher.interrupts import Interrupted, Interrupts
from launcher.journal import Journal
interrupts = Interrupts()
with Journal(Path(sys.argv[1])).writing(), interrupts.installed():
    try:
        with interrupts.raising():
            print("driving", flush=True)
            sys.stdin.read()
    except Interrupted as how:
        print(how, flush=True)
"""


def test_the_launcher_that_drives_a_run_is_told_that_it_was_gpucost_stop(context, journal):
    argv = [sys.executable, "-c", ASKED_LAUNCHER, str(journal.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout.readline() == "driving\n"
        with pytest.raises(BadInput, match="nowhere"):
            app.stop(RUN_ID, replace(context, clock=WaitingClock(launcher)))
        assert launcher.stdout.readline() == f"{STOPPED}\n"


def test_a_stop_tells_what_the_launcher_does_meanwhile(context, journal):
    told = []
    argv = [sys.executable, "-c", ENDING_LAUNCHER, str(journal.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout.readline() == "driving\n"
        context = replace(context, clock=WaitingClock(launcher), report=told.append)
        with pytest.raises(BadInput, match="nowhere"):
            app.stop(RUN_ID, context)
    assert f"(process {launcher.pid}) is asked" in told[0].text
    assert isinstance(told[1].event, Cancelled)


ENDING_LAUNCHER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from launcher.events import Cancelled
from launcher.interrupts import Interrupted, Interrupts
from launcher.journal import Journal
interrupts, journal = Interrupts(), Journal(Path(sys.argv[1]))
with journal.writing(), interrupts.installed():
    try:
        with interrupts.raising():
            print("driving", flush=True)
            sys.stdin.read()
    except Interrupted as how:
        journal.append(Cancelled(at=datetime.now(UTC), message=str(how)))
"""


class WaitingClock(FakeClock):
    """Waits for a real process instead of for time."""

    def __init__(self, process):
        super().__init__()
        self._process = process

    def sleep(self, seconds):
        self._process.wait(20)
        super().sleep(seconds)


def test_a_run_that_is_done_is_not_opened_again(context, journal):
    for event in (*STRAIGHT[5:],):
        journal.append(event)
    with pytest.raises(BadInput, match="is done"):
        app.resume(RUN_ID, context, app.Limits())
