"""Finding and ending every process of an instance, also those that detached. Linux /proc only.

Two nets: the process tree (an instance's first process is a subreaper, so orphans stay below it), and a mark in the
environment that every process of a sandbox inherits. Never touches this process or its ancestors.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "GPUCOST_SANDBOX"
"""Environment variable `SANDBOX/INSTANCE` of every process that belongs to an instance, `SANDBOX/...` of the rest."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table."""

    pid: int
    parent: int
    state: str

    @property
    def dead(self) -> bool:
        """A zombie runs nothing and holds nothing."""
        return self.state in ("Z", "X")


def become_subreaper() -> None:
    """Orphans below this process become its children instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """This process gets SIGKILL when the thread that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def table() -> dict[int, Process]:
    """The process table."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - called many times a second, Path objects cost more than the read
        if entry.isdigit():
            with suppress(OSError, ValueError):
                found[int(entry)] = _read(int(entry))
    return found


def _read(pid: int) -> Process:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    state, parent = text.rpartition(")")[2].split()[:2]
    return Process(pid, int(parent), state)


def descendants(root: int, processes: dict[int, Process] | None = None) -> set[int]:
    """All living processes below `root`, without it."""
    processes = table() if processes is None else processes
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    wave = [root]
    while wave:
        wave = [child for pid in wave for child in children.get(pid, ()) if child not in found]
        found.update(wave)
    return {pid for pid in found if not processes[pid].dead}


def marked(prefix: str, processes: dict[int, Process] | None = None) -> set[int]:
    """All living processes whose mark is `prefix` or lies below it."""
    wanted = f"{MARK}={prefix}".encode()
    processes = table() if processes is None else processes
    own = ancestors(os.getpid(), processes) | {os.getpid()}
    found = set()
    for process in processes.values():
        if process.pid not in own and not process.dead and _carries(process.pid, wanted):
            found.add(process.pid)
    return found


def _carries(pid: int, wanted: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(item == wanted or item.startswith(wanted + b"/") for item in environment.split(b"\0"))


def ancestors(pid: int, processes: dict[int, Process]) -> set[int]:
    """The parents of `pid` up to init."""
    found: set[int] = set()
    while pid in processes and processes[pid].parent not in found and processes[pid].parent > 0:
        pid = processes[pid].parent
        found.add(pid)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs under this number (a zombie does not)."""
    try:
        return not _read(pid).dead
    except (OSError, ValueError):
        return False


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(pids: Iterable[int]) -> None:
    """Collect those that have become children of this process and ended."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def end_marked(prefix: str, *, limit_seconds: float = 10.0) -> set[int]:
    """SIGKILL everything that carries the mark until nothing does; what is left after the limit is returned."""
    limit = time.monotonic() + limit_seconds
    while (left := marked(prefix)) and time.monotonic() < limit:
        send(left, signal.SIGKILL)
        reap(left)
        time.sleep(0.02)
    return left
