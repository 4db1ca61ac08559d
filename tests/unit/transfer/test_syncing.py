"""Uploads beside a training, and the last pass."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import namedtuple

import pytest

from remote import protocol
from remote.protocol import ArtifactList, Reason, StoredRun, TaskProgress, TransferOutcome
from remote.transfer.report import RENEW_SECONDS, Report
from remote.transfer.store import StoreRefused
from remote.transfer.syncing import ALONGSIDE_SECONDS, FINAL_TRIES
from remote.transfer.turns import HELD_SECONDS

RUN = StoredRun("run")


def outcome(folder) -> TransferOutcome:
    return protocol.read(folder.paths.sync_outcome, TransferOutcome)


def listed(folder, task: str = "a") -> set[str] | None:
    """Names on the list of a task's files, which must all be true."""
    content = folder.store.objects.get(RUN.artifacts(task))
    if content is None:
        return None
    files = protocol.decode(content.decode(), ArtifactList, "list").files
    for file in files:
        stored = folder.store.objects[RUN.artifact(task, file.name)]
        assert (len(stored), hashlib.sha256(stored).hexdigest()) == (file.size, file.sha256)
    return {file.name for file in files}


def puts(folder) -> list[str]:
    return [key for call, key in folder.store.calls if call == "put"]


def test_a_new_checkpoint_is_stored_in_the_next_round(folder) -> None:
    sync = folder.sync()
    assert sync.round()
    assert outcome(folder).checkpoint is None
    folder.save(10)
    sync.round()
    said = outcome(folder)
    assert (said.ok, said.final, said.checkpoint.step, said.checkpoint.epoch) == (True, False, 10, 1)
    assert [manifest.step for manifest in folder.manifests()] == [10]


def test_the_checkpoints_of_all_tasks_are_named_in_turn(folder) -> None:
    sync = folder.sync()
    for task, step in (("a", 30), ("b", 20)):
        folder.save(step, task=task)
    named = []
    for _ in range(4):
        sync.round()
        named.append((outcome(folder).checkpoint.task, outcome(folder).checkpoint.step))
        folder.clock.time += HELD_SECONDS
    assert sorted(named) == [("a", 30), ("a", 30), ("b", 20), ("b", 20)]


def test_one_that_is_named_stays_until_everybody_has_seen_it_and_a_newer_one_of_its_task_shows_at_once(folder) -> None:
    sync = folder.sync()
    folder.save(10, task="a")
    sync.round()
    folder.save(20, task="b")
    sync.round()
    assert outcome(folder).checkpoint.task == "a"
    folder.save(30, task="a")
    sync.round()
    assert (outcome(folder).checkpoint.task, outcome(folder).checkpoint.step) == ("a", 30)


def test_the_last_word_names_a_checkpoint_that_was_not_named_yet(folder) -> None:
    sync = folder.sync()
    folder.save(10, task="a")
    sync.round()
    folder.save(20, task="b")
    folder.paths.final_request.touch()
    sync.finish()
    assert outcome(folder).checkpoint.task == "b"


def test_the_last_word_names_a_new_checkpoint_even_of_the_task_that_was_just_named(folder) -> None:
    sync = folder.sync()
    for task in ("a", "b"):
        folder.save(10, task=task)
        sync.round()
        folder.clock.time += HELD_SECONDS
    assert outcome(folder).checkpoint.task == "b"
    folder.save(20, task="b")
    folder.paths.final_request.touch()
    sync.finish()
    assert (outcome(folder).checkpoint.task, outcome(folder).checkpoint.step) == ("b", 20)


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
    assert listed(folder) == {"results.csv"}


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


