"""A set elsewhere: everything that names tell, a sample of the rest, and only a part of the bytes read."""

import random
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from remote.dataset import DatasetError, Split, check_sample, open_dataset, open_packed, sampling, summary, tarwalk
from remote.dataset.elsewhere import evenly
from remote.dataset.sampling import PICTURES
from tests.fakes.data_sets import BOX, YAML, write_picture

MakeSet = Callable[..., Path]


def packed(archive: Path, root: Path, names: Iterable[str] | None = None) -> Path:
    """The files of a folder in a .zip or .tar, in this order or sorted, stored as they are."""
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    wanted = found if names is None else names
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as out:
            for name in wanted:
                out.write(root / name, f"set/{name}")
    else:
        with tarfile.open(archive, "w") as tar:
            for name in wanted:
                tar.add(root / name, f"set/{name}")
    return archive


def opened(archive: Path):
    content = archive.read_bytes()
    return open_packed(archive.name, len(content), lambda span: content[span.start : span.stop])


def sample(archive: Path):
    return check_sample(opened(archive), archive.parent / "scratch" / archive.name)


def make_heavy(root: Path, count: int, heavy: int) -> Path:
    """A set whose pictures are heavier than their pixels: what follows a picture's end is not looked at."""
    noise = random.Random(3)  # noqa: S311
    for number in range(count):
        split = "val" if number % 5 == 0 else "train"
        picture = write_picture(root / "images" / split / f"{number:04d}.png", shade=number % 250)
        with picture.open("ab") as file:
            file.write(noise.randbytes(heavy))
        label = root / "labels" / split / f"{number:04d}.txt"
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text(f"{number % 2} 0.5 0.5 0.2 0.2\n")
    (root / "data.yaml").write_text(YAML)
    return root


@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_a_small_set_has_the_numbers_that_it_has_when_it_is_here(make_set: MakeSet, tmp_path: Path, suffix: str):
    root = make_set({"a": BOX + "1 0.5 0.5 0.3 0.3\n", "b": BOX, "c": None}, {"v": BOX})
    found, here = sample(packed(tmp_path / f"set{suffix}", root)), summary(open_dataset(root))
    assert found.names == here.names
    assert [(s.split, s.pictures, s.label_files, s.labels_read, s.objects) for s in found.splits] == [
        (Split.TRAIN, 3, 2, 2, here.splits[0].objects),
        (Split.VAL, 1, 1, 1, here.splits[1].objects),
    ]
    assert [split.pictures_read for split in found.splits] == [2, 1]
    assert found.notes == ()
    assert found.lines()[0] == (
        "train: 3 pictures, 1 of them without a label file, 2 of them opened; "
        "all of 2 label files read: 3 objects (first 2, second 1)"
    )


@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_a_large_set_is_counted_whole_and_read_in_part(tmp_path: Path, suffix: str):
    archive = packed(tmp_path / f"set{suffix}", make_heavy(tmp_path / "set", 300, 80_000))
    found = sample(archive)
    assert [(split.pictures, split.labels_read, sum(split.objects)) for split in found.splits] == [
        (240, 240, 240),
        (60, 60, 60),
    ]
    assert found.traffic.bytes_there == archive.stat().st_size
    assert found.traffic.bytes_read < 0.3 * archive.stat().st_size
    assert [split.pictures_read for split in found.splits] == [PICTURES, PICTURES]


def test_the_directory_and_the_labels_of_a_zip_take_few_requests(tmp_path: Path):
    found = sample(packed(tmp_path / "set.zip", make_heavy(tmp_path / "set", 300, 40_000)))
    assert found.traffic.requests <= 3 + 2 + 2 * PICTURES + 1


