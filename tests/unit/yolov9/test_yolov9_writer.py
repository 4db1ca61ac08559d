import errno
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from remote.yolov9 import checkpoint
from remote.yolov9.writer import HostCopy, Writer

LAST, BEST = Path("weights/last.pt"), Path("weights/best.pt")
WAIT = 30.0


class Disk:
    """Stands in for `checkpoint.save`: writes go on when they are let go, or fail; who wrote what is told."""

    def __init__(self, *, held: bool = False) -> None:
        self.go_on = threading.Event()
        if not held:
            self.go_on.set()
        self.begun = threading.Event()
        self.faults: list[Exception] = []
        self.written: list[tuple[str, Any]] = []
        self.threads: set[str] = set()
        self.under_way = 0
        self.most_under_way = 0

    def __call__(self, path: Path, state: Mapping[str, Any], *, keep_previous: bool = False) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.threads.add(threading.current_thread().name)
        self.begun.set()
        assert self.go_on.wait(WAIT)
        self.under_way -= 1
        if self.faults:
            raise self.faults.pop(0)
        self.written.append((path.name, state["n"]))


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def test_a_write_is_under_way_until_the_disk_has_it_and_the_caller_is_not_held():
    disk = Disk(held=True)
    writer = Writer(disk)
    writer.write(LAST, {"n": 1})
    assert writer.busy(LAST)
    assert not writer.busy(BEST)
    disk.go_on.set()
    writer.wait()
    assert not writer.busy(LAST)
    assert disk.written == [("last.pt", 1)]
    assert disk.threads == {"checkpoint-writer_0"}


def test_two_files_are_never_written_at_once_and_the_newest_of_those_that_wait_wins():
    disk = Disk(held=True)
    writer = Writer(disk)
    writer.write(LAST, {"n": 1})
    assert disk.begun.wait(WAIT)
    for number in (1, 2, 3):
        writer.write(BEST, {"n": number})
    disk.go_on.set()
    writer.wait()
    assert disk.written == [("last.pt", 1), ("best.pt", 3)]
    assert disk.most_under_way == 1


def test_a_full_disk_is_a_warning_that_counts_and_ends_with_the_next_success(caplog):
    disk = Disk()
    disk.faults = [full(), full()]
    writer = Writer(disk)
    told = []
    for number in range(3):
        with caplog.at_level(logging.WARNING, "yolov9"):
            writer.write(LAST, {"n": number})
            writer.wait()
        told.append(writer.failed(LAST))
    assert told == [True, True, False]
    first, second = caplog.messages
    assert first.startswith(
        "warning: weights/last.pt cannot be written, what was there stays ([Errno 28] No space left"
    )
    assert second.endswith("; 2 failures in a row")
    assert disk.written == [("last.pt", 2)]


def test_an_error_that_is_not_the_disks_is_raised_in_the_training():
    disk = Disk()
    disk.faults = [TypeError("a mistake")]
    writer = Writer(disk)
    writer.write(LAST, {"n": 1})
    with pytest.raises(TypeError, match="a mistake"):
        writer.wait()
    writer.wait()


def test_a_write_in_place_comes_after_the_one_under_way_and_raises():
    disk = Disk(held=True)
    writer = Writer(disk)
    writer.write(LAST, {"n": 1})
    assert disk.begun.wait(WAIT)
    threading.Timer(0.05, disk.go_on.set).start()
    writer.write_now(LAST, {"n": 2})
    assert disk.written == [("last.pt", 1), ("last.pt", 2)]
    disk.faults = [full()]
    with pytest.raises(OSError, match="No space left"):
        writer.write_now(LAST, {"n": 3})


def test_a_copy_does_not_change_with_the_training_and_keeps_memory_format_and_names():
    weights = torch.rand(4, 3, 3, 3).contiguous(memory_format=torch.channels_last)
    state = {"model": {"w": weights}, "rows": [{"x": 1.5}], "steps": (torch.tensor(3), None)}
    expected = checkpoint.digest(state)
    copied = HostCopy().take(state)
    weights.mul_(2)
    state["steps"][0].add_(1)
    assert checkpoint.digest(copied) == expected
    assert copied["model"]["w"].stride() == weights.stride()
    assert copied["rows"] == [{"x": 1.5}]
    assert copied["steps"][1] is None


def test_the_memory_of_a_copy_is_used_again_and_follows_new_and_changed_tensors():
    host = HostCopy()
    first = host.take({"a": torch.ones(3)})
    second = host.take({"a": torch.zeros(3), "b": torch.ones(2)})
    assert first["a"].data_ptr() == second["a"].data_ptr()
    third = host.take({"a": torch.ones(5), "b": torch.full((2,), 4.0)})
    assert torch.equal(third["a"], torch.ones(5))
    assert third["b"].data_ptr() == second["b"].data_ptr()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_copy_of_a_gpu_is_whole_on_return_and_pinned():
    """What the processor alone cannot show: copies that are still under way when the next kernel changes the source."""
    host = HostCopy()
    source = {str(n): torch.full((1 << 20,), float(n), device="cuda") for n in range(20)}
    for turn in range(5):
        copied = host.take(source)
        for tensor in source.values():
            tensor.add_(1)
        assert all(torch.equal(t, torch.full_like(t, float(name) + turn)) for name, t in copied.items())
    assert all(tensor.is_pinned() for tensor in copied.values())
