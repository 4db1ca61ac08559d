"""The headers of a tar are found from many places at once, and are those that a walk from its start finds."""

import io
import random
import tarfile
from collections.abc import Callable

import pytest

from remote.dataset import tarwalk
from remote.dataset.tarwalk import TarWalk

FORMATS = [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tarwalk, "PART_BYTES", 8192)
    monkeypatch.setattr(tarwalk, "SEARCH_BYTES", 2048)


def tar_of(members: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def walked(content: bytes) -> TarWalk:
    return TarWalk("set.tar", len(content), lambda span: content[span.start : span.stop])


def places(infos: list[tarfile.TarInfo]) -> list[tuple[str, int, int, int]]:
    return [(info.name, info.offset, info.offset_data, info.size) for info in infos]


def in_order(content: bytes) -> list[tuple[str, int, int, int]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return places(tar.getmembers())


def some(count: int, largest: int, long_names: Callable[[int], bool] = lambda _: False) -> dict[str, bytes]:
    rng = random.Random(4)  # noqa: S311
    return {
        f"{'folder/' * (20 if long_names(number) else 1)}{number:03d}": rng.randbytes(rng.randrange(largest))
        for number in range(count)
    }


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("count", "largest"), [(0, 1), (1, 100), (1, 60_000), (300, 60), (60, 6000), (12, 60_000)])
def test_every_member_is_found_in_order(form: int, count: int, largest: int):
    content = tar_of(some(count, largest), form)
    assert places(walked(content).infos) == in_order(content)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("shift", range(0, 8192, 512))
def test_a_long_name_is_whole_wherever_a_part_begins(form: int, shift: int):
    content = tar_of({"first": bytes(shift), **some(40, 3000, lambda number: number % 2 == 0)}, form)
    assert places(walked(content).infos) == in_order(content)


@pytest.mark.parametrize("seed", range(5))
def test_members_of_a_tar_in_the_tar_are_no_members(seed: int):
    inner = tar_of(some(50, 900))
    members = some(20, 9000)
    members[f"{seed:03d}"] = inner
    members["last"] = inner
    content = tar_of(members)
    assert places(walked(content).infos) == in_order(content)
    assert "folder/049" not in {info.name for info in walked(content).infos}


def test_bodies_are_left_out():
    content = tar_of({f"{number}": bytes([number]) * 100_000 for number in range(40)})
    walk = walked(content)
    assert len(walk.infos) == 40
    assert sum(file.bytes_read for file in walk.files if file._block_bytes == tarwalk.BLOCK_BYTES) < 0.2 * len(content)


def test_a_large_tar_is_walked_from_many_places():
    walk = walked(tar_of({f"{number}": bytes([number]) * 20_000 for number in range(60)}))
    assert len(walk.infos) == 60
    assert max(file.requests for file in walk.files) < 20


@pytest.mark.parametrize("place", [0, 20_000, 60_000])
def test_damage_is_not_taken_for_the_end(place: int):
    content = bytearray(tar_of(dict.fromkeys(map(str, range(100)), b"x")))
    content[place : place + 512] = b"\xff" * 512
    with pytest.raises(tarfile.ReadError):
        walked(bytes(content))


def test_a_tar_that_is_cut_off_is_refused():
    content = tar_of(some(60, 6000))
    with pytest.raises(tarfile.ReadError):
        walked(content[: len(content) // 2])


def test_a_tar_behind_the_end_of_a_tar_is_refused():
    with pytest.raises(tarfile.ReadError, match="more follows after its end"):
        walked(tar_of(some(20, 900)) + tar_of(some(60, 900)))


def test_what_the_transport_raises_comes_through():
    content = tar_of(some(60, 6000))

    def fetch(span: range) -> bytes:
        if span.start > len(content) // 2:
            raise ConnectionError("gone")
        return content[span.start : span.stop]

    with pytest.raises(ConnectionError, match="gone"):
        TarWalk("set.tar", len(content), fetch)
