"""Data sets in archives: .zip, .tar and .tar.gz, unpacked without trusting them. Knows nothing of what is inside.

An archive may name any path, link anywhere and claim any size. So no name leaves the target, no link is ever made (one
that stays inside becomes a copy of its file), and nothing is written beyond what the disk and a fair ratio allow.
"""

from __future__ import annotations

import gzip
import lzma
import posixpath
import re
import shlex
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from remote.dataset.files import new_folder, open_regular
from remote.dataset.forms import find_form
from remote.dataset.values import DatasetError

if TYPE_CHECKING:
    from typing import Self

ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
RATIO = 100
"""Pictures hardly shrink; an archive that grows a hundredfold is made to fill a disk."""
RATIO_FREE_BYTES = 64 << 20
"""Below this the ratio says nothing: a few labels may well shrink a thousandfold."""
RESERVE_BYTES = 256 << 20
"""Left free on the disk."""
MOST_MEMBERS = 5_000_000
LONGEST_LINK = 4096
CHUNK = 1 << 20
DATA_KEYS = re.compile(rb"^\s*(train|val|names)\s*:", re.MULTILINE)
BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError,
    ValueError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive, its name checked and relative to the target, `/` between folders."""

    name: str
    size: int
    link: str | None = None
    """For a link: the member it leads to."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A member and the way to its bytes."""

    member: Member
    open: Callable[[], IO[bytes]]


class _Header(tarfile.TarInfo):
    """A header that must be whole: tarfile takes a damaged one for the end, and the members behind it would be lost."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """As the base class; raises ReadError for what is neither a header nor zeros nor the end of the file."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if not any(buf):
                raise
            raise tarfile.ReadError(f"damaged archive: {error}") from error


class _Limits:
    """What may still be written."""

    def __init__(self, archive: Path, target: Path) -> None:
        self.archive = archive
        self.ratio_bytes = archive.stat().st_size * RATIO + RATIO_FREE_BYTES
        self.disk_bytes = shutil.disk_usage(target).free - RESERVE_BYTES
        self.members = 0
        self.bytes = 0

    def take(self, member: Member, size: int) -> None:
        """Count `size` bytes of `member`. Raises DatasetError where a limit is passed."""
        self.bytes += size
        if self.bytes > self.ratio_bytes:
            raise _refused(self.archive, member.name, f"the archive unpacks to more than {RATIO} times its size")
        if self.bytes > self.disk_bytes:
            free = max(0, self.disk_bytes) >> 20
            raise DatasetError(
                f"{self.archive}: unpacked it needs more than the {free} MiB that are free", "free some disk space"
            )

    def count(self, member: Member) -> None:
        """Count a member."""
        self.members += 1
        if self.members > MOST_MEMBERS:
            raise _refused(self.archive, member.name, f"more than {MOST_MEMBERS} files")


def list_archive(archive: Path) -> tuple[Member, ...]:
    """Check every member without unpacking. Raises DatasetError, naming the member, as `extract` does."""
    with _items(archive) as items:
        members = tuple(item.member for item in items)
    files = {member.name: member for member in members}
    for member in members:
        if member.link is not None:
            _target_of(archive, member, files)
    return members


def extract(archive: Path, target: Path) -> int:
    """Unpack into `target`, which must be new or empty and appears whole; answers the number of files.

    Raises DatasetError: unreadable archive, a member that leaves the target, a device, or too much to write.
    """
    with new_folder(target, "name a new folder to unpack into") as partial:
        return _unpack(archive, partial)


def find_root(folder: Path) -> Path:
    """The folder with the data.yaml of an unpacked data set: this one, or else one inside it.

    Raises DatasetError where there is none, or several to choose from.
    """
    return find_data_file(folder).parent


def find_data_file(folder: Path) -> Path:
    """The data.yaml of an unpacked data set, or the one other .yaml file that reads like one. Raises as `find_root`."""
    inner = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__MACOSX"))]
    for places in ([folder], sorted(inner)):
        for names in ("data.yaml", "data.yml"), ("*.yaml", "*.yml"):
            globbed = (path for place in places for name in names for path in place.glob(name))
            found = sorted(path for path in globbed if path.is_file() and _reads_like_data(path))
            if len(found) == 1:
                return found[0]
            if found:
                listed = ", ".join(str(path.relative_to(folder)) for path in found)
                raise DatasetError(f"{folder}: several data sets: {listed}", "give the path of the one that is meant")
    raise DatasetError(f"{folder}: no data.yaml in it, nor one folder down", _way_to_a_data_file(folder))


def _way_to_a_data_file(folder: Path) -> str:
    form = find_form(folder)
    if form is None:
        return "a data set has data.yaml (train, val, names), images/train, images/val, labels/train and labels/val"
    command = f"gpucost data import {shlex.quote(str(folder))} NEW_FOLDER"
    return f"this is {form.layout.value}: `{command}` makes a data set of it"


def _reads_like_data(path: Path) -> bool:
    """Whether a .yaml file may be a data.yaml: people keep job files and settings beside it."""
    if path.stem == "data":
        return True
    with path.open("rb") as file:
        return DATA_KEYS.search(file.read(1 << 16)) is not None


