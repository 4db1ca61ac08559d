"""Time on the machine, injected. Owns the clocks that the agent and the transfer program read."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, and waiting."""

    def now(self) -> float:
        """Unix seconds, UTC; what deadlines are compared with."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; for waits and limits."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""


class SystemClock:
    """The real clock."""

    def now(self) -> float:
        """`time.time`."""
        return time.time()

    def monotonic(self) -> float:
        """`time.monotonic`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """`time.sleep`."""
        time.sleep(seconds)
