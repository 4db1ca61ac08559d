"""The headers of a tar that is elsewhere. It has no directory: each header says only where the next one is.

So a large one is walked from many places at once. A place that looks like a header counts only if the walk before it
arrives there: a tar may lie in a tar.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from threading import Event

from remote.dataset.members import Header
from remote.dataset.ranged import Fetch, RangedFile
from remote.dataset.values import DatasetError

WALKERS = 32
PART_BYTES = 64 << 20
MOST_PARTS = 256
BLOCK_BYTES = 4 << 10
"""For the sake of one header: hardly slower than 512 bytes, and with small files it holds several."""
SEARCH_BYTES = 64 << 10
KEPT_BYTES = 256 << 10
FURTHEST_BYTES = 16 << 20
"""Searched for a header from where a part begins; then the walk before goes through it."""
PART_REQUESTS = 4000
"""More than a million for the largest tar: half a dollar."""
MAGIC = slice(257, 262)


class _TooMany(Exception):
    """A part has more members than are looked for."""


class _Walk:
    """A walk from header to header."""

    def __init__(self, file: RangedFile, start: int) -> None:
        """Raises ReadError where there is no header at `start`."""
        self.infos: list[tarfile.TarInfo] = []
        self._file = file
        file.seek(start)
        self._tar = tarfile.TarFile(fileobj=file, tarinfo=Header)
        self._next = self._tar.next()

    @property
    def place(self) -> int | None:
        """Of the header that comes next; None at the end."""
        return None if self._next is None else self._next.offset

    def step(self) -> None:
        """Take the next member. Raises ReadError for damage."""
        if self._next is None:
            return
        if self._file.requests > PART_REQUESTS:
            raise _TooMany
        self.infos.append(self._next)
        self._next = self._tar.next()


class TarWalk:
    """The headers of a tar, and what it took to read them."""

    def __init__(self, name: str, size: int, fetch: Fetch) -> None:
        """Raises ReadError for what is no whole tar, DatasetError for one with too many members."""
        self.files: list[RangedFile] = []
        self._size, self._fetch = size, fetch
        try:
            self.infos = _joined(self._walks(min(MOST_PARTS, max(1, size // PART_BYTES))))
        except _TooMany as error:
            hint = "pack it as a .zip, which has a directory; or check the folder that it was packed from"
            raise DatasetError(f"{name}: has too many members to be found one by one", hint) from error

    def _file(self, block_bytes: int) -> RangedFile:
        self.files.append(RangedFile(self._size, self._fetch, block_bytes, kept_bytes=KEPT_BYTES))
        return self.files[-1]

    def _walks(self, parts: int) -> list[_Walk]:
        """Walks through equal parts, without those in which no header was found."""
        bounds = [number * self._size // parts // tarfile.BLOCKSIZE * tarfile.BLOCKSIZE for number in range(parts)]
        stops = [*bounds[1:], self._size]
        given_up = Event()
        pool = ThreadPoolExecutor(WALKERS, "tar-walk")
        try:
            walks = pool.map(self._walk, bounds, stops, repeat(given_up))
            return [walk for number, walk in enumerate(walks) if walk is not None and (walk.infos or number == 0)]
        finally:
            given_up.set()
            pool.shutdown(cancel_futures=True)

    def _walk(self, start: int, stop: int, given_up: Event) -> _Walk | None:
        """The members whose header lies between; the walk stands before the first one behind."""
        found = start if start == 0 else self._header_from(start, min(stop, start + FURTHEST_BYTES), given_up)
        if found is None:
            return None
        try:
            walk = _Walk(self._file(BLOCK_BYTES), found)
            while walk.place is not None and walk.place < stop and not given_up.is_set():
                walk.step()
        except tarfile.ReadError:
            if start == 0:
                raise
            return None  # no header after all, or damage, which the walk before will meet
        return walk

    def _header_from(self, start: int, stop: int, given_up: Event) -> int | None:
        file = self._file(SEARCH_BYTES)
        for place in range(start, stop, SEARCH_BYTES):
            if given_up.is_set():
                return None
            file.seek(place)
            found = _first_header(file.read(min(SEARCH_BYTES, stop - place)))
            if found is not None:
                return place + found
        return None


def _joined(walks: Sequence[_Walk]) -> list[tarfile.TarInfo]:
    """The members in order, of the walks that the one before arrives at. Raises ReadError for damage."""
    infos: list[tarfile.TarInfo] = []
    walk, ahead = walks[0], walks[1:]
    while True:
        infos += walk.infos
        while walk.place is not None and (met := _meeting(walk.place, ahead)) is None:
            walk.step()
            infos.append(walk.infos[-1])
        if walk.place is None or met is None:
            break
        number, skipped = met
        walk, ahead = ahead[number], ahead[number + 1 :]
        del walk.infos[:skipped]
    end = infos[-1].offset_data + infos[-1].size if infos else 0
    if any(other.infos[0].offset >= end for other in ahead):
        raise tarfile.ReadError("damaged archive: more follows after its end")
    return infos


def _meeting(place: int, ahead: Sequence[_Walk]) -> tuple[int, int] | None:
    """Which walk has the header at `place`, and how many members it has before that."""
    for number, walk in enumerate(ahead):
        if walk.infos[0].offset > place:
            return None
        for skipped, info in enumerate(walk.infos):
            if info.offset == place:
                return number, skipped
    return None


def _first_header(data: bytes) -> int | None:
    for place in range(0, len(data) - tarfile.BLOCKSIZE + 1, tarfile.BLOCKSIZE):
        block = data[place : place + tarfile.BLOCKSIZE]
        if block[MAGIC] == b"ustar" and _is_header(block):
            return place
    return None


def _is_header(block: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True