def _unpack(archive: Path, folder: Path) -> int:
    limits = _Limits(archive, folder)
    files: dict[str, Member] = {}
    with _items(archive) as items:
        for item in items:
            limits.count(item.member)
            if item.member.link is None:
                _write(item, folder / item.member.name, limits)
            files[item.member.name] = item.member
        for member in files.values():
            if member.link is not None:
                source = _target_of(archive, member, files)
                limits.take(member, source.size)
                copy = folder / member.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / source.name, copy)
    return len(files)


def _write(item: _Item, path: Path, limits: _Limits) -> None:
    limits.take(item.member, 0)
    if item.member.size > limits.disk_bytes - limits.bytes or item.member.size > limits.ratio_bytes - limits.bytes:
        limits.take(item.member, item.member.size)  # says which limit, before anything is written
    path.parent.mkdir(parents=True, exist_ok=True)
    with item.open() as source, path.open("wb") as out:
        while chunk := source.read(CHUNK):
            limits.take(item.member, len(chunk))
            out.write(chunk)


@contextmanager
def _items(archive: Path) -> Iterator[Iterator[_Item]]:
    """The members of an archive, faults in it turned into DatasetError."""
    try:
        with open_regular(archive) as file:
            start = file.read(4)
        if start in ZIP_STARTS:
            with zipfile.ZipFile(archive) as opened:
                yield _zip_items(archive, opened)
        else:
            with tarfile.open(archive, tarinfo=_Header) as tar:
                yield _tar_items(archive, tar)
    except BROKEN as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(":")
        hint = "it should be a .zip, .tar or .tar.gz; make or download it again"
        raise DatasetError(f"{archive}: not a readable archive: {reason}", hint) from error
    except OSError as error:
        hint = "check the path, and the space on the disk"
        raise DatasetError(f"{archive}: cannot be unpacked: {error.strerror or error}", hint) from error


def _zip_items(archive: Path, opened: zipfile.ZipFile) -> Iterator[_Item]:
    for info in opened.infolist():
        name = _safe(archive, info.filename)
        if info.is_dir() or name is None:
            continue
        if info.flag_bits & 1:
            raise DatasetError(f"{archive}: {info.filename!r} is encrypted", "pack the data set without a password")
        mode = stat.S_IFMT(info.external_attr >> 16)
        link = None
        if mode == stat.S_IFLNK and info.file_size <= LONGEST_LINK:
            link = _inside(archive, name, opened.read(info).decode("utf-8", "surrogateescape"))
        elif mode not in (0, stat.S_IFREG):
            raise _refused(archive, info.filename, "neither a file nor a folder")
        yield _Item(Member(name, info.file_size, link), lambda info=info: opened.open(info))  # type: ignore[misc]


def _tar_items(archive: Path, tar: tarfile.TarFile) -> Iterator[_Item]:
    for info in tar:
        name = _safe(archive, info.name)
        if info.isdir() or name is None:
            continue
        link = None
        if info.issym():
            link = _inside(archive, name, info.linkname)
        elif info.islnk():
            link = _safe(archive, info.linkname) or ""
        elif not info.isreg():
            raise _refused(archive, info.name, "neither a file nor a folder")
        yield _Item(Member(name, info.size, link), lambda info=info: _opened(tar, info))  # type: ignore[misc]
    while tar.fileobj is not None and (rest := tar.fileobj.read(CHUNK)):
        if rest.count(0) != len(rest):
            raise tarfile.ReadError("damaged archive: more follows after its end")


def _opened(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    opened = tar.extractfile(info)
    if opened is None:
        raise tarfile.ReadError(f"{info.name} has no content")
    return opened


def _safe(archive: Path, written: str) -> str | None:
    """The member's name, relative and clean; None for what only macOS needs. Raises DatasetError where it leaves."""
    plain = written.replace("\\", "/")
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    if plain.startswith("/") or (parts and parts[0][1:2] == ":"):
        raise _refused(archive, written, "an absolute path")
    if ".." in parts:
        raise _refused(archive, written, "it would land outside the folder it is unpacked into")
    if "\0" in plain:
        raise _refused(archive, written, "a zero byte in the name")
    if not parts or "__MACOSX" in parts or parts[-1] == ".DS_Store" or parts[-1].startswith("._"):
        return None
    return "/".join(parts)


def _inside(archive: Path, name: str, link: str) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link.replace("\\", "/")))
    if target.startswith(("/", "../")) or target == "..":
        raise _refused(archive, name, f"a link that leads out of the archive, to {link!r}")
    return target


def _target_of(archive: Path, member: Member, files: dict[str, Member]) -> Member:
    seen = member
    for _ in range(8):
        if seen.link is None:
            return seen
        if seen.link not in files:
            break
        seen = files[seen.link]
    raise _refused(archive, member.name, f"a link to {member.link!r}, which is no file of the archive")


def _refused(archive: Path, name: str, reason: str) -> DatasetError:
    return DatasetError(
        f"{archive}: member {name!r} refused: {reason}", "pack plain files and folders, with relative names"
    )
