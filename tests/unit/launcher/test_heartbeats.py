"""What the storage says of a run's life."""

from __future__ import annotations

import json

import pytest
from memory_object_store import FakeStore
from sweep_cases import OTHER, OUTPUT, RUN, beat, hours, post

from launcher.sweep.heartbeats import heartbeat, runs_among
from remote.protocol import AgentStatus, Phase, StoredRun, encode

STATUS = StoredRun(RUN).posted_status(f"{RUN}-1")


@pytest.fixture
def store():
    return FakeStore(OUTPUT)


def test_a_run_without_a_post_was_never_heard(store):
    post(store, hours(0), OTHER)
    found = heartbeat(RUN, [store])
    assert (found.newest, found.unreadable) == (None, "")


def test_the_newest_post_of_any_lease_counts(store):
    for lease, at in ((1, -3), (2, -1), (10, -2)):
        post(store, hours(at), lease=lease)
    found = heartbeat(RUN, [store])
    assert (found.heard_at, found.by, found.let_go_at) == (hours(-1), "agent", None)


def test_the_status_that_an_agent_posts_is_understood(store):
    """As the agent writes it, not as this test thinks it does."""
    status = AgentStatus(RUN, f"{RUN}-1", Phase.TRAINING, at=hours(-1).timestamp(), started_at=0.0, pid=1)
    store.objects[STATUS] = encode(status).encode()
    assert heartbeat(RUN, [store]).heard_at == hours(-1)


def test_a_launcher_that_drives_the_run_is_heard_too(store):
    post(store, hours(-3))
    beat(store, hours(-1))
    found = heartbeat(RUN, [store])
    assert (found.heard_at, found.by) == (hours(-1), "launcher laptop/4242")


def test_a_launcher_that_let_the_run_go_is_no_sign_of_life(store):
    post(store, hours(-3))
    beat(store, hours(-1), ended=True)
    found = heartbeat(RUN, [store])
    assert (found.heard_at, found.let_go_at) == (hours(-3), hours(-1))


def test_other_objects_of_a_run_are_not_read(store):
    store.objects[f"{RUN}/leases/{RUN}-1/outcome.json"] = b"{"
    store.objects[f"{RUN}/leases/{RUN}-1/command.json"] = b"{"
    store.objects[f"{RUN}/tasks/t/checkpoints/1.pt"] = b"\0" * 9
    assert heartbeat(RUN, [store]).unreadable == ""
    assert {key for call, key in store.calls if call == "get"} == {StoredRun(RUN).launcher_beat}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"null",
        b"{}",
        json.dumps({"schema": 2, "at": 1.0}).encode(),
        json.dumps({"schema": 1}).encode(),
        json.dumps({"schema": 1, "at": "soon"}).encode(),
        b'{"schema": 1, "at": NaN}',
        b'{"schema": 1, "at": 1e300}',
    ],
    ids=["empty", "no-text", "list", "number", "null", "nothing", "newer", "no-time", "words", "nan", "far-off"],
)
@pytest.mark.parametrize("key", [STATUS, StoredRun(RUN).launcher_beat], ids=["agent", "launcher"])
def test_a_post_that_cannot_be_understood_makes_the_heartbeat_unreadable(store, key, content):
    post(store, hours(-1), lease=2)
    store.objects[key] = content
    assert f"{OUTPUT}/{key}" in heartbeat(RUN, [store]).unreadable


@pytest.mark.parametrize("call", ["list", "get"])
def test_a_storage_that_does_not_answer_makes_the_heartbeat_unreadable(store, call):
    post(store, hours(-1))
    store.fail(call)
    assert "cannot be reached" in heartbeat(RUN, [store]).unreadable


def test_of_several_places_all_are_read(store):
    """A run that was resumed with another output has posts in both."""
    other = FakeStore("s3://elsewhere")
    post(other, hours(-1))
    assert heartbeat(RUN, [store, other]).heard_at == hours(-1)
    store.down = True
    found = heartbeat(RUN, [store, other])
    assert found.heard_at == hours(-1)
    assert found.unreadable


def test_the_runs_in_a_storage_are_the_folders_that_are_called_like_one():
    keys = [f"{RUN}/launcher.json", f"{OTHER}/tasks/x", "data/ab.tar", f"{RUN}", "20261201T040000-ab12-alone"]
    assert runs_among(keys) == {RUN, OTHER}
