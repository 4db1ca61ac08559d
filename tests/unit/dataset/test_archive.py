"""No archive writes outside its folder, fills the disk or ends in a traceback."""

import gzip
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from remote.dataset import DatasetError, extract, find_root, list_archive
from remote.dataset.archive import RATIO_FREE_BYTES


def tar_of(path: Path, *members: tuple[str | tarfile.TarInfo, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def zip_of(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, data in members:
            opened.writestr(name, data)
    return path


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def zip_link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


GOOD = (("set/data.yaml", b"names: [a]"), ("set/images/train/a b.jpg", b"x"), ("set/empty.txt", b""))


@pytest.mark.parametrize(
    "make",
    [
        lambda path: tar_of(path / "a.tar", *GOOD),
        lambda path: tar_of(path / "a.tar.gz", *GOOD, mode="w:gz"),
        lambda path: zip_of(path / "a.zip", *GOOD),
        lambda path: zip_of(path / "a.zip", *((name.replace("/", "\\"), data) for name, data in GOOD)),
    ],
    ids=["tar", "tar.gz", "zip", "zip with backslashes"],
)
def test_an_archive_is_unpacked_whole_and_its_root_found(tmp_path: Path, make: Callable[[Path], Path]):
    archive = make(tmp_path)
    target = tmp_path / "new" / "set"
    assert extract(archive, target) == 3
    assert find_root(target) == target / "set"
    assert (target / "set/images/train/a b.jpg").read_bytes() == b"x"
    assert [member.name for member in list_archive(archive)] == [name for name, _ in GOOD]
    assert [path.name for path in target.parent.iterdir()] == ["set"]


BAD = {
    "dot-dot": ("../evil.txt", "outside the folder"),
    "dot-dot inside": ("a/../../evil.txt", "outside the folder"),
    "dot-dot with backslash": ("a\\..\\..\\evil.txt", "outside the folder"),
    "absolute": ("/tmp/evil.txt", "an absolute path"),
    "drive": ("C:\\evil.txt", "an absolute path"),
}


@pytest.mark.parametrize(("name", "reason"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_a_name_that_leaves_the_folder_is_refused_and_nothing_is_left(tmp_path: Path, make, name: str, reason: str):
    archive = make(tmp_path / "bad", ("fine.txt", b"1"), (name, b"2"))
    for act in (lambda: list_archive(archive), lambda: extract(archive, tmp_path / "out")):
        with pytest.raises(DatasetError, match=reason) as caught:
            act()
        assert name in str(caught.value).replace("\\\\", "\\")
        assert caught.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad"]


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.SYMTYPE, "../../x"),
        (tarfile.LNKTYPE, "../x"),
        (tarfile.LNKTYPE, "/x"),
    ],
)
def test_a_link_that_leads_out_is_refused(tmp_path: Path, kind: bytes, link: str):
    archive = tar_of(tmp_path / "a.tar", (special("a/link", kind, link), b""))
    with pytest.raises(DatasetError, match="refused"):
        extract(archive, tmp_path / "out")


def test_a_zip_link_that_leads_out_is_refused(tmp_path: Path):
    with pytest.raises(DatasetError, match=r"leads out of the archive, to '\.\./\.\./etc/passwd'"):
        extract(zip_of(tmp_path / "a.zip", (zip_link("a/link"), b"../../etc/passwd")), tmp_path / "out")


def test_a_link_inside_becomes_a_copy_and_never_a_link(tmp_path: Path):
    archive = tar_of(
        tmp_path / "a.tar",
        (special("a/first", tarfile.SYMTYPE, "second"), b""),
        (special("a/second", tarfile.SYMTYPE, "../b/file"), b""),
        (special("hard", tarfile.LNKTYPE, "b/file"), b""),
        ("b/file", b"content"),
    )
    assert extract(archive, tmp_path / "out") == 4
    for name in ("a/first", "a/second", "hard"):
        path = tmp_path / "out" / name
        assert path.read_bytes() == b"content"
        assert not path.is_symlink()


@pytest.mark.parametrize("link", ["gone", ".", "link"])
def test_a_link_to_no_file_of_the_archive_is_refused(tmp_path: Path, link: str):
    archive = tar_of(tmp_path / "a.tar", (special("link", tarfile.SYMTYPE, link), b""), ("file", b""))
    for act in (lambda: list_archive(archive), lambda: extract(archive, tmp_path / "out")):
        with pytest.raises(DatasetError, match="no file of the archive"):
            act()


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_a_device_is_refused(tmp_path: Path, kind: bytes):
    with pytest.raises(DatasetError, match="neither a file nor a folder"):
        extract(tar_of(tmp_path / "a.tar", (special("dev", kind), b"")), tmp_path / "out")


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path: Path, kind: str):
    chunk = bytes(RATIO_FREE_BYTES // 4)
    members = [(f"{number}.bin", chunk) for number in range(6)]
    archive = tmp_path / f"bomb.{kind}"
    if kind == "zip":
        zip_of(archive, *members)
    else:
        tar_of(archive, *members, mode="w:gz")
    with pytest.raises(DatasetError, match="more than 100 times its size"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_member_larger_than_the_disk_is_refused_before_it_is_written(tmp_path: Path):
    info = tarfile.TarInfo("huge.bin")
    info.size = 1 << 50
    archive = tmp_path / "a.tar"
    archive.write_bytes(info.tobuf() + bytes(1024))
    with pytest.raises(DatasetError, match=r"times its size|MiB that are free"):
        extract(archive, tmp_path / "out")


@pytest.mark.parametrize(
    "data",
    [b"", b"not an archive at all" * 50, b"PK\x03\x04 and then nothing", b"\x1f\x8b\x08\x00broken"],
    ids=["empty", "text", "zip start", "gzip start"],
)
def test_what_is_no_archive_is_refused_in_one_line(tmp_path: Path, data: bytes):
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    with pytest.raises(DatasetError, match="not a readable archive") as caught:
        extract(path, tmp_path / "out")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_an_archive_that_was_cut_off_is_refused(tmp_path: Path, kind: str):
    members = [(f"{number}.bin", bytes(range(256)) * 400) for number in range(4)]
    path = tmp_path / f"a.{kind}"
    if kind == "zip":
        zip_of(path, *members)
    else:
        tar_of(path, *members, mode="w:gz" if kind == "tar.gz" else "w")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DatasetError, match="not a readable archive"):
        extract(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


LATE = [(f"set/{number}.txt", b"0 0.5 0.5 0.1 0.1\n") for number in range(40)]


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
@pytest.mark.parametrize("damage", ["name", "checksum", "zeros", "cut in a header"])
def test_a_damaged_header_of_a_late_member_is_not_taken_for_the_end(tmp_path: Path, kind: str, damage: str):
    data = bytearray(tar_of(tmp_path / "whole.tar", *LATE).read_bytes())
    start = 30 * 1024
    if damage == "zeros":
        data[start : start + 512] = bytes(512)
    elif damage == "cut in a header":
        del data[start + 100 :]
    else:
        data[start + (2 if damage == "name" else 150)] ^= 1
    path = tmp_path / f"a.{kind}"
    path.write_bytes(gzip.compress(data) if kind == "tar.gz" else data)
    for act in (lambda: list_archive(path), lambda: extract(path, tmp_path / "out")):
        with pytest.raises(DatasetError, match=r"a\.tar.*: not a readable archive: damaged archive") as caught:
            act()
        assert "download it again" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_an_archive_without_the_zeros_at_its_end_is_read(tmp_path: Path):
    path = tar_of(tmp_path / "a.tar", *LATE)
    path.write_bytes(path.read_bytes()[: len(LATE) * 1024])
    assert extract(path, tmp_path / "out") == len(LATE)


def test_a_flipped_byte_anywhere_in_a_compressed_archive_is_found(tmp_path: Path):
    path = tar_of(
        tmp_path / "a.tar.gz", *((name, hashlib.shake_128(name.encode()).digest(300)) for name, _ in LATE), mode="w:gz"
    )
    data = path.read_bytes()
    for place in range(len(data) - 8, 20, -len(data) // 40):
        broken = bytearray(data)
        broken[place] ^= 0x10
        path.write_bytes(broken)
        with pytest.raises(DatasetError, match=r"not a readable archive|refused"):
            extract(path, tmp_path / "out")


def test_a_pipe_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(DatasetError, match="is a pipe"):
        list_archive(tmp_path / "a.tar")


def test_a_missing_archive_is_named(tmp_path: Path):
    with pytest.raises(DatasetError, match=r"none\.zip: .*No such file"):
        list_archive(tmp_path / "none.zip")


def test_an_encrypted_zip_is_refused(tmp_path: Path):
    path = zip_of(tmp_path / "a.zip", ("a.txt", b"secret"))
    data = bytearray(path.read_bytes())
    central = data.find(b"PK\x01\x02")
    data[central + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"'a\.txt' is encrypted"):
        extract(path, tmp_path / "out")


def test_what_macos_adds_is_left_out(tmp_path: Path):
    archive = zip_of(tmp_path / "a.zip", *GOOD, ("__MACOSX/set/._data.yaml", b"x"), ("set/.DS_Store", b"x"))
    assert extract(archive, tmp_path / "out") == 3


def test_a_member_without_a_name_is_left_out(tmp_path: Path):
    archive = zip_of(tmp_path / "a.zip", ("?", b"x"), ("b", b"x"))
    archive.write_bytes(archive.read_bytes().replace(b"?", b"\0"))
    assert [member.name for member in list_archive(archive)] == ["b"]


def test_a_folder_with_something_in_it_is_not_unpacked_into(tmp_path: Path):
    archive = tar_of(tmp_path / "a.tar", *GOOD)
    (tmp_path / "empty").mkdir()
    assert extract(archive, tmp_path / "empty") == 3
    with pytest.raises(DatasetError, match="already there"):
        extract(archive, tmp_path / "empty")


def test_the_root_is_one_data_yaml_and_several_are_listed(tmp_path: Path):
    with pytest.raises(DatasetError, match=r"no data\.yaml"):
        find_root(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.yaml").touch()
    with pytest.raises(DatasetError, match=r"one/data\.yaml, two/data\.yaml"):
        find_root(tmp_path)
    (tmp_path / "job.yaml").write_text("name: job\nepochs: 3\n")
    with pytest.raises(DatasetError, match="several"):
        find_root(tmp_path)
    (tmp_path / "cells.yml").write_text("train: images/train\n")
    assert find_root(tmp_path) == tmp_path
