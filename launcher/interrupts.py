"""SIGINT, SIGTERM, SIGHUP and the word of `gpucost stop` as an exception between two journal records.

While a step runs, the first signal raises `Interrupted` in it, wherever it is: every step may be cut anywhere, since
a `kill -9` may cut it too. While the journal is written, or a machine is being stopped, signals only count.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

ASKED = signal.SIGUSR1
"""What `gpucost stop` sends to the launcher that drives a run, so that its journal tells it from Ctrl-C."""
STOPPED = "stopped with `gpucost stop`"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, ASKED)


def ask_to_stop(pid: int) -> None:
    """Send that word to a launcher. One that is gone by now needs none."""
    with suppress(ProcessLookupError):
        os.kill(pid, ASKED)


class Interrupted(BaseException):
    """The user, or the system, asked the launcher to stop; its text says how."""


class Interrupts:
    """Counts signals and raises the first one inside a step."""

    def __init__(self) -> None:
        self.count = 0
        self.name = ""
        self._armed = False
        self._taken = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals until the block ends; a hang-up that is ignored already (`nohup`) stays so."""
        outlives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        heard = [number for number in _SIGNALS if not (number == signal.SIGHUP and outlives_terminal)]
        before = {number: signal.signal(number, self._handle) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Inside the block the first signal, or one that is already waiting, raises Interrupted."""
        try:
            self._armed = True
            if self.count > self._taken:
                self._raise()
            yield
        finally:
            self._armed = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.name = signal.Signals(number).name
        if self._armed:
            self._raise()

    def _raise(self) -> None:
        self._armed = False
        self._taken = self.count
        raise Interrupted(STOPPED if self.name == ASKED.name else f"interrupted ({self.name})")
