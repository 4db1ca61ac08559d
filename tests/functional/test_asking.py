"""`status` beside launchers elsewhere: who drives a run, whether what is here still holds, and what it costs."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from xml.etree.ElementTree import ParseError

import pytest
from botocore.parsers import ResponseParserError
from cut_journal import Cut
from launcher_world import World
from run_cases import later

from launcher import asking, wiring
from launcher.cli.documents import status_document
from launcher.context import Context
from launcher.errors import ProviderError
from launcher.events import Claimed
from launcher.history import paid_until, usd_now
from launcher.home import Home
from launcher.mirror import ALIVE_SECONDS
from launcher.providers.aws.account import HASTE, AwsAccount
from launcher.storage.interface import StorageError
from remote.protocol import AgentStatus, Phase


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = World(tmp_path)

    @contextmanager
    def storage_at(_url, _home, _run=None):
        if made.store.down:
            raise StorageError("no answer", hint="")
        yield made.store

    monkeypatch.setattr(wiring, "storage_at", storage_at)
    return made


def context_of(world):
    return Context(world.home, world.clock, world.updates.append, world.folder)


def killed_while_training(world, *, before=False):
    world.script.epoch, world.images_per_second = 600, 2
    run_id = world.open(budget=None)
    world.drive_until_killed(run_id, cut=Cut(8, before=before))
    return run_id


def test_from_elsewhere_a_run_is_driven_by_the_launcher_that_was_heard_and_how_long_ago(world):
    run_id = killed_while_training(world)
    world.clock.sleep(12)
    runner = world.elsewhere()
    runner.adopt(run_id)
    view = asking.view(run_id, context_of(runner))
    assert view.driven
    assert view.driver.startswith("laptop/4242, heard ")
    told = status_document(view)
    assert (told["driven"], told["launcher"]["name"]) == (True, "laptop/4242")
    assert told["agent"]["phase"] is Phase.TRAINING
    assert {stop["name"]: stop["armed"] for stop in told["stops"]}["launcher"]


def test_a_launcher_that_is_silent_for_long_drives_nothing(world):
    run_id = killed_while_training(world)
    world.clock.sleep(ALIVE_SECONDS + 60)
    runner = world.elsewhere()
    runner.adopt(run_id)
    view = asking.view(run_id, context_of(runner))
    assert not view.driven
    assert view.driver.startswith("nobody (laptop/4242 was heard last, ")
    assert f"gpucost resume {run_id}" in view.driver
    assert [stop.name for stop in view.stops if not stop.armed] == ["launcher"]


def test_the_beat_of_a_dead_launcher_of_this_machine_is_not_taken_for_one_elsewhere(world):
    run_id = killed_while_training(world)
    assert not asking.view(run_id, context_of(world)).driven


def test_a_run_that_was_taken_over_elsewhere_is_shown_as_it_is_there(world):
    run_id = killed_while_training(world, before=True)
    runner = world.elsewhere()
    runner.adopt(run_id)
    runner.claim(run_id)
    view = asking.view(run_id, context_of(world))
    assert view.driver.startswith("runner/4242, heard ")
    assert not view.word.overtaken, "what is here was only behind, and is brought up"


def test_a_copy_that_lost_its_place_is_told_and_left_alone(world):
    run_id = killed_while_training(world)
    runner = world.elsewhere()
    runner.adopt(run_id)
    world.home.run(run_id).journal.append(Claimed(at=world.clock.now(), launcher="laptop/1"))
    mine = world.home.run(run_id).journal.lines()
    runner.claim(run_id)
    view = asking.view(run_id, context_of(world))
    assert view.word.overtaken
    assert view.run.driven_by == "runner/4242"
    assert world.home.run(run_id).journal.lines() == mine


def test_a_storage_that_does_not_answer_is_said_and_the_run_shown_as_it_is_known(world):
    run_id = killed_while_training(world)
    world.store.down = True
    view = asking.view(run_id, context_of(world))
    assert view.driver.startswith("nobody here, and the storage does not say who does; ")
    assert view.run.lease is not None


def test_a_run_that_is_driven_from_here_or_over_is_looked_at_without_the_storage(world, monkeypatch):
    run_id = killed_while_training(world)
    monkeypatch.setattr(asking, "ask", lambda *_: pytest.fail("the storage was asked"))
    with world.home.run(run_id).journal.writing():
        assert "of this machine" in asking.view(run_id, context_of(world)).driver
    monkeypatch.undo()


def test_a_machine_that_its_stops_have_ended_is_not_shown_as_costing_more_each_minute(world):
    run_id = killed_while_training(world)
    lease = world.run(run_id).lease
    world.clock.sleep((lease.deadline - world.clock.now()).total_seconds() + 3600)
    at_its_end = usd_now(world.run(run_id), context_of(world))
    world.clock.sleep(86400)
    assert usd_now(world.run(run_id), context_of(world)) == at_its_end


def test_a_machine_is_off_soon_after_its_agent_has_ended(world):
    run_id = killed_while_training(world)
    run = world.run(run_id)
    now = world.clock.now()
    ended = AgentStatus(run_id, run.lease.lease_id, Phase.ENDED, now.timestamp(), 1.0, 7)
    assert paid_until(run, ended, now + timedelta(hours=1)) < now + timedelta(minutes=10)
    other = AgentStatus(run_id, "another", Phase.ENDED, later(0).timestamp(), 1.0, 7)
    assert paid_until(run, other, now + timedelta(minutes=20)) == now + timedelta(minutes=20)


def test_who_only_looks_does_not_wait_long_for_a_storage_that_does_not_answer(tmp_path, monkeypatch):
    seen = []

    def client(_account, _service, _region, patience=None):
        seen.append(patience)
        raise StorageError("no answer", hint="")

    monkeypatch.setattr(AwsAccount, "client", client)
    with pytest.raises(StorageError), wiring.storage_at("s3://bucket/runs", Home(tmp_path)):
        pass
    assert seen == [HASTE]


@pytest.mark.parametrize("error", [ParseError("no element found"), ResponseParserError("invalid XML")])
def test_an_answer_that_is_none_of_the_storage_counts_as_no_answer(tmp_path, monkeypatch, error):
    class Portal:
        def get_bucket_location(self, **_):
            raise error

    monkeypatch.setattr(AwsAccount, "client", lambda *_: Portal())
    with pytest.raises(ProviderError), wiring.storage_at("s3://bucket/runs", Home(tmp_path)):
        pass
