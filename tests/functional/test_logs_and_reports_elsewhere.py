"""`logs` and `report` on a machine that did not launch the run: what the storage has of it."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager

import pytest
from cut_journal import Cut
from launcher_world import World

from launcher import app, cli, wiring
from launcher.context import Context
from launcher.errors import BadInput
from launcher.report import Note
from launcher.storage.interface import StorageError
from remote.protocol import StoredRun


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """A fresh machine that knows a run in training from its prefix alone; the run's id is `runner.run_id`."""
    world = World(tmp_path)
    world.script.epoch, world.images_per_second = 600, 2
    run_id = world.open(budget=None)
    world.drive_until_killed(run_id, cut=Cut(8, before=False))
    made = world.elsewhere()
    made.run_id = run_id

    @contextmanager
    def storage_at(_url, _home, _run=None):
        if made.store.down:
            raise StorageError("no answer", hint="check the network")
        yield made.store

    monkeypatch.setattr(wiring, "storage_at", storage_at)
    made.adopt(run_id)
    return made


def logged(runner):
    return app.log_text(runner.run_id, None, Context(runner.home, runner.clock, runner.updates.append, runner.folder))


def test_without_the_key_the_log_is_what_the_agent_copied_to_the_storage(runner):
    runner.store.objects[StoredRun(runner.run_id).artifact("job", "train.log")] = b"epoch 1\n"
    assert logged(runner) == "epoch 1\n"
    assert [update.text for update in runner.updates if isinstance(update, Note)][-1].startswith("the key to the")


def test_nothing_in_a_log_drives_the_terminal(runner):
    log = b"10%\r20%\r\n\x1b[2J\xc2\x9b31mred\n"
    runner.store.objects[StoredRun(runner.run_id).artifact("job", "train.log")] = log
    assert logged(runner) == "10%\n20%\n\n\ufffd[2J\ufffd31mred\n"


def test_nothing_in_a_note_drives_the_terminal():
    assert Note("the machine says \x1b]0;owned\x07").text == "the machine says \ufffd]0;owned\ufffd"


def test_a_log_that_is_not_there_yet_is_one_clear_message(runner):
    with pytest.raises(BadInput, match=f"there is no log of job in .*{runner.run_id} yet"):
        logged(runner)


def test_a_storage_that_does_not_answer_is_named(runner):
    runner.store.down = True
    with pytest.raises(BadInput, match="cannot be read: no answer") as caught:
        logged(runner)
    assert caught.value.hint == "check the network"


def test_the_log_of_a_run_that_is_over_comes_from_the_storage_where_its_results_are_not_here(runner):
    run = runner.stop(runner.run_id)
    assert run.lease is None
    (runner.folder / "runs/job/train.log").unlink(missing_ok=True)
    runner.store.objects[StoredRun(runner.run_id).artifact("job", "train.log")] = b"the whole log\n"
    assert logged(runner) == "the whole log\n"


def test_a_report_of_a_url_is_that_of_the_run_there(runner, monkeypatch, capsys):
    run = runner.stop(runner.run_id)
    fresh = runner.elsewhere("another")
    monkeypatch.setenv("GPUCOST_HOME", str(fresh.home.root))
    monkeypatch.setattr(sys, "argv", ["gpucost", "report", f"s3://bucket/runs/{runner.run_id}", "--json"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    assert [lease["lease_id"] for lease in json.loads(capsys.readouterr().out)["leases"]] == [
        entry.lease_id for entry in run.entries
    ]