def test_a_checkpoint_goes_by_the_step_that_the_trainer_tells_of_it(folder) -> None:
    sync = folder.sync()
    folder.save(10)
    protocol.write(folder.paths.task("a").progress, TaskProgress(1, 9, 14, 90, 1.0, saved_step=10))
    sync.round()
    protocol.write_text(folder.paths.task("a").last, "weights at 20")
    protocol.write(folder.paths.task("a").progress, TaskProgress(2, 9, 21, 90, 1.0, saved_step=10))
    sync.round()
    assert [manifest.step for manifest in folder.manifests()] == [10], "what is told is still of the one before"
    protocol.write(folder.paths.task("a").progress, TaskProgress(2, 9, 22, 90, 1.0, saved_step=20))
    sync.round()
    assert [manifest.step for manifest in folder.manifests()] == [10, 20]


def test_a_checkpoint_that_comes_while_another_is_taken_goes_by_no_later_step(folder, monkeypatch) -> None:
    sync = folder.sync()
    folder.save(10)
    link = os.link

    def save_first(source, target) -> None:
        folder.save(20)
        link(source, target)

    monkeypatch.setattr(os, "link", save_first)
    sync.round()
    assert [manifest.step for manifest in folder.manifests()] == [10]


def test_a_save_that_was_cut_in_the_middle_is_not_taken(folder) -> None:
    """L04: the trainer died between writing and renaming."""
    sync = folder.sync()
    folder.save(10)
    sync.round()
    last = folder.paths.task("a").last
    last.with_name(".last.pt.tmp").write_text("weigh")
    folder.clock.sleep(ALONGSIDE_SECONDS)
    sync.round()
    folder.paths.final_request.touch()
    assert sync.finish() == 0
    assert [manifest.step for manifest in folder.manifests()] == [10]
    assert all("tmp" not in key for key in folder.store.objects)


def taken_away(folder) -> None:
    protocol.write_text(folder.paths.final_request, Reason.PREEMPTED.value)


def test_under_a_notice_checkpoints_of_all_tasks_go_first_and_nothing_else_that_is_big(folder) -> None:
    for task in "ab":
        folder.save(90, task=task)
        folder.paths.task(task).results.write_text("rows")
        folder.paths.task(task).best.write_text("best")
        folder.paths.task(task).log.write_text("log")
    taken_away(folder)
    assert folder.sync().run() == 0
    sent = [key for key in puts(folder) if key.endswith(".pt")]
    assert len(sent) == 2
    assert all("/checkpoints/" in key for key in sent)
    assert [key for key in puts(folder)[:4] if "/checkpoints/" not in key] == []
    assert listed(folder) == listed(folder, "b") == {"results.csv", "train.log"}
    assert outcome(folder).final


def test_under_a_notice_the_list_keeps_the_weights_that_are_stored_already(folder) -> None:
    sync = folder.sync()
    folder.save(80)
    folder.paths.task("a").best.write_text("best of 80")
    folder.clock.sleep(ALONGSIDE_SECONDS)
    sync.round()
    folder.save(90)
    folder.paths.task("a").best.write_text("best of 90, not stored any more")
    folder.paths.task("a").results.write_text("rows")
    taken_away(folder)
    assert sync.finish() == 0
    assert listed(folder) == {"best.pt", "results.csv"}
    assert folder.store.objects[RUN.artifact("a", "best.pt")] == b"best of 80"


def test_no_list_names_a_file_that_is_being_replaced(folder) -> None:
    sync = folder.sync()
    for content in ("one", "two"):
        folder.save(10)
        folder.paths.task("a").results.write_text(content)
        folder.clock.sleep(ALONGSIDE_SECONDS)
        folder.store.calls.clear()
        sync.round()
        own = [(call, key.rsplit("/", 1)[1]) for call, key in folder.store.calls if "artifacts" in key]
        assert own == [("delete", "artifacts.json"), ("put", "results.csv"), ("put", "artifacts.json")]


def test_a_list_of_an_earlier_machine_does_not_outlive_the_files_that_it_names(folder) -> None:
    folder.store.objects[RUN.artifacts("a")] = b"of another lease"
    sync = folder.sync()
    folder.save(10)
    folder.paths.task("a").best.write_text("best")
    folder.paths.task("a").results.write_text("rows")
    folder.clock.sleep(ALONGSIDE_SECONDS)
    folder.store.fail("put", "best.pt")
    assert not sync.round()
    assert RUN.artifacts("a") not in folder.store.objects


