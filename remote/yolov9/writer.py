"""Writing checkpoints beside the training: one thread, one file at a time, from memory that nobody changes meanwhile.

Owns that thread and that memory. Knows nothing of runs; what is in a checkpoint is the business of `snapshot`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from remote.yolov9 import checkpoint

log = logging.getLogger("yolov9")


class Save(Protocol):
    """`checkpoint.save`, or what stands in for a slow or a full disk."""

    def __call__(self, path: Path, state: Mapping[str, Any], *, keep_previous: bool = False) -> None:
        """Replace `path` by the state, or raise OSError and leave it."""


class HostCopy:
    """Memory of the host for one state, used again for the next: pinned for tensors of a GPU where it can be had."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._pins = True

    def take(self, state: checkpoint.State) -> checkpoint.State:
        """A copy of `state` with its tensors in this memory: whole on return, overwritten by the next one."""
        devices: set[torch.device] = set()

        def copy(name: str, tensor: Tensor) -> Tensor:
            devices.add(tensor.device)
            return self._buffer(name, tensor).copy_(tensor.detach(), non_blocking=True)

        copied: checkpoint.State = checkpoint.map_tensors(state, copy)
        for device in devices:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        return copied

    def _buffer(self, name: str, tensor: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or _layout(buffer) != _layout(tensor):
            buffer = self._buffers[name] = self._memory(tensor)
        return buffer

    def _memory(self, tensor: Tensor) -> Tensor:
        """Room for a tensor, in its memory format."""
        if tensor.is_cuda and self._pins:
            try:
                return torch.empty_like(tensor, device="cpu", pin_memory=True)
            except RuntimeError as error:
                log.info("note: no pinned memory for checkpoints, copies take longer (%s)", str(error).splitlines()[0])
                self._pins = False
        return torch.empty_like(tensor, device="cpu")


def _layout(tensor: Tensor) -> tuple[torch.dtype, torch.Size, tuple[int, ...]]:
    return tensor.dtype, tensor.shape, tensor.stride()


class Writer:
    """Writes checkpoints in a thread of its own, one after the other.

    A write that fails is a warning: what was there stays, and the training goes on.
    """

    def __init__(self, save: Save = checkpoint.save) -> None:
        self._save = save
        self._thread = ThreadPoolExecutor(1, "checkpoint-writer")
        self._writes: list[tuple[Path, Future[None]]] = []
        self._failures: Counter[Path] = Counter()

    def busy(self, path: Path) -> bool:
        """Whether a write of this file waits or is under way."""
        self._settle(wait=False)
        return any(target == path for target, _ in self._writes)

    def failed(self, path: Path) -> bool:
        """Whether the newest write of this file that came to an end did not succeed."""
        return self._failures[path] > 0

    def write(
        self,
        path: Path,
        state: Mapping[str, Any],
        *,
        keep_previous: bool = False,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """Hand over a state that nobody changes until it is written; one of that file that still waits is dropped.

        `written` is called in the writer's thread once the file is on the disk.
        """
        for target, earlier in self._writes:
            if target == path:
                earlier.cancel()
        self._writes.append((path, self._thread.submit(self._try, path, state, keep_previous, written)))

    def write_now(self, path: Path, state: Mapping[str, Any], *, keep_previous: bool = False) -> None:
        """Wait for what is under way, then write here. Raises OSError."""
        self.wait()
        self._save(path, state, keep_previous=keep_previous)
        self._failures[path] = 0

    def wait(self) -> None:
        """Until nothing is under way."""
        self._settle(wait=True)

    def _settle(self, *, wait: bool) -> None:
        """Forget writes that have ended; an error that is not the disk's is raised here, in the training."""
        ended = [write for write in self._writes if wait or write[1].done()]
        self._writes = [write for write in self._writes if write not in ended]
        for _, write in ended:
            if not write.cancelled():
                write.result()

    def _try(self, path: Path, state: Mapping[str, Any], keep_previous: bool, written: Callable[[], None]) -> None:
        try:
            self._save(path, state, keep_previous=keep_previous)
        except OSError as error:
            self._failures[path] += 1
            row = f"; {self._failures[path]} failures in a row" if self._failures[path] > 1 else ""
            log.warning("warning: %s cannot be written, what was there stays (%s)%s", path, error, row)
        else:
            self._failures[path] = 0
            written()
