"""A run whose records cannot be read: `stop` ends what carries its tag, in every account that is at hand."""

from __future__ import annotations

import json
import sys

import pytest
from run_cases import opened
from sweep_cases import OTHER, RUN, World, beat, hours, post, results, thing

from launcher import cli
from launcher.home import Home
from launcher.journal import encode
from launcher.providers.sweep import Kind
from launcher.sweep import wiring
from launcher.sweep.ending import end_run
from launcher.sweep.removing import Result

MACHINE, KEY = thing(Kind.INSTANCE, deadline=hours(3), state="running"), thing(Kind.KEY_PAIR)
ANOTHERS = thing(Kind.INSTANCE, OTHER, deadline=hours(3), state="running")
LATE = thing(Kind.INSTANCE, deadline=hours(3), state="pending", number=2)


@pytest.fixture
def world():
    return World()


def test_everything_of_the_run_goes_though_it_is_heard_and_nothing_of_another(world):
    world.cloud.add(MACHINE, KEY, ANOTHERS)
    post(world.store, hours(0))
    beat(world.store, hours(0))
    _, done = end_run(RUN, world.sweeper, world.interrupts)
    assert results(done) == {MACHINE.id: Result.REMOVED, KEY.id: Result.REMOVED}
    assert world.cloud.ids() == {ANOTHERS.id}


def test_a_machine_that_shows_up_late_is_ended_too(world):
    world.cloud.add(MACHINE)
    world.clock.at(60, lambda: world.cloud.add(LATE))
    _, done = end_run(RUN, world.sweeper, world.interrupts)
    assert results(done) == {MACHINE.id: Result.REMOVED, LATE.id: Result.REMOVED}
    assert world.cloud.ids() == set()


def test_what_cannot_be_ended_is_not_called_gone(world):
    world.cloud.add(MACHINE)
    world.cloud.stuck.add(MACHINE.id)
    _, done = end_run(RUN, world.sweeper, world.interrupts)
    assert results(done) == {MACHINE.id: Result.UNCONFIRMED}


@pytest.fixture
def stop(tmp_path, monkeypatch, capsys):
    """Runs `gpucost stop` on a home with one journal; exit code, standard output, standard error."""
    monkeypatch.setenv("GPUCOST_HOME", str(tmp_path / "home"))

    def run(journal, *argv):
        folder = tmp_path / "home" / "runs" / RUN
        folder.mkdir(parents=True)
        (folder / "journal.jsonl").write_text(journal)
        monkeypatch.setattr(sys, "argv", ["gpucost", "stop", *argv])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return end.value.code, out, err

    return run


def test_once_all_is_gone_the_records_are_set_aside_and_the_name_is_free(stop, world, monkeypatch, tmp_path):
    world.cloud.add(MACHINE)
    monkeypatch.setattr(wiring, "connect_sweeper", lambda cloud, _p, _c: world.sweeper if cloud == "sandbox" else None)
    code, _, err = stop("no json\n")
    assert code == 2
    assert f"removed: instance {MACHINE.id}" in err
    assert "all 1 are confirmed gone" in err
    home = Home(tmp_path / "home")
    assert home.run_ids() == []
    assert (home.run(RUN).root / "journal.damaged.jsonl").read_text() == "no json\n"


def test_nothing_found_is_no_proof_where_nobody_knows_in_which_account_the_run_was(stop, world, monkeypatch):
    monkeypatch.setattr(wiring, "connect_sweeper", lambda _cloud, _profile, _context: world.sweeper)
    code, _, err = stop("no json\n")
    assert code == 7
    assert f"{RUN} IS NOT CONFIRMED GONE" in err
    assert "set AWS_PROFILE" in err


def test_where_the_first_record_can_be_read_its_account_is_looked_at_and_nothing_is_proof(stop, world, monkeypatch):
    asked = []

    def connect(cloud, profile, _context):
        asked.append((cloud, profile))
        return world.sweeper

    monkeypatch.setattr(wiring, "connect_sweeper", connect)
    first = opened(run_id=RUN, cloud="aws", job={"name": "job", "aws": {"profile": "vision"}})
    code, _, err = stop(f"{encode(1, first)}\nno json\n")
    assert (code, asked) == (2, [("aws", "vision")])
    assert "no machine of it is there" in err


def test_a_region_that_fails_at_the_second_look_leaves_the_end_unconfirmed(stop, world, monkeypatch):
    world.cloud.add(MACHINE)
    world.clock.at(60, lambda: world.cloud.dark.update({"us-east-1": "timed out"}))
    monkeypatch.setattr(wiring, "connect_sweeper", lambda cloud, _p, _c: world.sweeper if cloud == "aws" else None)
    code, _, err = stop("no json\n")
    assert code == 7
    assert "us-east-1" in err
    assert "timed out" in err


@pytest.mark.parametrize(
    "journal",
    ['{"schema":1,"seq":1,"ty\nmore\n', '{"schema":9,"seq":1,"type":"RunOpened","event":{}}\n', "\n", "no json\n"],
    ids=["torn", "of-another-version", "empty-line", "garbage"],
)
def test_where_no_account_can_be_looked_at_a_damaged_run_is_not_called_gone(stop, journal):
    code, _, err = stop(journal)
    assert code == 7
    assert "journal.jsonl line 1" in err
    assert f"{RUN} IS NOT CONFIRMED GONE" in err
    assert "aws: there are no usable AWS credentials" in err
    assert "set AWS_PROFILE" in err


def test_the_document_says_what_could_not_be_looked_at(stop):
    code, out, _ = stop("no json\n", "--json")
    document = json.loads(out)
    assert (code, document["kind"], document["exit_code"]) == (7, "stop", 7)
    assert document["run_id"] == RUN
    assert document["not_known"]