def test_a_log_that_grows_while_it_goes_is_stored_and_not_listed(folder) -> None:
    sync = folder.sync()
    folder.save(10)
    log = folder.paths.task("a").log
    log.write_text("epoch 1\n")
    put = folder.store.put

    def grow(source, key, progress) -> None:
        put(source, key, progress)
        if key.endswith("train.log"):
            with log.open("a") as more:
                more.write("epoch 2\n")

    folder.store.put = lambda source, key, progress=lambda _count: None: grow(source, key, progress)
    folder.clock.sleep(ALONGSIDE_SECONDS)
    sync.round()
    assert RUN.artifact("a", "train.log") in folder.store.objects
    assert listed(folder) == set()
    folder.store.put = put
    folder.clock.sleep(ALONGSIDE_SECONDS)
    sync.round()
    assert listed(folder) == {"train.log"}


def test_files_make_way_for_checkpoints_when_the_end_has_come(folder) -> None:
    sync = folder.sync()
    for task in "ab":
        folder.save(10, task=task)
        folder.paths.task(task).best.write_text("best")
    put = folder.store.put

    def end_comes(source, key, progress) -> None:
        folder.store.put = put
        taken_away(folder)
        put(source, key, progress)

    folder.clock.sleep(ALONGSIDE_SECONDS)
    sync.round()  # stores the checkpoints; their files are due from here on
    for task in "ab":
        folder.paths.task(task).best.write_text("better")
    folder.clock.sleep(ALONGSIDE_SECONDS)
    folder.store.put = end_comes
    sync.round()
    assert folder.store.objects[RUN.artifact("b", "best.pt")] == b"best"


def test_a_prune_that_fails_sends_nothing_again(folder) -> None:
    sync = folder.sync()
    for step in (10, 20, 30):
        folder.save(step)
        folder.store.fail("delete", times=1)
        assert sync.round()
    assert puts(folder).count(RUN.checkpoints("a") + folder.manifests()[-1].key) == 1
    folder.store._faults.clear()
    folder.save(40)
    assert sync.round()
    assert [manifest.step for manifest in folder.manifests()] == [30, 40]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written any more; links and times can."""

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    usage = namedtuple("Usage", "total used free")(2**40, 2**40, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)


def test_a_full_disk_keeps_no_checkpoint_from_the_storage(folder, request: pytest.FixtureRequest) -> None:
    """L09: the disk filled up during a save, and the last good checkpoint is not stored yet."""
    folder.save(10)
    folder.paths.task("a").results.write_text("rows")
    folder.paths.data.mkdir()
    sync = folder.sync()
    request.getfixturevalue("full_disk")
    assert sync.round()
    assert [manifest.step for manifest in folder.manifests()] == [10]
    folder.paths.final_request.touch()
    assert sync.finish() == 0
    assert listed(folder) == {"last.pt", "results.csv"}


def test_at_the_end_the_data_set_makes_room_on_a_full_disk(folder, request: pytest.FixtureRequest) -> None:
    (folder.paths.data / "images").mkdir(parents=True)
    folder.paths.final_request.touch()
    assert folder.sync().run() == 0
    assert folder.paths.data.exists(), "there is room"
    request.getfixturevalue("full_disk")
    assert folder.sync().run() == 0
    assert not folder.paths.data.exists()


def test_an_upload_on_a_full_disk_does_not_look_like_one_that_hangs(folder, request: pytest.FixtureRequest) -> None:
    report = Report(folder.paths.sync_outcome, folder.clock)
    report.write(TransferOutcome(ok=True))
    os.utime(folder.paths.sync_outcome, (1, 1))
    request.getfixturevalue("full_disk")
    folder.clock.sleep(RENEW_SECONDS)
    report.moved(5)
    assert folder.paths.sync_outcome.stat().st_mtime > 1
