"""Programs that the agent starts: each in a session of its own, its family found again by a mark in the environment.

Owns process creation, signals and the search for what is left. Knows nothing of tasks or phases. A process group is not
enough to end a training: torchrun gives each of its workers a session of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from remote.clock import Clock

MARK = "GPUCOST_CHILD"
GONE_SECONDS = 1.0
"""How long a killed command may take to be gone."""
LEFT_SECONDS = 20.0
"""How long the trainings of an agent that died may take to save before they are killed."""
LEFT_LOOK_SECONDS = 0.2
ROOT_VARIABLE = "${GPUCOST_ROOT:-}"


class Child(Protocol):
    """One started program and all that descends from it."""

    def poll(self) -> int | None:
        """Exit code once the program has ended, negative for a signal; None while it runs."""

    def terminate(self) -> None:
        """SIGTERM to the program alone: it ends its own helpers in the order that it needs. Ended already is fine."""

    def dump(self) -> None:
        """SIGUSR1 to all of the family: each writes its stacks to the log."""

    def kill(self) -> None:
        """SIGKILL to all of the family, whether or not the program itself still runs."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a short command said."""

    code: int
    output: str


class Programs(Protocol):
    """How programs are started."""

    def start(self, name: str, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> Child:
        """Start `argv` with `environment` added, appending to `log`. Raises OSError: it cannot be started."""

    def run(self, argv: Sequence[str], seconds: float) -> Answer:
        """Run a command to its end. Raises OSError, or TimeoutError after `seconds`: it is then killed, and left alone
        where it does not even end by that."""


class MachinePrograms:
    """Real processes of this machine."""

    def __init__(self, lease_id: str, bundle: Path, folder: Path) -> None:
        self._lease_id = lease_id
        self._bundle = bundle
        self._folder = folder

    def start(self, name: str, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> Child:
        """See `Programs.start`."""
        mark = f"{self._lease_id}/{name}"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            process = subprocess.Popen(
                expand(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**os.environ, **self._environment(), **environment, MARK: mark},
                start_new_session=True,
            )
        return _MachineChild(process, mark)

    def run(self, argv: Sequence[str], seconds: float) -> Answer:
        """See `Programs.run`. Not `subprocess.run`: that waits for ever for a process that hangs in a driver."""
        process = subprocess.Popen(
            expand(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(GONE_SECONDS)
            raise TimeoutError(f"{argv[0]} did not end within {seconds:.0f} s") from error
        finally:
            if process.stdout is not None:
                process.stdout.close()
        return Answer(process.returncode, output.decode("utf-8", "replace"))

    def end_left_behind(self, clock: Clock) -> int:
        """End every program that an earlier agent of this lease started. Returns how many there were.

        They are asked first: a training saves then, and nothing of it is lost with its agent.
        """
        mark = f"{self._lease_id}/"
        left = list(_marked(mark, exact=False))
        _signal_all(left, signal.SIGTERM)
        given_up = clock.monotonic() + LEFT_SECONDS
        while any(_marked(mark, exact=False)) and clock.monotonic() < given_up:
            clock.sleep(LEFT_LOOK_SECONDS)
        _signal_all(_marked(mark, exact=False), signal.SIGKILL)
        return len(left)

    def _environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self._bundle), "PYTHONUNBUFFERED": "1"}


def expand(argv: Sequence[str]) -> list[str]:
    """`argv` with the one variable that may stand before an absolute path, as in a shell: the root of the machine."""
    root = os.environ.get("GPUCOST_ROOT", "")
    return [part.replace(ROOT_VARIABLE, root) for part in argv]


class _MachineChild:
    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        self._process = process
        self._mark = mark

    def poll(self) -> int | None:
        return self._process.poll()

    def terminate(self) -> None:
        self._process.terminate()

    def dump(self) -> None:
        _signal_all(_marked(self._mark), signal.SIGUSR1)

    def kill(self) -> None:
        self._process.kill()
        _signal_all(_marked(self._mark), signal.SIGKILL)


def _marked(mark: str, *, exact: bool = True) -> Iterator[int]:
    """Processes of this user whose environment carries the mark, or a mark that begins with it."""
    wanted = f"\0{MARK}={mark}".encode() + (b"\0" if exact else b"")
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in b"\0" + (folder / "environ").read_bytes():
                yield int(folder.name)


def _signal_all(pids: Iterator[int] | Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
