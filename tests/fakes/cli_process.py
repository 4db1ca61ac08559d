"""`gpucost` as its user starts it: a process of its own, read line by line, with a home and a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


class Launcher:
    """One running command."""

    def __init__(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "launcher", *argv],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip())
                self._changed.notify_all()
        self.process.stdout.close()

    @property
    def text(self) -> str:
        """Everything said so far."""
        return "\n".join(self.lines)

    def wait_for(self, words: str, seconds: float = 120) -> str:
        """The first line with `words`; fails with everything that was said where none comes."""
        with self._changed:
            self._changed.wait_for(lambda: self._line(words) or self.process.poll() is not None, seconds)
        found = self._line(words)
        assert found, f"{words!r} was never said:\n{self.text}"
        return found

    def _line(self, words: str) -> str:
        return next((line for line in self.lines if words in line), "")

    def end(self, seconds: float = 240) -> int:
        """Wait for the end; the exit code."""
        code = self.process.wait(seconds)
        self._reader.join(10)
        return code

    def signal(self, number: signal.Signals) -> float:
        """Send a signal; when it was sent."""
        sent = time.time()
        self.process.send_signal(number)
        return sent


class User:
    """Somebody with a home folder and a project folder."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._environment = {**os.environ, "GPUCOST_HOME": str(self.home), "PYTHONUNBUFFERED": "1"} | environment
        self._started: list[Launcher] = []

    def start(self, *argv: str, **environment: str) -> Launcher:
        """Start a command."""
        launcher = Launcher(argv, self.folder, self._environment | environment)
        self._started.append(launcher)
        return launcher

    def run(self, *argv: str, seconds: float = 240, **environment: str) -> Launcher:
        """Run a command to its end."""
        launcher = self.start(*argv, **environment)
        launcher.end(seconds)
        return launcher

    def events(self, run_id: str | None = None) -> list[dict[str, object]]:
        """The journal of a run (the newest), as it lies on disk."""
        journals = sorted((self.home / "runs").glob("*/journal.jsonl"))
        path = journals[-1] if run_id is None else self.home / "runs" / run_id / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def names(self) -> list[str]:
        """The kinds of events of the newest run, in order."""
        return [str(event["type"]) for event in self.events()]

    def leave(self) -> None:
        """End whatever this user left running."""
        for launcher in self._started:
            if launcher.process.poll() is None:
                launcher.process.kill()
                launcher.process.wait(10)
        for lock in (self.home / "runs").glob("*/journal.lock"):
            with suppress(ValueError, ProcessLookupError):  # a launcher in the background
                os.kill(int(lock.read_text()), signal.SIGKILL)
        subprocess.run(
            [sys.executable, "-m", "launcher", "sandbox", "down", "--force"],
            env=self._environment,
            capture_output=True,
            check=False,
        )


def processes_of(home: Path) -> list[str]:
    """Command lines of living processes that name `home`, this one's own children of tests left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(home) in command:
                found.append(command)
    return found
