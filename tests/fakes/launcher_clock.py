"""The launcher's clock for tests: time passes in `sleep` alone, and things happen at planned moments meanwhile."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

START = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


class FakeClock:
    """A `Clock` that jumps from one planned action to the next. `limit` ends a test that would never end."""

    def __init__(self, start: datetime = START, *, limit: timedelta = timedelta(days=40)) -> None:
        self.start = start
        self.elapsed = 0.0
        """Seconds since the start."""
        self._limit = limit.total_seconds()
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        """Let time pass; planned actions see the moment that they were planned for."""
        target = self.elapsed + seconds
        while self._planned and self._planned[0][0] <= target:
            moment, _, action = heapq.heappop(self._planned)
            self.elapsed = max(self.elapsed, moment)
            action()
        self.elapsed = max(self.elapsed, target)
        if self.elapsed > self._limit:
            raise AssertionError(f"still waiting after {self.elapsed:.0f} s")

    def at(self, elapsed: float, action: Callable[[], None]) -> None:
        """Do `action` when `elapsed` seconds have passed since the start."""
        heapq.heappush(self._planned, (elapsed, next(self._order), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do `action` in `seconds`."""
        self.at(self.elapsed + seconds, action)


class SkewedClock:
    """How the clock looks on a computer that is set wrong: `ahead` seconds fast, or slow where negative."""

    def __init__(self, clock: FakeClock, ahead: float) -> None:
        self._clock = clock
        self._ahead = timedelta(seconds=ahead)

    def now(self) -> datetime:
        return self._clock.now() + self._ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
