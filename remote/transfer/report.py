"""The outcome file of one verb: renewed while bytes move, so that the agent sees a transfer that stands still."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from remote import protocol
from remote.clock import Clock
from remote.protocol import TransferOutcome

RENEW_SECONDS = 2.0


class Report:
    """Counts and writes. `moved` may be called from the threads of a transfer."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._written_at = clock.monotonic()
        self.outcome = TransferOutcome(ok=True)

    def moved(self, count: int) -> None:
        """`count` more bytes went over the wire."""
        with self._lock:
            self.outcome = replace(self.outcome, bytes=self.outcome.bytes + count)
            if self._clock.monotonic() - self._written_at >= RENEW_SECONDS:
                try:
                    self._write()
                except OSError:  # a full disk must not end an upload, nor make it look like one that hangs
                    with suppress(OSError):
                        os.utime(self._path)

    def write(self, outcome: TransferOutcome) -> None:
        """Say `outcome`, with the bytes counted so far."""
        with self._lock:
            self.outcome = replace(outcome, bytes=self.outcome.bytes)
            self._write()

    def _write(self) -> None:
        self._written_at = self._clock.monotonic()
        self.outcome = replace(self.outcome, at=self._clock.now())
        protocol.write(self._path, self.outcome)
