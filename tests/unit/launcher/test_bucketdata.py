"""Data in a bucket is checked where it is, through the launcher's storage port."""

from __future__ import annotations

import zipfile

import pytest
from data_sets import BOX, make_set
from memory_object_store import FakeStore

from launcher.bucketdata import sampled, sampled_in
from launcher.errors import BadInput
from launcher.home import Home
from launcher.storage.interface import StorageError


def stored(root):
    """A store with the files of a set, each an object below `set/`, and with the set as `set.zip`."""
    store = FakeStore("s3://bucket/sets")
    names = [path for path in sorted(root.rglob("*")) if path.is_file()]
    with zipfile.ZipFile(root.parent / "set.zip", "w") as out:
        for path in names:
            out.write(path, path.relative_to(root.parent))
    store.objects["set.zip"] = (root.parent / "set.zip").read_bytes()
    below = FakeStore("s3://bucket/sets/set", {str(path.relative_to(root)): path.read_bytes() for path in names})
    return {"set.zip": (store, "set.zip", "set/"), "prefix": (below, "", "")}


@pytest.fixture(params=["set.zip", "prefix"])
def form(request):
    return request.param


def test_a_set_is_told_in_numbers(tmp_path, form):
    store, key, _ = stored(make_set(tmp_path / "set"))[form]
    found = sampled_in(store, key)
    assert [(split.pictures, split.labels_read, split.pictures_read) for split in found.splits] == [
        (2, 2, 2),
        (1, 1, 1),
    ]
    assert found.notes == ()
    assert found.traffic.bytes_read > 0
    assert found.traffic.requests >= 1


def test_notes_and_errors_name_files_as_they_are_called_there(tmp_path, form):
    store, key, inner = stored(make_set(tmp_path / "set", {"a": BOX + BOX, "b": BOX}))[form]
    assert [str(note) for note in sampled_in(store, key).notes] == [
        f"{inner}labels/train/a.txt:2: 1 duplicate row removed"
    ]
    store, key, inner = stored(make_set(tmp_path / "set", {"a": BOX, "b": "7 0.5 0.5 0.1 0.1"}))[form]
    with pytest.raises(BadInput) as error:
        sampled_in(store, key)
    assert str(error.value) == f"{inner}labels/train/b.txt:1: class 7, allowed 0-1"
    assert error.value.hint


def test_what_is_not_there_is_said_with_its_url(tmp_path, form):
    store, key = (FakeStore("s3://bucket/sets"), "none.zip" if form == "set.zip" else "")
    with pytest.raises(BadInput, match=f"there is nothing at s3://bucket/sets/{key}") as error:
        sampled_in(store, key)
    assert "archive, or a prefix ending in /" in error.value.hint


def test_a_storage_that_fails_is_its_own_error(tmp_path, form):
    store, key, _ = stored(make_set(tmp_path / "set"))[form]
    store.fail("get")
    with pytest.raises(StorageError, match="cannot be reached"):
        sampled_in(store, key)


def test_an_object_that_goes_meanwhile_is_named(tmp_path):
    store, key, _ = stored(make_set(tmp_path / "set"))["prefix"]
    store.after_call = lambda call: store.objects.pop("labels/train/b.txt", None) if call == "store.get" else None
    with pytest.raises(BadInput, match=r"s3://bucket/sets/set/labels/train/b\.txt: is gone"):
        sampled_in(store, key)


def test_objects_that_can_be_no_files_are_left_out(tmp_path):
    store, key, _ = stored(make_set(tmp_path / "set"))["prefix"]
    for odd in ("", "images/", "a//b", "../up", "/etc/passwd", "./x", "a\0b"):
        store.objects[odd] = b""
    assert [split.pictures for split in sampled_in(store, key).splits] == [2, 1]


@pytest.mark.parametrize("url", ["s3://", "s3://bucket", "https://host/set.zip", "gs://bucket/set.zip"])
def test_a_url_that_cannot_be_read_is_refused_before_anything_is_asked(tmp_path, url):
    with pytest.raises(BadInput, match="cannot be read") as error:
        sampled(url, Home(tmp_path))
    assert "s3://bucket/" in error.value.hint
