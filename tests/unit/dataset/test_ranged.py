"""A file read in ranges: the same bytes as the file, in few requests."""

import io
import random

import pytest

from remote.dataset.ranged import AHEAD_BYTES, KEPT_BYTES, RangedFile

CONTENT = random.Random(1).randbytes(10_000)  # noqa: S311


class Far:
    """Content that is far away, and what was asked of it."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.asked: list[range] = []

    def __call__(self, span: range) -> bytes:
        assert 0 <= span.start < span.stop <= len(self.content)
        self.asked.append(span)
        return self.content[span.start : span.stop]


@pytest.mark.parametrize("block_bytes", [1, 7, 512, 100_000])
def test_it_reads_like_the_file_wherever_one_looks(block_bytes: int):
    near, file = io.BytesIO(CONTENT), RangedFile(len(CONTENT), Far(), block_bytes)
    rng = random.Random(2)  # noqa: S311
    for _ in range(200):
        offset, whence = rng.choice([(rng.randrange(12_000), 0), (-rng.randrange(5000), 2), (0, 1)])
        assert file.seek(offset, whence) == near.seek(offset, whence) == file.tell()
        count = rng.choice([0, 1, 30, 5000])
        assert file.read(count) == near.read(count)
    near.seek(17)
    file.seek(17)
    assert file.read() == near.read()


def test_a_position_before_the_file_is_refused():
    with pytest.raises(ValueError, match="negative seek position -1"):
        RangedFile(10, Far(), 4).seek(-1)


def test_neighbours_come_in_one_request_and_only_once():
    far = Far()
    file = RangedFile(len(CONTENT), far, 100)
    file.prefetch(range(250, 950))
    assert far.asked == [range(200, 1000)]
    file.seek(300)
    assert file.read(600) == CONTENT[300:900]
    assert far.asked == [range(200, 1000)]
    file.seek(0)
    assert file.read(1200) == CONTENT[:1200]
    assert far.asked[1:] == [range(200), range(1000, 1200)]
    assert (file.requests, file.bytes_read) == (3, 1200)


def test_who_goes_on_gets_more_at_once_and_who_jumps_does_not():
    far = Far()
    file = RangedFile(len(CONTENT), far, 100)
    assert b"".join(file.read(100) for _ in range(40)) == CONTENT[:4000]
    assert [len(span) for span in far.asked] == [100, 200, 400, 800, 1600, 3200]
    file.seek(9000)
    file.read(1)
    assert far.asked[-1] == range(9000, 9100)
    assert file.read() == CONTENT[9001:]
    assert far.asked[-1] == range(9100, 10_000)


def test_no_more_than_so_much_is_read_in_advance():
    far = Far(bytes(AHEAD_BYTES * 5))
    file = RangedFile(len(far.content), far, 4096)
    while file.read(4096):
        pass
    assert max(len(span) for span in far.asked) == AHEAD_BYTES
    assert sum(len(span) for span in far.asked) == len(far.content)


def test_what_is_prefetched_beyond_the_end_is_not_asked_for():
    far = Far()
    RangedFile(len(CONTENT), far, 4096).prefetch(range(9000, 20_000))
    assert far.asked == [range(8192, 10_000)]


def test_only_so_much_is_kept():
    far = Far(bytes(KEPT_BYTES * 2))
    file = RangedFile(len(far.content), far, 1 << 20)
    assert len(file.read(KEPT_BYTES * 2)) == KEPT_BYTES * 2
    file.seek(0)
    file.read(1)
    assert far.asked[1:] == [range(1 << 20)]
    file.prefetch(range(KEPT_BYTES * 2))
    assert len(far.asked) == 2, "more than can be kept is not worth a request"


def test_an_answer_that_is_too_short_is_not_taken():
    file = RangedFile(len(CONTENT), lambda span: CONTENT[span.start : span.stop - 1], 100)
    with pytest.raises(EOFError, match="99 bytes came instead of 100: was it changed meanwhile"):
        file.read(10)
