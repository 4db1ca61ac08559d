"""Time, injected. Owns the two clocks of the program; nothing else calls `time` or `datetime.now`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, and waiting."""

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; for waits and limits."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""


class SystemClock:
    """The real clock."""

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """`time.monotonic`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """`time.sleep`."""
        time.sleep(seconds)
