"""`attach` and `wait`: a run that another process drives is watched to its end and told once."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from launcher_clock import FakeClock
from run_cases import RUN_ID, SAMPLES, STRAIGHT, later, opened, run_in

from launcher import app, asking, following
from launcher.claim import HeldElsewhere
from launcher.cli.outcome import finish
from launcher.context import Context
from launcher.errors import BadInput, Undriven, Unreadable
from launcher.events import CheckpointSynced, InstanceCreated, Outcome, Settled
from launcher.history import load_run
from launcher.home import Home
from launcher.mirror import Fenced, Holder
from launcher.report import Beat, Happened, Note
from launcher.run import State
from remote.protocol import AgentStatus, Phase

NOWHERE = replace(opened(), cloud="nowhere", storage_url="nowhere://bucket", results_dir="/")
BEGINNING, REST = (NOWHERE, *STRAIGHT[1:5]), STRAIGHT[5:]


class Watching:
    """A home with a run in training, and a clock on which its launcher goes on."""

    def __init__(self, folder):
        self.clock = FakeClock()
        self.updates = []
        self.context = Context(Home(folder), self.clock, self.updates.append, folder)
        self.folder = self.context.home.run(RUN_ID)
        for event in BEGINNING:
            self.folder.journal.append(event)

    def goes_on(self, events, every=10):
        for number, event in enumerate(events, 1):
            self.clock.at(number * every, lambda event=event: self.folder.journal.append(event))

    def told(self):
        return [update.event for update in self.updates if isinstance(update, Happened)]


@pytest.fixture
def watching(tmp_path):
    return Watching(tmp_path)


@pytest.mark.parametrize("watch", [following.attach, following.wait], ids=["attach", "wait"])
def test_a_run_whose_folder_goes_while_it_is_watched_ends_the_watching_with_a_word(watching, watch):
    watching.clock.at(10, lambda: shutil.rmtree(watching.folder.root))
    with watching.folder.journal.writing(), pytest.raises(Unreadable, match="are gone from"):
        watch(RUN_ID, watching.context)


@pytest.mark.parametrize("watch", [following.attach, following.wait], ids=["attach", "wait"])
def test_records_that_cannot_follow_each_other_end_the_watching_with_their_line(watching, watch):
    watching.goes_on([SAMPLES[InstanceCreated]])
    with watching.folder.journal.writing(), pytest.raises(Unreadable, match=r"journal\.jsonl line 6: InstanceCreated"):
        watch(RUN_ID, watching.context)


@pytest.mark.parametrize("watch", [following.attach, following.wait], ids=["attach", "wait"])
def test_a_run_that_another_process_drives_is_told_once_and_to_its_end(watching, watch):
    watching.goes_on([SAMPLES[CheckpointSynced], *REST])
    with watching.folder.journal.writing():
        run = watch(RUN_ID, watching.context)
    assert (run.state, run.outcome) == (State.SETTLED, Outcome.DONE)
    assert watching.told() == [SAMPLES[CheckpointSynced], *REST], "what was there before is not told again"


def test_a_settled_run_is_answered_at_once(watching):
    for event in REST:
        watching.folder.journal.append(event)
    assert following.wait(RUN_ID, watching.context).outcome is Outcome.DONE
    assert watching.clock.elapsed == 0


def test_the_agents_status_is_shown_while_it_is_new_and_of_the_open_lease(watching):
    status = AgentStatus(RUN_ID, f"{RUN_ID}-1", Phase.TRAINING, later(1).timestamp(), 1.0, 7)
    watching.folder.keep_status(status)
    watching.goes_on(REST)
    watching.clock.at(3, lambda: watching.folder.keep_status(replace(status, at=later(3).timestamp())))
    watching.clock.at(5, lambda: watching.folder.keep_status(replace(status, lease_id="another", at=9.0)))
    with watching.folder.journal.writing():
        following.attach(RUN_ID, watching.context)
    beats = [update.status.at for update in watching.updates if isinstance(update, Beat)]
    assert beats == [later(1).timestamp(), later(3).timestamp()]


def test_who_waits_for_a_run_that_nobody_drives_drives_it(watching):
    with pytest.raises(BadInput, match="nowhere"):
        following.wait(RUN_ID, watching.context)


def word_with(watching, phase, *, holder=None, overtaken=False):
    """What the storage says of the run."""

    def ask(run_id, context):
        run = load_run(run_id, context)
        status = AgentStatus(run_id, f"{run_id}-1", phase, later(1).timestamp(), 1.0, 7)
        return asking.Word(run, status, holder, overtaken, "here")

    return ask


def test_who_watches_a_run_that_nobody_drives_is_sent_away_once_its_agent_has_ended(watching, monkeypatch):
    monkeypatch.setattr(asking, "ask", word_with(watching, Phase.TRAINING))
    watching.clock.at(100, lambda: monkeypatch.setattr(asking, "ask", word_with(watching, Phase.ENDED)))
    with pytest.raises(Undriven, match="its agent has ended") as caught:
        following.attach(RUN_ID, watching.context)
    assert watching.clock.elapsed >= 100
    assert f"gpucost resume {RUN_ID}" in caught.value.hint
    assert caught.value.exit_code == 9


def test_who_watches_a_run_that_a_launcher_elsewhere_drives_stays(watching, monkeypatch):
    there = Holder("elsewhere/1", "there", 5.0, ended=False)
    monkeypatch.setattr(asking, "ask", word_with(watching, Phase.ENDED, holder=there))
    watching.goes_on(REST, every=40)
    assert following.attach(RUN_ID, watching.context).outcome is Outcome.DONE


def test_who_watches_a_machine_whose_time_is_over_is_sent_away_though_the_storage_is_silent(watching):
    watching.clock.sleep(3590)
    with pytest.raises(Undriven, match="its machine's time is over"):
        following.attach(RUN_ID, watching.context)


def test_who_watches_a_copy_that_is_out_of_date_is_told_where_to_look(watching, monkeypatch):
    monkeypatch.setattr(asking, "ask", word_with(watching, Phase.TRAINING, overtaken=True))
    with pytest.raises(Fenced, match="out of date") as caught:
        following.attach(RUN_ID, watching.context)
    assert f"nowhere://bucket/{RUN_ID}" in caught.value.hint


@pytest.mark.parametrize(("driver", "code"), [("elsewhere/1", 10), ("here/1", 130)])
def test_a_run_that_somebody_else_stopped_is_told_from_one_that_was_interrupted_here(driver, code):
    run = replace(run_in(State.SETTLED), outcome=Outcome.CANCELLED, driven_by=driver)
    assert finish(run, as_json=False, watcher="here/1") == code
    assert finish(run, as_json=False) == 130


def test_who_waits_is_told_once_that_the_run_is_driven_from_here_now(watching, monkeypatch):
    held = [HeldElsewhere(f"driven by elsewhere/1, heard {n} s ago", holder="elsewhere/1") for n in (5, 35)]

    def go_on(run_id, context, first):
        if held:
            raise held.pop()
        first(load_run(run_id, context))
        for event in REST:
            watching.folder.journal.append(event)
        return load_run(run_id, context)

    monkeypatch.setattr(app, "go_on", go_on)
    assert following.wait(RUN_ID, watching.context).outcome is Outcome.DONE
    notes = [update.text for update in watching.updates if isinstance(update, Note)]
    assert notes == [
        "driven by elsewhere/1, heard 35 s ago",
        f"nobody drove {RUN_ID} any more: it is driven from here, and Ctrl-C ends it, saved",
    ]


def test_who_only_watches_a_run_that_nobody_drives_says_so_and_does_nothing(watching):
    watching.goes_on(REST, every=40)
    run = following.attach(RUN_ID, watching.context)
    assert run.outcome is Outcome.DONE
    notes = [update.text for update in watching.updates if isinstance(update, Note)]
    assert notes == [f"no launcher of this machine drives {RUN_ID}; looking into the storage for news"]
    assert isinstance(watching.folder.journal.events()[-1], Settled)
    assert len(watching.folder.journal.events()) == len(BEGINNING) + len(REST), "nothing was added from here"
