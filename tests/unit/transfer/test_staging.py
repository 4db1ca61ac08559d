"""The data set and the checkpoints on a new machine."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from collections import namedtuple
from dataclasses import replace

import pytest

from remote.dataset.values import DatasetError
from remote.protocol import DataSpec, StoredRun
from remote.transfer.__main__ import STAGE_PAUSES, staged
from remote.transfer.staging import SPARE_BYTES, StagingError, stage
from remote.transfer.store import StoreMissing, StoreRefused

FILES = {
    "set/data.yaml": b"train: images\nval: images\nnames: [a]\n",
    "set/images/1.jpg": b"1",
    "set/images/2.PNG": b"2",
    "set/images/3.jpeg": b"3",
    "set/labels/1.txt": b"0 0.5 0.5 1 1\n",
}
RUN = StoredRun("run")


def archive(files: dict[str, bytes] = FILES) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return written.getvalue()


@pytest.fixture
def with_data(folder):
    folder.data.objects["digits.tar"] = archive()
    return folder


def test_an_archive_is_unpacked_counted_and_removed(with_data) -> None:
    outcome = stage(with_data.staging())
    assert (outcome.ok, outcome.final, outcome.files) == (True, True, 3)
    assert outcome.data == str(with_data.paths.data / "set")
    assert (with_data.paths.data / "set" / "images" / "1.jpg").read_bytes() == b"1"
    assert list(with_data.paths.transfer.glob("archive*")) == []


def test_staging_twice_downloads_once(with_data) -> None:
    first, second = stage(with_data.staging()), stage(with_data.staging())
    assert first == second
    assert with_data.data.calls == [("get", "digits.tar")]


def test_an_archive_that_is_not_the_announced_one_is_refused(with_data) -> None:
    size = len(with_data.data.objects["digits.tar"])
    for spec, said in (
        (DataSpec("s3://sets/digits.tar", size=size + 1), f"{size} bytes came, {size + 1} are expected"),
        (DataSpec("s3://sets/digits.tar", sha256="ab" * 32), "its SHA-256 is not the expected one"),
    ):
        with pytest.raises(StagingError, match=said):
            stage(with_data.staging(data=spec))
        assert not with_data.paths.data.exists()


def test_the_announced_archive_is_accepted(with_data) -> None:
    body = with_data.data.objects["digits.tar"]
    spec = DataSpec("s3://sets/digits.tar", sha256=hashlib.sha256(body).hexdigest(), size=len(body))
    assert stage(with_data.staging(data=spec)).files == 3


def test_l06_fewer_pictures_than_expected_are_refused(with_data) -> None:
    spec = DataSpec("s3://sets/digits.tar", files=4)
    with pytest.raises(StagingError, match="3 pictures after staging, 4 are expected"):
        stage(with_data.staging(data=spec))


def test_an_archive_that_leaves_its_folder_is_refused_and_leaves_nothing(folder) -> None:
    folder.data.objects["digits.tar"] = archive({**FILES, "../evil.txt": b"x"})
    with pytest.raises(DatasetError, match=r"\.\./evil\.txt"):
        stage(folder.staging())
    assert not folder.paths.data.exists()
    assert not (folder.paths.root / "evil.txt").exists()


def test_a_prefix_is_copied_whole(folder) -> None:
    folder.data.objects = {name.removeprefix("set/"): content for name, content in FILES.items()}
    outcome = stage(folder.staging(data=DataSpec("s3://sets/digits/")))
    assert outcome.data == str(folder.paths.data)
    assert outcome.files == 3


def test_a_prefix_copy_that_broke_goes_on_where_it_was(folder) -> None:
    folder.data.objects = {name.removeprefix("set/"): content for name, content in FILES.items()}
    work = folder.staging(data=DataSpec("s3://sets/digits/"))
    folder.data.fail("get", "labels/1.txt")
    with pytest.raises(Exception, match="injected"):
        stage(work)
    assert not folder.paths.data.exists()
    folder.data.calls.clear()
    assert stage(work).files == 3
    assert [key for call, key in folder.data.calls if call == "get"] == ["labels/1.txt"]


def test_an_object_name_that_leaves_the_folder_is_refused(folder) -> None:
    folder.data.objects = {"../evil": b"x"}
    with pytest.raises(StagingError, match=r"evil' refused"):
        stage(folder.staging(data=DataSpec("s3://sets/digits/")))


def test_an_empty_prefix_is_missing(folder) -> None:
    with pytest.raises(StoreMissing, match="s3://sets/digits/: no objects below it"):
        stage(folder.staging(data=DataSpec("s3://sets/digits/")))


def store_a_checkpoint(folder, step: int) -> None:
    """As an earlier machine did it."""
    folder.save(step)
    folder.paths.task("a").results.write_text("epoch\n1\n")
    folder.paths.task("a").best.write_text("best")
    folder.paths.task("a").log.write_text("epoch 1\n")
    folder.paths.final_request.touch()
    assert folder.sync().run() == 0
    for path in (folder.paths.task("a").root, folder.paths.final_request):
        path.rename(path.with_name(f"old-{path.name}"))


def test_every_task_gets_its_newest_checkpoint_and_what_belongs_to_it(with_data) -> None:
    store_a_checkpoint(with_data, 30)
    outcome = stage(with_data.staging())
    paths = with_data.paths.task("a")
    assert paths.last.read_text() == "weights at 30"
    assert paths.results.read_text() == "epoch\n1\n"
    assert paths.best.read_text() == "best"
    assert paths.log.read_text() == "epoch 1\n", "the log goes on across machines"
    assert not with_data.paths.task("b").last.exists()
    assert (outcome.checkpoint.step, outcome.checkpoint.task) == (30, "a")
    assert outcome.restored == {"a": 30}


def store_two_checkpoints(folder) -> None:
    sync = folder.sync()
    for step in (20, 30):
        folder.save(step)
        sync.round()
    folder.paths.task("a").root.rename(folder.paths.tasks / "old-a")


def test_the_one_before_the_newest_is_there_for_a_trainer_that_cannot_use_that(with_data) -> None:
    store_two_checkpoints(with_data)
    outcome = stage(with_data.staging())
    paths = with_data.paths.task("a")
    assert (paths.last.read_text(), paths.previous.read_text()) == ("weights at 30", "weights at 20")
    assert outcome.restored == {"a": 30}
    assert list(with_data.paths.transfer.glob("*.pt")) == []


def test_the_one_before_is_left_where_there_is_no_room_or_it_does_not_come(with_data, monkeypatch) -> None:
    store_two_checkpoints(with_data)
    paths, older = with_data.paths.task("a"), with_data.manifests()[0].key
    usage = namedtuple("Usage", "total used free")(2**40, 2**40, SPARE_BYTES)
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _path: usage)
        assert stage(with_data.staging()).restored == {"a": 30}
    assert (paths.last.exists(), paths.previous.exists()) == (True, False)
    paths.last.unlink()
    with_data.store.fail("get", older)
    assert stage(with_data.staging()).restored == {"a": 30}
    assert (paths.last.exists(), paths.previous.exists()) == (True, False)


def test_a_checkpoint_of_this_machine_is_not_overwritten(with_data) -> None:
    store_a_checkpoint(with_data, 30)
    with_data.save(50)
    stage(with_data.staging())
    assert with_data.paths.task("a").last.read_text() == "weights at 50"


def test_nothing_is_restored_when_that_is_not_wanted(with_data) -> None:
    store_a_checkpoint(with_data, 30)
    assert stage(with_data.staging(resume=False)).checkpoint is None
    assert not with_data.paths.task("a").last.exists()


def test_a_skipped_checkpoint_is_said_in_the_outcome(with_data) -> None:
    store_a_checkpoint(with_data, 30)
    key = next(key for key in with_data.store.objects if key.endswith(".pt") and "checkpoints" in key)
    with_data.store.objects[key] = b"torn"
    outcome = stage(with_data.staging())
    assert outcome.ok
    assert outcome.checkpoint is None
    assert "skipped: it has 4 bytes" in outcome.message
    assert "no stored checkpoint of a can be used: it begins with the first step" in outcome.message


def test_a_restore_that_broke_half_way_is_the_same_the_second_time(with_data) -> None:
    with_data.save(20, task="b")
    store_a_checkpoint(with_data, 30)
    with_data.paths.task("b").root.rename(with_data.paths.tasks / "old-b")
    with_data.store.fail("get", RUN.checkpoints("b"))
    outcome = staged(with_data.staging(), with_data.clock)
    assert outcome.restored == {"a": 30, "b": 20}
    assert with_data.paths.task("a").results.read_text() == "epoch\n1\n"


def test_a_prefix_that_does_not_fit_is_refused_before_the_first_byte(folder, monkeypatch) -> None:
    """L08, L09: room for the data, and some to spare."""
    folder.data.objects = {name.removeprefix("set/"): content for name, content in FILES.items()}
    usage = namedtuple("Usage", "total used free")(2**40, 2**40, SPARE_BYTES)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(StagingError, match=r"s3://sets/digits/: 0\.0 GiB do not fit: 0\.5 GiB are free"):
        stage(folder.staging(data=DataSpec("s3://sets/digits/")))
    assert [call for call, _ in folder.data.calls] == ["list"]


def test_a_storage_that_does_not_answer_is_asked_again_after_a_pause(with_data) -> None:
    with_data.data.fail("get", times=2)
    assert staged(with_data.staging(), with_data.clock).ok
    assert with_data.clock.time - with_data.clock.start == sum(STAGE_PAUSES)


def test_a_storage_that_never_answers_is_an_outcome(with_data) -> None:
    with_data.data.fail("get", times=3)
    outcome = staged(with_data.staging(), with_data.clock)
    assert (outcome.ok, outcome.final, outcome.message) == (False, True, "s3://sets: injected")


def test_a_refusal_is_not_asked_twice(with_data) -> None:
    with_data.data.fail("get", times=9, error=StoreRefused("s3://sets/digits.tar: AccessDenied: no"))
    outcome = staged(with_data.staging(), with_data.clock)
    assert outcome.message == "s3://sets/digits.tar: AccessDenied: no"
    assert with_data.clock.time == with_data.clock.start


def test_a_data_set_error_carries_its_hint(folder) -> None:
    folder.data.objects["digits.tar"] = b"no archive"
    outcome = staged(folder.staging(), folder.clock)
    assert not outcome.ok
    assert "not a readable archive" in outcome.message
    assert "make or download it again" in outcome.message


def test_the_report_is_renewed_while_bytes_move(with_data) -> None:
    work = with_data.staging()
    with_data.clock.time += 10
    stage(work)
    assert work.report.outcome.bytes == len(with_data.data.objects["digits.tar"])
    assert with_data.paths.stage_outcome.exists()


def test_two_tasks_are_restored_apart(with_data) -> None:
    with_data.save(20, task="b")
    store_a_checkpoint(with_data, 30)
    with_data.paths.task("b").root.rename(with_data.paths.tasks / "old-b")
    outcome = stage(with_data.staging())
    assert with_data.paths.task("b").last.read_text() == "weights at 20"
    assert outcome.checkpoint.step == 30
    assert replace(outcome, checkpoint=None).message == ""
