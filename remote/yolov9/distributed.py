"""Ranks and what they say to each other. Owns the process group; with one process every call is a plain function.

Reads the environment that torchrun sets. WORLD_SIZE decides: LOCAL_RANK alone, as some environments set it, means
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from remote.yolov9.config import ConfigError

TIMEOUT = timedelta(minutes=10)
"""For one collective call: ranks never wait for a validation, because each does its share."""

T = TypeVar("T")


def choose_device(wanted: str, local: int) -> torch.device:
    """The device of this process. Raises ConfigError where a GPU is wanted and none is visible."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if local >= torch.cuda.device_count():
        raise ConfigError(f"device is {wanted!r}: process {local} sees {torch.cuda.device_count()} CUDA devices")
    torch.cuda.set_device(local)
    torch.backends.cudnn.benchmark = True
    return torch.device("cuda", local)


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among all of the training."""

    rank: int = 0
    world: int = 1
    local: int = 0
    """Index of this process on its machine: the GPU it uses."""

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> Ranks:
        """What torchrun says; alone where it says nothing or one."""
        world = int(environment.get("WORLD_SIZE") or 1)
        if world == 1:
            return Ranks()
        rank = int(environment["RANK"])
        return Ranks(rank, world, int(environment.get("LOCAL_RANK") or rank))

    @property
    def leads(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def open(self, device: torch.device) -> None:
        """Join the process group: NCCL between GPUs, gloo between CPUs."""
        if self.world > 1:
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)

    def close(self) -> None:
        """Leave the process group."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def gather(self, value: T) -> list[T]:
        """Every rank's value, on every rank, by rank. Values are pickled between ranks of one training."""
        if self.world == 1:
            return [value]
        values: list[T | None] = [None] * self.world
        dist.all_gather_object(values, value)
        return [v for v in values if v is not None]

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether any rank says so: all ranks act alike."""
        if self.world == 1:
            return flag
        said = torch.tensor(int(flag), device=device)
        dist.all_reduce(said, dist.ReduceOp.MAX)
        return bool(said)

    def share(self, total: Tensor) -> Tensor:
        """max(sum over ranks, 1) over their number: with it gradients that are averaged are those of one process."""
        if self.world > 1:
            dist.all_reduce(total)
        return total.clamp(min=1) / self.world

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Rank 0's values into everyone's tensors."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)
