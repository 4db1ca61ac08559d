"""What is staged: what training needs, the same bytes for the same content."""

import shutil
import tarfile
from pathlib import Path

import pytest

from launcher.staging_archive import pack
from remote.dataset import Dataset, DatasetError, extract, open_dataset, summary
from tests.fakes.data_sets import BOX, YAML, make_set, write_split


def contents(dataset: Dataset) -> list[tuple[str, bytes, int]]:
    return [(s.image.name, s.image.read_bytes(), len(s.objects)) for s in (*dataset.train, *dataset.val, *dataset.test)]


def names(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_a_packed_set_opens_again_with_the_same_pictures_and_objects(tmp_path: Path):
    root = make_set(tmp_path / "set", train={"a": BOX, "b": None, "ü 1": BOX})
    packed = pack(root, tmp_path / "out" / "set.tar")
    assert (packed.files, packed.size) == (4, packed.path.stat().st_size)
    extract(packed.path, tmp_path / "again")
    again = open_dataset(tmp_path / "again")
    assert contents(again) == contents(open_dataset(root))
    assert again.names == ("first", "second")
    assert not again.notes
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["set.tar"]


def test_the_same_content_has_the_same_digest_whatever_its_place_and_times(tmp_path: Path):
    first = pack(make_set(tmp_path / "one"), tmp_path / "1.tar")
    shutil.copytree(tmp_path / "one", tmp_path / "else" / "where")
    for path in (tmp_path / "else").rglob("*"):
        path.touch()
        path.chmod(0o700)
    second = pack(tmp_path / "else" / "where", tmp_path / "2.tar")
    assert second.sha256 == first.sha256
    assert (tmp_path / "2.tar").read_bytes() == (tmp_path / "1.tar").read_bytes()
    (tmp_path / "one/labels/train/a.txt").write_text(BOX.replace("0.2", "0.3"))
    assert pack(tmp_path / "one", tmp_path / "3.tar").sha256 != first.sha256


def test_a_set_in_an_odd_layout_is_packed_in_the_standard_one(tmp_path: Path):
    standard = pack(make_set(tmp_path / "standard", yaml=YAML), tmp_path / "1.tar")
    odd = make_set(
        tmp_path / "odd", yaml="path: D:\\gone\nval: ../val/images\ntrain: train.txt\nnames: [first, second]\n"
    )
    for split in ("train", "val"):
        (odd / split).mkdir()
        for kind in ("images", "labels"):
            (odd / kind / split).rename(odd / split / kind)
    (odd / "train.txt").write_text("train/images/b.png\ntrain/images/a.png\n")
    (odd / "secret.env").write_text("not training data")
    assert pack(odd, tmp_path / "2.tar").sha256 == standard.sha256
    assert names(tmp_path / "2.tar") == [
        "data.yaml", "images/train/a.png", "images/train/b.png", "labels/train/a.txt", "labels/train/b.txt",
        "images/val/v.png", "labels/val/v.txt",
    ]  # fmt: skip


def test_pictures_of_the_same_name_in_several_folders_stay_apart(tmp_path: Path):
    yaml = "train: [images/one, images/two, images/two/images]\nval: images/val\nnames: [a]\n"
    root = make_set(tmp_path / "set", yaml=yaml)
    for number, split in enumerate(("one", "two", "two/images")):
        write_split(root, split, {"same": BOX * (number > 0)})
    pack(root, tmp_path / "set.tar")
    extract(tmp_path / "set.tar", tmp_path / "again")
    again = open_dataset(tmp_path / "again")
    assert len(again.train) == 3
    assert sorted(contents(again)) == sorted(contents(open_dataset(root)))


def test_pictures_that_are_not_used_stay_out(tmp_path: Path):
    root = make_set(tmp_path / "set")
    (root / "images/train/a.png").write_bytes(b"")
    assert pack(root, tmp_path / "set.tar").files == 2
    assert "images/train/a.png" not in names(tmp_path / "set.tar")


def test_a_set_that_cannot_be_used_or_written_is_refused_and_nothing_is_left(tmp_path: Path):
    with pytest.raises(DatasetError, match="no such folder"):
        pack(tmp_path / "none", tmp_path / "out" / "x.tar")
    dataset = open_dataset(make_set(tmp_path / "set"))
    dataset.val[0].image.unlink()
    with pytest.raises(DatasetError, match=r"cannot be packed into .*v\.png"):
        pack(dataset, tmp_path / "out" / "x.tar")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_summary_of_a_packed_set_is_that_of_the_original(tmp_path: Path):
    root = make_set(tmp_path / "set", yaml=YAML + "test: images/test\n")
    write_split(root, "test", {"t": BOX})
    extract(pack(root, tmp_path / "set.tar").path, tmp_path / "again")
    assert summary(open_dataset(tmp_path / "again")) == summary(open_dataset(root))
