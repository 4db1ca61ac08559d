"""Whether the machine is what was paid for."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest

from remote.agent.checks import GIB, unfit
from remote.protocol import DataSpec

Usage = namedtuple("Usage", "total used free")
TWO = "GPU 0: NVIDIA A10G (UUID: GPU-1)\nGPU 1: NVIDIA A10G (UUID: GPU-2)\n"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch):
    """Sets what the disk shows, in GiB."""

    def show(total: float, free: float) -> None:
        usage = Usage(int(total * GIB), 0, int(free * GIB))
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)

    show(100, 90)
    return show


def check(one) -> str | None:
    return unfit(one.job, one.paths.root, one.programs)


@pytest.mark.usefixtures("disk")
def test_all_gpus_there_is_fit(lease, answer) -> None:
    one = lease(gpus=2)
    one.programs.answers["nvidia-smi"] = answer(0, TWO)
    assert check(one) is None


@pytest.mark.usefixtures("disk")
def test_a_machine_without_gpus_is_not_asked_for_them(lease) -> None:
    one = lease()
    assert check(one) is None
    assert one.programs.commands == []


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize(
    ("code", "output", "message"),
    [
        (0, TWO, "nvidia-smi -L lists 2 GPUs, 4 are paid for"),
        (9, "NVIDIA-SMI has failed\n", "nvidia-smi -L failed with exit code 9: NVIDIA-SMI has failed"),
        (0, "No devices found.\n", "nvidia-smi -L lists 0 GPUs, 4 are paid for"),
    ],
)
def test_k04_and_d10_other_gpus_than_paid_for_are_named(lease, answer, code: int, output: str, message: str) -> None:
    one = lease(gpus=4)
    one.programs.answers["nvidia-smi"] = answer(code, output)
    assert check(one) == message


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file"), TimeoutError("did not end within 60 s")])
def test_a_driver_that_does_not_answer_is_unfit(lease, error: Exception) -> None:
    one = lease(gpus=1)
    one.programs.answers["nvidia-smi"] = error
    assert str(check(one)).startswith("the GPUs cannot be listed: ")


def test_l08_a_smaller_disk_than_ordered_is_named(lease, disk) -> None:
    disk(97, 90)
    assert check(lease(disk_gib=100)) is None
    assert check(lease(disk_gib=300)) == "the disk has 97.0 GiB, 300 GiB were ordered"


def test_a_data_set_that_does_not_fit_is_named(lease, disk) -> None:
    disk(100, 10)
    one = lease(data=DataSpec("s3://b/d.tar", size=8 * GIB))
    assert check(one) == "the disk has 10.0 GiB free, the data set needs 16.5 GiB"
