"""Uploads beside a training, and the last pass."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple

import pytest

from remote import protocol
from remote.protocol import StoredRun, TransferOutcome
from remote.transfer.store import StoreRefused
from remote.transfer.syncing import ALONGSIDE_SECONDS, FINAL_TRIES

RUN = StoredRun("run")


def outcome(folder) -> TransferOutcome:
    return protocol.read(folder.paths.sync_outcome, TransferOutcome)


def test_a_new_checkpoint_is_stored_in_the_next_round(folder) -> None:
    sync = folder.sync()
    assert sync.round()
    assert outcome(folder).checkpoint is None
    folder.save(10)
    sync.round()
    said = outcome(folder)
    assert (said.ok, said.final, said.checkpoint.step, said.checkpoint.epoch) == (True, False, 10, 1)
    assert [manifest.step for manifest in folder.manifests()] == [10]


def test_a_checkpoint_waits_a_round_for_the_trainer_to_tell_its_epoch(folder) -> None:
    sync = folder.sync()
    folder.save(10)
    sync.round()
    protocol.write_text(folder.paths.task("a").last, "weights at 20")
    sync.round()
    assert [manifest.step for manifest in folder.manifests()] == [10]
    folder.save(20, "weights at 20")
    sync.round()
    assert [manifest.step for manifest in folder.manifests()] == [10, 20]


def test_a_checkpoint_that_the_trainer_never_tells_of_goes_all_the_same(folder) -> None:
    sync = folder.sync()
    protocol.write_text(folder.paths.task("a").last, "weights")
    sync.round()
    assert folder.manifests() == []
    sync.round()
    assert [manifest.step for manifest in folder.manifests()] == [0]


def test_an_unchanged_checkpoint_is_left_alone(folder) -> None:
    sync = folder.sync()
    folder.save(10)
    sync.round()
    folder.store.calls.clear()
    sync.round()
    assert folder.store.calls == []


def test_the_trainer_may_save_while_an_upload_goes_on(folder) -> None:
    sync = folder.sync()
    folder.save(10)
    put = folder.store.put

    def save_meanwhile(source, key, progress) -> None:
        folder.store.put = put
        folder.save(20)
        put(source, key, progress)

    folder.store.put = save_meanwhile
    sync.round()
    sync.round()
    stored = {
        manifest.step: folder.store.objects[RUN.checkpoints("a") + manifest.key] for manifest in folder.manifests()
    }
    assert stored == {10: b"weights at 10", 20: b"weights at 20"}


def test_l09_two_are_kept_however_many_come(folder) -> None:
    sync = folder.sync()
    for step in range(10, 60, 10):
        folder.save(step)
        sync.round()
    assert [manifest.step for manifest in folder.manifests()] == [40, 50]
    left = {path.name for path in folder.paths.transfer.iterdir()}
    assert left == {"sync.json"}


def test_a_failed_upload_is_said_and_comes_again(folder) -> None:
    sync = folder.sync()
    folder.save(10)
    folder.store.fail("put")
    assert not sync.round()
    assert (outcome(folder).ok, outcome(folder).message) == (False, "s3://bucket/out: injected")
    assert sync.round()
    assert (outcome(folder).ok, outcome(folder).message) == (True, "")
    assert [manifest.step for manifest in folder.manifests()] == [10]


def test_a_restarted_sync_sends_nothing_twice(folder) -> None:
    folder.save(10)
    folder.sync().round()
    folder.store.calls.clear()
    sync = folder.sync()
    sync.round()
    assert [call for call, _ in folder.store.calls if call == "put"] == []
    assert outcome(folder).checkpoint.step == 10


def test_a_restored_checkpoint_keeps_its_step_before_the_trainer_tells_one(folder) -> None:
    folder.save(30)
    folder.sync().round()
    folder.paths.task("a").progress.unlink()
    sync = folder.sync()
    sync.round()
    sync.round()
    assert [manifest.step for manifest in folder.manifests()] == [30]


def test_results_and_logs_go_alongside_at_a_slow_pace(folder) -> None:
    sync = folder.sync()
    folder.save(10)
    folder.paths.task("a").results.write_text("epoch\n")
    sync.round()
    assert RUN.artifact("a", "results.csv") not in folder.store.objects
    folder.clock.sleep(ALONGSIDE_SECONDS)
    sync.round()
    assert folder.store.objects[RUN.artifact("a", "results.csv")] == b"epoch\n"
    assert RUN.artifacts("a") not in folder.store.objects, "the list is for the end"


def test_the_final_request_ends_the_rounds(folder) -> None:
    folder.save(10)
    folder.clock.at(5, lambda: (folder.save(20), folder.paths.final_request.touch()))
    assert folder.sync().run() == 0
    said = outcome(folder)
    assert (said.ok, said.final, said.checkpoint.step) == (True, True, 20)


def test_the_last_pass_stores_every_file_and_then_their_list(folder) -> None:
    folder.save(90)
    paths = folder.paths.task("a")
    written = {
        "best.pt": "best",
        "results.csv": "epoch\n1\n",
        "train.log": "log",
        "plots/pr.png": "png",
        "events.out.tfevents.1": "events",
        "args.yaml": "lr: 1",
    }
    places = {"best.pt": paths.best}
    for name, content in written.items():
        place = places.get(name, paths.root / name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    for name in ("config.json", ".hidden.png", "core.bin"):
        (paths.root / name).write_text("not for the user")
    folder.paths.final_request.touch()
    assert folder.sync().run() == 0
    puts = [key for call, key in folder.store.calls if call == "put" and key.startswith("run/tasks/a/artifact")]
    assert puts[-1] == RUN.artifacts("a")
    listed = json.loads(folder.store.objects[RUN.artifacts("a")])
    names = {file["name"] for file in listed["files"]}
    assert names == {*written, "last.pt"}
    for file in listed["files"]:
        assert len(folder.store.objects[RUN.artifact("a", file["name"])]) == file["size"]


def test_checkpoints_of_all_tasks_go_before_any_other_file(folder) -> None:
    for task in "ab":
        folder.save(90, task=task)
        folder.paths.task(task).results.write_text("x")
    folder.paths.final_request.touch()
    assert folder.sync().run() == 0
    puts = [key for call, key in folder.store.calls if call == "put"]
    kinds = ["checkpoints" if "/checkpoints/" in key else "artifacts" for key in puts]
    assert kinds == sorted(kinds, reverse=True)


def test_a_task_that_left_nothing_has_an_empty_list(folder) -> None:
    folder.paths.final_request.touch()
    assert folder.sync().run() == 0
    assert json.loads(folder.store.objects[RUN.artifacts("b")])["files"] == []


def test_a_last_pass_is_tried_again_and_then_complete(folder) -> None:
    folder.save(90)
    folder.paths.final_request.touch()
    folder.store.fail("put", times=3)
    assert folder.sync().run() == 0
    assert outcome(folder).final


def test_a_last_pass_that_never_works_ends_with_a_code_and_the_reason(folder) -> None:
    folder.save(90)
    folder.paths.final_request.touch()
    folder.store.fail("put", times=99)
    assert folder.sync().run() == 1
    said = outcome(folder)
    assert (said.ok, said.final, said.message) == (False, True, "s3://bucket/out: injected")
    assert [call for call, _ in folder.store.calls].count("put") == FINAL_TRIES


def test_a_refusal_ends_the_last_pass_at_once(folder) -> None:
    folder.save(90)
    folder.paths.final_request.touch()
    folder.store.fail("put", error=StoreRefused("s3://bucket/out: AccessDenied: no"))
    assert folder.sync().run() == 1
    assert folder.clock.time == folder.clock.start


def test_a_disk_that_is_nearly_full_is_said(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("Usage", "total used free")(2**40, 2**40, 300 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    folder.sync().round()
    assert outcome(folder).message == "the disk is nearly full: 300 MiB free"
    assert outcome(folder).ok


def test_progress_that_cannot_be_read_does_not_stop_the_upload(folder) -> None:
    folder.save(10)
    folder.paths.task("a").progress.write_text("{")
    assert folder.sync().round()
    assert [manifest.step for manifest in folder.manifests()] == [0]