def test_where_labels_lie_apart_only_a_sample_of_them_is_read_and_said_so(tmp_path: Path):
    root = make_heavy(tmp_path / "set", 300, 70_000)
    stems = [f"{'train' if number % 5 else 'val'}/{number:04d}" for number in range(300)]
    names = ["data.yaml", *(name for stem in stems for name in (f"images/{stem}.png", f"labels/{stem}.txt"))]
    found = sample(packed(tmp_path / "set.zip", root, names))
    train, val = found.splits
    assert (train.pictures, train.label_files, train.labels_read) == (240, 240, 48)
    assert 0 < val.labels_read < val.label_files == 60
    assert sum(train.objects) == 48
    assert min(train.objects) > 10, "spread over all of them"
    assert "a sample of 48 of 240 label files read: 48 objects" in found.lines()[0]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda root: (root / "labels/train/b.txt").write_text("7 0.5 0.5 0.1 0.1"), r"b\.txt:1: class 7, allowed 0-1"),
        (lambda root: (root / "labels/train/b.txt").write_text("0 1 2 3"), r"b\.txt:1: 4 columns"),
        (lambda root: (root / "labels/val/v.txt").unlink(), "no labels for any of the 1 pictures of `val`; looked in"),
        (lambda root: (root / "data.yaml").write_text(YAML.replace("val:", "vol:")), "`val` is missing"),
        (lambda root: (root / "data.yaml").write_text(YAML.replace("images/val", "x")), "no such folder"),
        (lambda root: (root / "data.yaml").unlink(), r"no data\.yaml"),
        (lambda root: (root / "images/val/v.png").rename(root / "v.png"), "set/images/val"),
    ],
    ids=["class", "columns", "no labels", "no val", "no folder", "no data.yaml", "no pictures"],
)
@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_what_cannot_be_trained_on_is_refused_like_a_set_that_is_here(
    make_set: MakeSet, tmp_path: Path, suffix, spoil, says
):
    root = make_set()
    spoil(root)
    with pytest.raises(DatasetError, match=says) as caught:
        sample(packed(tmp_path / f"set{suffix}", root))
    assert caught.value.hint


def test_pictures_that_do_not_open_are_told(make_set: MakeSet, tmp_path: Path):
    root = make_set()
    (root / "images/train/b.png").write_text("<html>")
    assert [str(note) for note in sample(packed(tmp_path / "set.zip", root)).notes] == [
        f"{tmp_path}/scratch/set.zip/set/images/train/b.png: is a web page, not a picture"
    ]


def test_empty_pictures_are_all_known_without_reading(tmp_path: Path):
    root = make_heavy(tmp_path / "set", 100, 10)
    empty = [root / f"images/train/{number:04d}.png" for number in range(100) if number % 5]
    for picture in empty:
        picture.write_bytes(b"")
    found = sample(packed(tmp_path / "set.zip", root))
    assert len(found.notes) == len(empty)
    assert all(note.text == "is empty (0 bytes)" for note in found.notes)


def test_every_copy_in_val_is_known_from_the_directory_of_a_zip(tmp_path: Path):
    root = make_heavy(tmp_path / "set", 200, 50)
    for number in range(0, 200, 10):
        twin = (root / f"images/train/{number + 1:04d}.png").read_bytes()
        (root / f"images/val/{number:04d}.png").write_bytes(twin)
    (note,) = sample(packed(tmp_path / "set.zip", root)).notes
    assert note.text == "20 of 40 pictures of val are copies of pictures of train (0000.png is 0001.png)"


def test_train_and_val_of_the_same_files_are_told(make_set: MakeSet, tmp_path: Path):
    root = make_set(yaml=YAML.replace("images/val", "images/train"))
    (note,) = sample(packed(tmp_path / "set.tar", root)).notes
    assert note.text.startswith("train and val are the same pictures")


def test_a_set_that_is_made_to_fill_a_disk_does_not(make_set: MakeSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling, "MOST_BYTES", 2000)
    root = make_set(dict.fromkeys("abcdefgh", BOX * 30))
    (train, _) = sample(packed(tmp_path / "set.zip", root)).splits
    assert (train.label_files, train.labels_read) == (8, 3)


def test_a_label_file_that_is_far_too_large_is_not_read(
    make_set: MakeSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sampling, "LARGEST_LABEL", 100)
    root = make_set({"a": BOX, "b": BOX * 30})
    assert sample(packed(tmp_path / "set.zip", root)).splits[0].labels_read == 1


def test_list_files_are_read(make_set: MakeSet, tmp_path: Path):
    root = make_set(yaml=YAML.replace("images/train", "lists/train.txt"))
    (root / "lists").mkdir()
    (root / "lists/train.txt").write_text("../images/train/b.png\nD:\\x\\images\\train\\a.png\n")
    assert [split.pictures for split in sample(packed(tmp_path / "set.zip", root)).splits] == [2, 1]


