"""A data set that is not here: every name is known, and few files are read. An archive's directory and members."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Protocol, TypeVar

from remote.dataset.members import Header, Item, explained, tar_items, target_of, zip_items
from remote.dataset.ranged import Fetch, RangedFile
from remote.dataset.tarwalk import TarWalk
from remote.dataset.values import DatasetError

ZIP_BLOCK_BYTES = 64 << 10
"""The end of a directory, a header and a small member are in one."""
TAR_BLOCK_BYTES = 4 << 10
"""Where each member begins is known by then."""
GAP_BYTES = 64 << 10
"""Members that are no further apart are read in one request: that much takes no longer than another one."""
RUN_BYTES = 1 << 20

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was read so far."""

    bytes_read: int
    bytes_there: int
    requests: int


class Elsewhere(Protocol):
    """Files that are elsewhere. Every method may raise what the transport raises."""

    @property
    def name(self) -> str:
        """What its user calls it."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes by name, `/` between folders; no name leaves the set."""

    @property
    def traffic(self) -> Traffic:
        """So far."""

    def pick(self, names: Sequence[str], requests: int) -> list[str]:
        """As many of these as can be read with so many requests, spread evenly."""

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Name and content of each, in any order."""

    def fingerprint(self, name: str) -> object | None:
        """Equal for files of the same content, as far as is known without reading them; None where nothing is."""


class Packed:
    """An archive that is elsewhere."""

    def __init__(self, name: str, file: RangedFile, items: Iterable[Item], others: Sequence[RangedFile] = ()) -> None:
        """`others` were read to find the items. Raises DatasetError for a member that is refused."""
        found = {item.member.name: item for item in items}
        members = {key: item.member for key, item in found.items()}
        self.name = name
        self._file = file
        self._files = (file, *others)
        self._items = {key: found[target_of(name, member, members).name] for key, member in members.items()}
        self.sizes = {key: item.member.size for key, item in self._items.items()}

    @property
    def traffic(self) -> Traffic:
        """See the protocol."""
        read = sum(file.bytes_read for file in self._files)
        return Traffic(read, self._file.size, sum(file.requests for file in self._files))

    def pick(self, names: Sequence[str], requests: int) -> list[str]:
        """See the protocol: a run of neighbours is one request."""
        return list(chain.from_iterable(evenly(self._runs(names), requests)))

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """See the protocol."""
        for run in self._runs(names):
            self._file.prefetch(range(self._items[run[0]].span.start, self._items[run[-1]].span.stop))
            for name in run:
                with explained(self.name), self._items[name].open() as opened:
                    content = opened.read(self.sizes[name] + 1)
                yield name, content

    def fingerprint(self, name: str) -> object | None:
        """See the protocol."""
        crc = self._items[name].crc
        return None if crc is None else (self.sizes[name], crc)

    def _runs(self, names: Sequence[str]) -> list[list[str]]:
        """Names in the order of their places, neighbours together."""
        runs: list[list[str]] = []
        start = stop = 0
        for name in sorted(names, key=lambda name: self._items[name].span.start):
            span = self._items[name].span
            if not runs or span.start - stop > GAP_BYTES or span.stop - start > RUN_BYTES:
                runs.append([])
                start = span.start
            runs[-1].append(name)
            stop = span.stop
        return runs


def open_packed(name: str, size: int, fetch: Fetch) -> Packed:
    """The .zip or .tar of this name and size; `fetch` is called from several threads at once.

    Raises DatasetError for another form, and for what cannot be read.
    """
    with explained(name):
        if name.lower().endswith(".zip"):
            file = RangedFile(size, fetch, ZIP_BLOCK_BYTES)
            return Packed(name, file, zip_items(name, zipfile.ZipFile(file)))
        if name.lower().endswith(".tar"):
            walk, file = TarWalk(name, size, fetch), RangedFile(size, fetch, TAR_BLOCK_BYTES)
            tar = tarfile.TarFile(fileobj=file, tarinfo=Header)
            return Packed(name, file, tar_items(name, tar, walk.infos), walk.files)
    hint = "a .zip or .tar is checked where it is; any other set: download it, and check it here"
    raise DatasetError(f"{name}: cannot be checked without reading all of it", hint)


def evenly(things: Sequence[Thing], most: int) -> list[Thing]:
    """At most so many of these, one from each of as many equal parts, and not always from the same place in it.

    Sets are often in a rhythm, such as an object from the left camera and one from the right.
    """
    if len(things) <= most:
        return list(things)
    bounds = [number * len(things) // most for number in range(most + 1)]
    return [things[start + _place(start, stop - start)] for start, stop in pairwise(bounds)]


def _place(number: int, width: int) -> int:
    """A place below `width` that looks arbitrary and is always the same for a number (Knuth's multiplicative hash)."""
    return (number * 2654435761 % 2**32) * width >> 32
