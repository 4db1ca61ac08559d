"""Results come from the storage verified, into the user's folder and nowhere else."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from memory_object_store import FakeStore
from run_cases import RUN_ID, opened

from launcher.results import OWNER, Collected, ResultsDamaged, collect, kept_results, moved_folder, sha256_of
from launcher.run import opened as open_run
from launcher.storage.interface import StorageError
from remote import protocol
from remote.protocol import ArtifactFile, ArtifactList, StoredRun

FILES = {"best.pt": b"best weights", "results.csv": b"epoch,map50\n", "plots/pr.png": b"png"}


@pytest.fixture
def run(tmp_path):
    return open_run(opened(results_dir=str(tmp_path / "runs" / "job")))


def stored(*tasks, files=FILES, damage=None):
    store = FakeStore()
    for task in tasks:
        listed = [ArtifactFile(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in files.items()]
        for name, content in files.items():
            store.objects[StoredRun(RUN_ID).artifact(task, name)] = b"torn" if name == damage else content
        text = protocol.encode(ArtifactList(task, listed, 1.0))
        store.objects[StoredRun(RUN_ID).artifacts(task)] = text.encode()
    return store


def test_the_files_of_one_training_lie_in_the_results_folder(tmp_path, run):
    assert collect(run, ("job",), stored("job")) == Collected(3, (), 27)
    folder = tmp_path / "runs" / "job"
    assert {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == {
        **FILES, OWNER: f"{RUN_ID}\n".encode(),
    }  # fmt: skip


def test_a_later_run_of_the_same_name_moves_the_results_of_the_one_before_aside_whole(tmp_path, run):
    collect(run, ("job",), stored("job"))
    folder = tmp_path / "runs" / "job"
    later_id = RUN_ID.replace("-", "-f", 1)
    later = replace(run, opened=replace(run.opened, run_id=later_id))
    store = FakeStore()
    collect(later, ("job",), store)  # it has nothing: nothing is moved for it
    assert kept_results(run) == folder
    store.objects |= {key.replace(RUN_ID, later_id): value for key, value in stored("job").objects.items()}
    (folder / "notes.txt").write_text("mine")
    collect(later, ("job",), store)
    moved = moved_folder(folder, RUN_ID)
    assert (moved / "notes.txt").read_text() == "mine"
    assert not (folder / "notes.txt").exists()
    assert kept_results(run) == moved
    assert kept_results(later) == folder


def test_there_are_no_results_where_the_folder_is_another_runs(tmp_path, run):
    assert kept_results(run) is None
    (tmp_path / "runs" / "job").mkdir(parents=True)
    (tmp_path / "runs" / "job" / OWNER).write_text("another\n")
    assert kept_results(run) is None


@pytest.mark.parametrize("said", ["x/../../../elsewhere", "/elsewhere", "..", "", "\0"])
def test_what_says_whose_a_folder_is_leads_nowhere_else(tmp_path, run, said):
    folder = tmp_path / "runs" / "job"
    folder.mkdir(parents=True)
    (folder / OWNER).write_text(f"{said}\n")
    (folder / "notes.txt").write_text("mine")
    collect(run, ("job",), stored("job"))
    assert (folder / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["job"]


def test_several_trainings_get_a_folder_each(tmp_path, run):
    assert collect(run, ("a", "b"), stored("a", "b")).files == 6
    assert (tmp_path / "runs/job/a/best.pt").read_bytes() == b"best weights"
    assert (tmp_path / "runs/job/b/plots/pr.png").exists()


def test_a_training_without_a_finished_upload_is_named(run):
    assert collect(run, ("a", "b"), stored("b")) == Collected(3, ("a",), 27)


def test_what_is_there_already_is_left_alone_and_what_differs_is_fetched_again(tmp_path, run):
    store = stored("job")
    collect(run, ("job",), store)
    (tmp_path / "runs/job/best.pt").write_bytes(b"older")
    before = len(store.calls)
    assert collect(run, ("job",), store).files == 1
    assert [call for call, _ in store.calls[before:]] == ["get", "download"]


def test_a_file_that_is_not_what_was_uploaded_is_taken_away_again(tmp_path, run):
    with pytest.raises(ResultsDamaged, match=r"best\.pt of job arrived damaged") as error:
        collect(run, ("job",), stored("job", damage="best.pt"))
    assert not (tmp_path / "runs/job/best.pt").exists()
    assert "gpucost resume" in error.value.hint


@pytest.mark.parametrize("name", ["../escape.txt", "/etc/escape", "a/../../escape", "", "."])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path, run, name):
    store = stored("job", files={name: b"x"})
    with pytest.raises(ResultsDamaged, match="outside the folder"):
        collect(run, ("job",), store)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [OWNER]


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b'{"schema": 99}', b'{"schema": 1, "task": "job"}'])
def test_a_list_that_cannot_be_read_is_named_with_its_place(run, text):
    store = stored("job")
    store.objects[StoredRun(RUN_ID).artifacts("job")] = text
    with pytest.raises(ResultsDamaged) as error:
        collect(run, ("job",), store)
    assert error.value.hint


def test_a_storage_that_cannot_be_reached_is_the_storages_error(run):
    store = stored("job")
    store.down = True
    with pytest.raises(StorageError):
        collect(run, ("job",), store)


def test_a_digest_is_of_the_whole_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_000)
    assert sha256_of(path) == hashlib.sha256(b"x" * 3_000_000).hexdigest()


def test_a_run_of_another_id_has_other_results(run):
    other = replace(run, opened=replace(run.opened, run_id="other"))
    assert collect(other, ("job",), stored("job")) == Collected(0, ("job",))