def test_a_place_of_this_machine_is_not_taken_for_one_of_the_set(make_set: MakeSet, tmp_path: Path):
    here = write_picture(tmp_path / "here/images/a.png").parent
    (tmp_path / "here/labels").mkdir()
    (tmp_path / "here/labels/a.txt").write_text(BOX)
    root = make_set(yaml=YAML.replace("images/train", str(here)))
    with pytest.raises(DatasetError, match=r"is on this machine, not in set\.zip") as caught:
        sample(packed(tmp_path / "set.zip", root))
    assert "start from its own folder" in caught.value.hint


def test_another_layout_is_told_by_name(tmp_path: Path):
    write_picture(tmp_path / "voc/JPEGImages/a.png")
    (tmp_path / "voc/Annotations").mkdir()
    (tmp_path / "voc/Annotations/a.xml").write_text("<annotation/>")
    with pytest.raises(DatasetError, match="no data") as caught:
        sample(packed(tmp_path / "voc.zip", tmp_path / "voc"))
    assert "this is Pascal VOC" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("set.zip", b"PK\x03\x04 and nothing", "not a readable archive"),
        ("set.tar", b"nothing of the kind" * 100, "not a readable archive"),
        ("set.zip", b"", "not a readable archive"),
        ("set.tar.gz", b"", "cannot be checked without reading all of it"),
        ("set.rar", b"", "cannot be checked without reading all of it"),
    ],
)
def test_what_is_no_archive_is_refused_in_words(tmp_path: Path, name: str, content: bytes, says: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=says) as caught:
        opened(tmp_path / name)
    assert str(caught.value).startswith(name)
    assert caught.value.hint


@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_a_member_that_climbs_out_is_refused(tmp_path: Path, suffix: str):
    (tmp_path / "a").write_bytes(b"x")
    archive = tmp_path / f"up{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as out:
            out.write(tmp_path / "a", "../../escaped")
    else:
        with tarfile.open(archive, "w") as tar:
            tar.add(tmp_path / "a", "../../escaped")
    with pytest.raises(DatasetError, match="escaped' refused"):
        opened(archive)


def test_a_file_that_is_a_folder_too_is_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as out:
        out.writestr("a", "x")
        out.writestr("a/b", "x")
    with pytest.raises(DatasetError, match=r"^odd\.zip: ") as caught:
        sample(tmp_path / "odd.zip")
    assert caught.value.hint


def test_a_member_that_was_damaged_is_named_by_its_archive(make_set: MakeSet, tmp_path: Path):
    archive = packed(tmp_path / "set.zip", make_set())
    content = bytearray(archive.read_bytes())
    place = content.index(b"PK\x03\x04", 10)
    content[place : place + 4] = struct.pack("<I", 0)
    archive.write_bytes(bytes(content))
    with pytest.raises(DatasetError, match=r"set\.zip: not a readable archive"):
        sample(archive)


def test_an_archive_whose_beginning_is_gone_is_refused(make_set: MakeSet, tmp_path: Path):
    archive = packed(tmp_path / "set.zip", make_set())
    archive.write_bytes(archive.read_bytes()[40:])
    with pytest.raises(DatasetError, match=r"set\.zip: not a readable archive"):
        sample(archive)


def test_a_tar_with_too_many_members_is_refused_with_a_better_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tarwalk, "PART_REQUESTS", 20)
    archive = packed(tmp_path / "set.tar", make_heavy(tmp_path / "set", 100, 40_000))
    with pytest.raises(DatasetError, match=r"^set\.tar: has too many members") as caught:
        opened(archive)
    assert "pack it as a .zip" in caught.value.hint


@pytest.mark.parametrize(("count", "most"), [(0, 5), (5, 5), (6, 5), (1000, 7), (1000, 100)])
def test_a_sample_is_spread_evenly(count: int, most: int):
    chosen = evenly(range(count), most)
    assert len(chosen) == min(count, most)
    assert chosen == sorted(set(chosen))
    gaps = [after - before for before, after in pairwise([-1, *chosen, count])]
    assert max(gaps) <= 2 * -(-count // most) or not count


def test_a_sample_does_not_fall_into_the_rhythm_of_a_set():
    places = evenly(range(1000), 100)
    assert 30 < sum(place % 2 for place in places) < 70
    assert evenly(range(1000), 100) == places
