"""A file that is elsewhere, read in ranges: seekable, so that `zipfile` and `tarfile` work on it. Knows no protocol."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

KEPT_BYTES = 16 << 20
"""Of the blocks read last; more than any run of members that is read at once."""
AHEAD_BYTES = 128 << 10
"""Read at most in advance."""

Fetch = Callable[[range], bytes]
"""The bytes of a range that lies in the file; may raise whatever the transport raises."""


class RangedFile(io.RawIOBase):
    """Bytes come in whole blocks, neighbours in one request, and are kept for a while."""

    def __init__(self, size: int, fetch: Fetch, block_bytes: int, kept_bytes: int = KEPT_BYTES) -> None:
        super().__init__()
        self.size = size
        self.requests = 0
        self.bytes_read = 0
        self._fetch = fetch
        self._block_bytes = block_bytes
        self._kept_bytes = kept_bytes
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._position = 0
        self._reached = -1
        """The block behind those of the last request."""
        self._loaded = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position; beyond the end nothing is read."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise ValueError(f"negative seek position {start + offset}")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill a buffer from the position on; less only at the end."""
        view = memoryview(buffer).cast("B")
        data = self._bytes(range(self._position, min(self._position + len(view), self.size)))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def prefetch(self, span: range) -> None:
        """Have the bytes of `span` at hand after one request at most, unless there are too many to keep."""
        if len(span) <= self._kept_bytes - 2 * self._block_bytes:
            self._bytes(range(max(span.start, 0), min(span.stop, self.size)))

    def _bytes(self, span: range) -> bytes:
        if not span:
            return b""
        first, last = span.start // self._block_bytes, (span.stop - 1) // self._block_bytes
        wanted = range(first, last + 1)
        found = {number: self._blocks[number] for number in wanted if number in self._blocks}
        for missing in _runs([number for number in wanted if number not in found]):
            found.update(self._load(missing))
        self._keep(found)
        joined = b"".join(found[number] for number in wanted)
        start = span.start - first * self._block_bytes
        return joined[start : start + len(span)]

    def _load(self, numbers: range) -> Iterator[tuple[int, bytes]]:
        numbers = self._with_more(numbers)
        span = range(numbers.start * self._block_bytes, min(numbers.stop * self._block_bytes, self.size))
        data = self._fetch(span)
        self.requests += 1
        self.bytes_read += len(data)
        if len(data) != len(span):
            raise EOFError(f"{len(data)} bytes came instead of {len(span)}: was it changed meanwhile?")
        for place, number in enumerate(numbers):
            yield number, data[place * self._block_bytes : (place + 1) * self._block_bytes]

    def _with_more(self, numbers: range) -> range:
        """Who goes on where the last request ended is likely to go on: twice as much each time."""
        more = 2 * self._loaded if numbers.start == self._reached else 1
        self._loaded = min(more, AHEAD_BYTES // self._block_bytes)
        end = -(-self.size // self._block_bytes)
        self._reached = max(numbers.stop, min(numbers.start + self._loaded, end))
        return range(numbers.start, self._reached)

    def _keep(self, used: dict[int, bytes]) -> None:
        for number, block in sorted(used.items()):
            self._blocks[number] = block
            self._blocks.move_to_end(number)
        while len(self._blocks) * self._block_bytes > self._kept_bytes:
            self._blocks.popitem(last=False)


def _runs(numbers: list[int]) -> Iterator[range]:
    """Sorted numbers as ranges without gaps."""
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            yield range(numbers[start], numbers[place - 1] + 1)
            start = place
