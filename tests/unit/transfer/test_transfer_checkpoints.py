"""Checkpoints in the storage: order of writing, retention, verification."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from remote_store import MemoryStore

from remote import protocol
from remote.protocol import Manifest, StoredRun, TaskProgress
from remote.transfer.checkpoints import KEPT, TaskCheckpoints
from remote.transfer.store import StoreError

FOLDER = StoredRun("run").checkpoints("a")


@pytest.fixture
def checkpoints(folder) -> TaskCheckpoints:
    return TaskCheckpoints(folder.store, StoredRun("run"), "a", folder.paths.transfer)


def commit(checkpoints: TaskCheckpoints, folder, step: int, content: str = ""):
    source = folder.paths.transfer / "source"
    source.write_text(content or f"weights at {step}")
    checkpoint = checkpoints.commit(source, TaskProgress(step // 10, 9, step, 90, 1.0), at=float(step))
    checkpoints.prune(checkpoint.key.rsplit("/", 1)[1])
    return checkpoint


def test_the_object_is_there_before_its_manifest(checkpoints, folder) -> None:
    checkpoint = commit(checkpoints, folder, 20)
    puts = [key for call, key in folder.store.calls if call == "put"]
    assert [key.rsplit(".", 1)[1] for key in puts] == ["pt", "json"]
    assert checkpoint.key == f"s3://bucket/out/{puts[0]}"
    assert (checkpoint.epoch, checkpoint.step) == (2, 20)


def test_a_manifest_that_did_not_get_through_makes_no_checkpoint(checkpoints, folder, tmp_path: Path) -> None:
    folder.store.fail("put", ".json")
    with pytest.raises(StoreError):
        commit(checkpoints, folder, 20)
    assert checkpoints.restore(tmp_path / "last.pt") == (None, [])
    commit(checkpoints, folder, 20)
    assert len(folder.manifests()) == 1


def test_the_same_content_is_sent_once(checkpoints, folder) -> None:
    first = commit(checkpoints, folder, 20, "same")
    second = commit(checkpoints, folder, 0, "same")
    assert first == second
    assert [call for call, _ in folder.store.calls].count("put") == 2


def test_two_are_kept_and_manifests_go_before_their_objects(checkpoints, folder) -> None:
    for step in (10, 20, 30):
        commit(checkpoints, folder, step)
    assert [manifest.step for manifest in folder.manifests()] == [20, 30]
    assert len(folder.objects()) == 4
    deleted = [key for call, key in folder.store.calls if call == "delete"]
    assert [key.rsplit(".", 1)[1] for key in deleted] == ["json", "pt"]


def test_a_prune_that_died_half_way_is_finished_by_the_next(checkpoints, folder, tmp_path: Path) -> None:
    for step in (10, 20):
        commit(checkpoints, folder, step)
    folder.store.fail("delete", ".pt")
    with pytest.raises(StoreError):
        commit(checkpoints, folder, 30)
    assert checkpoints.restore(tmp_path / "last.pt")[0].step == 30
    commit(checkpoints, folder, 40)
    assert len(folder.objects()) == 4


def steps(folder) -> list[int]:
    return [manifest.step for manifest in folder.manifests()]


def test_a_training_that_began_anew_keeps_its_better_past_and_its_own_until_it_has_passed_it(
    checkpoints, folder, tmp_path: Path
) -> None:
    kept = []
    for step in (450, 500, 10, 20, 30, 490, 510, 520):
        commit(checkpoints, folder, step)
        kept.append(steps(folder))
    assert kept[:5] == [[450], [450, 500], [10, 450, 500], [10, 20, 450, 500], [20, 30, 450, 500]]
    assert kept[5:] == [[450, 490, 500], [500, 510], [510, 520]]
    assert checkpoints.restore(tmp_path / "last.pt")[0].step == 520


def test_the_better_past_is_what_a_new_machine_gets(checkpoints, folder, tmp_path: Path) -> None:
    for step in (500, 10, 20):
        commit(checkpoints, folder, step)
    assert checkpoints.restore(tmp_path / "last.pt")[0].step == 500


def test_a_furthest_one_that_is_torn_does_not_take_the_place_of_a_good_one(checkpoints, folder, tmp_path) -> None:
    for step in (440, 450):
        commit(checkpoints, folder, step)
    torn = FOLDER + commit(checkpoints, folder, 500).key.rsplit("/", 1)[1]
    folder.store.objects[torn] = b"torn"
    assert checkpoints.restore(tmp_path / "last.pt")[0].step == 450
    for step in (460, 470, 480):
        commit(checkpoints, folder, step)
        whole = [found for found in steps(folder) if found != 500]
        assert len(whole) >= 2, "a second fault loses no more than an interval"


def test_of_two_at_the_same_step_the_later_one_wins(checkpoints, folder, tmp_path: Path) -> None:
    commit(checkpoints, folder, 20, "first")
    source = folder.paths.transfer / "source"
    source.write_text("second")
    checkpoints.commit(source, TaskProgress(2, 9, 20, 90, 1.0), at=21.0)
    checkpoints.restore(tmp_path / "last.pt")
    assert (tmp_path / "last.pt").read_text() == "second"


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_no_order_of_steps_loses_the_newest_or_the_furthest_or_keeps_everything(order: list[int]) -> None:
    store = MemoryStore()
    with TemporaryDirectory() as scratch:
        checkpoints = TaskCheckpoints(store, StoredRun("run"), "a", Path(scratch))
        for number, step in enumerate(order):
            source = Path(scratch) / "source"
            source.write_text(f"{number}")
            new = checkpoints.commit(source, TaskProgress(0, 9, step, 90, 1.0), at=float(number))
            checkpoints.prune(new.key.rsplit("/", 1)[1])
            kept = checkpoints.newest_first().manifests
            assert max(order[: number + 1]) == kept[0].step
            assert new.sha256 in [manifest.sha256 for manifest in kept]
            assert min(2, number + 1) <= len(kept) <= 2 * KEPT
            assert all(FOLDER + manifest.key in store.objects for manifest in kept)


def test_the_step_is_the_one_that_the_trainer_tells_of_its_checkpoint(checkpoints, folder) -> None:
    source = folder.paths.transfer / "source"
    source.write_text("weights")
    told = TaskProgress(2, 9, 25, 90, 1.0, saved_step=20)
    assert checkpoints.commit(source, told, at=1.0).step == 20


def test_a_manifest_that_is_no_text_is_skipped_with_a_warning(checkpoints, folder, tmp_path: Path) -> None:
    folder.store.objects[f"{FOLDER}0000000099-abcdef01.json"] = b"\xff\xfe"
    assert "skipped" in checkpoints.restore(tmp_path / "last.pt")[1][0]


def test_a_file_of_somebody_else_is_not_removed(checkpoints, folder) -> None:
    folder.store.objects[f"{FOLDER}notes.txt"] = b"mine"
    for step in (10, 20, 30):
        commit(checkpoints, folder, step)
    assert f"{FOLDER}notes.txt" in folder.store.objects


def test_the_newest_whole_one_is_restored(checkpoints, folder, tmp_path: Path) -> None:
    for step in (10, 20):
        commit(checkpoints, folder, step)
    checkpoint, warnings = checkpoints.restore(tmp_path / "weights" / "last.pt")
    assert (checkpoint.step, warnings) == (20, [])
    assert (tmp_path / "weights" / "last.pt").read_text() == "weights at 20"


DAMAGE = pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda body: body[:-1], "bytes, its manifest says"),
        (lambda body: b"X" + body[1:], "its content is not what its manifest says"),
        (lambda body: None, "its object is missing"),
    ],
    ids=["torn", "changed", "missing"],
)


def hurt(folder, checkpoint, damage) -> None:
    key = FOLDER + checkpoint.key.rsplit("/", 1)[1]
    damaged = damage(folder.store.objects.pop(key))
    if damaged is not None:
        folder.store.objects[key] = damaged


@DAMAGE
def test_l10_a_damaged_newest_one_is_skipped_with_a_warning(checkpoints, folder, tmp_path, damage, said) -> None:
    commit(checkpoints, folder, 10)
    hurt(folder, commit(checkpoints, folder, 20), damage)
    checkpoint, warnings = checkpoints.restore(tmp_path / "last.pt")
    assert checkpoint.step == 10
    assert len(warnings) == 1
    assert said in warnings[0]
    assert (tmp_path / "last.pt").read_text() == "weights at 10"
    assert list(folder.paths.transfer.glob("*.restore.pt")) == []


@DAMAGE
def test_a_damaged_one_that_is_still_on_the_disk_is_stored_whole_again(
    checkpoints, folder, tmp_path, damage, said
) -> None:
    first = commit(checkpoints, folder, 20)
    hurt(folder, first, damage)
    assert checkpoints.restore(tmp_path / "none.pt")[0] is None, said
    assert commit(checkpoints, folder, 20) == first
    assert checkpoints.restore(tmp_path / "last.pt") == (first, [])


def test_a_torn_one_is_stored_again_by_a_program_that_has_never_read_it(checkpoints, folder, tmp_path) -> None:
    first = commit(checkpoints, folder, 20)
    hurt(folder, first, lambda body: body[:-1])
    fresh = TaskCheckpoints(folder.store, StoredRun("run"), "a", folder.paths.transfer)
    assert commit(fresh, folder, 20) == first
    assert fresh.restore(tmp_path / "last.pt") == (first, [])


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (Manifest("b", 9, 99, "0000000099-abcdef01.pt", "ab", 5, 1.0), "it is of 'b'"),
        (Manifest("a", 9, 99, "../../b/checkpoints/x.pt", "ab", 5, 1.0), "names '../../b/checkpoints/x.pt'"),
        (None, "not JSON"),
    ],
    ids=["another task", "another folder", "garbage"],
)
def test_a_foreign_manifest_is_skipped_with_a_warning(checkpoints, folder, tmp_path, manifest, said) -> None:
    commit(checkpoints, folder, 10)
    body = b"{" if manifest is None else protocol.encode(manifest).encode()
    folder.store.objects[f"{FOLDER}0000000099-abcdef01.json"] = body
    checkpoint, warnings = checkpoints.restore(tmp_path / "last.pt")
    assert checkpoint.step == 10
    assert said in warnings[0]


def test_a_storage_that_fails_is_not_an_empty_one(checkpoints, folder, tmp_path: Path) -> None:
    commit(checkpoints, folder, 10)
    folder.store.fail("read", ".json")
    with pytest.raises(StoreError):
        checkpoints.restore(tmp_path / "last.pt")
