"""Data sets in archives: .zip, .tar and .tar.gz, unpacked without trusting them. Knows nothing of what is inside.

An archive may name any path, link anywhere and claim any size. So no name leaves the target, no link is ever made (one
that stays inside becomes a copy of its file), and nothing is written beyond what the disk and a fair ratio allow.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remote.dataset.files import new_folder, open_regular
from remote.dataset.forms import find_form
from remote.dataset.members import (
    CHUNK,
    Header,
    Item,
    Member,
    explained,
    refused,
    tar_items,
    target_of,
    whole,
    zip_items,
)
from remote.dataset.values import DatasetError

ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
RATIO = 100
"""Pictures hardly shrink; an archive that grows a hundredfold is made to fill a disk."""
RATIO_FREE_BYTES = 64 << 20
"""Below this the ratio says nothing: a few labels may well shrink a thousandfold."""
RESERVE_BYTES = 256 << 20
"""Left free on the disk."""
MOST_MEMBERS = 5_000_000
DATA_KEYS = re.compile(rb"^\s*(train|val|names)\s*:", re.MULTILINE)


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
            raise refused(self.archive, member.name, f"the archive unpacks to more than {RATIO} times its size")
        if self.bytes > self.disk_bytes:
            free = max(0, self.disk_bytes) >> 20
            raise DatasetError(
                f"{self.archive}: unpacked it needs more than the {free} MiB that are free", "free some disk space"
            )

    def count(self, member: Member) -> None:
        """Count a member."""
        self.members += 1
        if self.members > MOST_MEMBERS:
            raise refused(self.archive, member.name, f"more than {MOST_MEMBERS} files")


def list_archive(archive: Path) -> tuple[Member, ...]:
    """Check every member without unpacking. Raises DatasetError, naming the member, as `extract` does."""
    with _items(archive) as items:
        members = tuple(item.member for item in items)
    files = {member.name: member for member in members}
    for member in members:
        if member.link is not None:
            target_of(archive, member, files)
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
                source = target_of(archive, member, files)
                limits.take(member, source.size)
                copy = folder / member.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / source.name, copy)
    return len(files)


def _write(item: Item, path: Path, limits: _Limits) -> None:
    limits.take(item.member, 0)
    if item.member.size > limits.disk_bytes - limits.bytes or item.member.size > limits.ratio_bytes - limits.bytes:
        limits.take(item.member, item.member.size)  # says which limit, before anything is written
    path.parent.mkdir(parents=True, exist_ok=True)
    with item.open() as source, path.open("wb") as out:
        while chunk := source.read(CHUNK):
            limits.take(item.member, len(chunk))
            out.write(chunk)


@contextmanager
def _items(archive: Path) -> Iterator[Iterator[Item]]:
    """The members of an archive, faults in it turned into DatasetError."""
    with explained(archive):
        with open_regular(archive) as file:
            start = file.read(4)
        if start in ZIP_STARTS:
            with zipfile.ZipFile(archive) as opened:
                yield zip_items(archive, opened)
        else:
            with tarfile.open(archive, tarinfo=Header) as tar:
                yield tar_items(archive, tar, whole(tar))
