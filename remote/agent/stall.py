"""Seeing that a training stands still. Pure: steps and times come in; knows no process."""

from __future__ import annotations

from collections import deque
from statistics import median

MEDIANS = 20
REMEMBERED = 101


class StallWatch:
    """Steps of one attempt. A stall is no new step for max(floor, 20 median steps), the first step included."""

    def __init__(self, floor_seconds: float, now: float) -> None:
        self._floor = floor_seconds
        self._first: int | None = None
        self._last: int | None = None
        self._moved_at = now
        self._step_seconds: deque[float] = deque(maxlen=REMEMBERED)

    @property
    def steps(self) -> int:
        """Steps seen to be made in this attempt."""
        return 0 if self._first is None or self._last is None else self._last - self._first

    def see(self, step: int, now: float) -> None:
        """A step count was read at `now`."""
        if self._last is None:
            self._first = step
        elif step > self._last:
            self._step_seconds.append((now - self._moved_at) / (step - self._last))
        if self._last is None or step > self._last:
            self._last, self._moved_at = step, now

    def limit(self) -> float:
        """Seconds without a step that make a stall."""
        return max(self._floor, MEDIANS * median(self._step_seconds)) if self._step_seconds else self._floor

    def stalled(self, now: float) -> bool:
        """Whether it stands still at `now`."""
        return now - self._moved_at > self.limit()
