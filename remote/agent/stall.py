"""Seeing that a training stands still. Pure: steps and times come in; knows no process."""

from __future__ import annotations

from collections import deque
from statistics import median

MEDIANS = 20
REMEMBERED = 101


class StallWatch:
    """Steps of one attempt. A stall is no new step for max(floor, 20 median steps), the first step included.

    The trainer tells progress after each step, and after each batch of a validation, which makes no steps but may well
    last longer than the floor: any new word of it counts as movement. One that hangs tells nothing.
    """

    def __init__(self, floor_seconds: float, now: float) -> None:
        self._floor = floor_seconds
        self._first: int | None = None
        self._last: int | None = None
        self._told_at: float | None = None
        self._stepped_at = self._moved_at = now
        self._step_seconds: deque[float] = deque(maxlen=REMEMBERED)

    @property
    def steps(self) -> int:
        """Steps seen to be made in this attempt."""
        return 0 if self._first is None or self._last is None else self._last - self._first

    def see(self, step: int, told_at: float, now: float) -> None:
        """At `now` (monotonic), a step count was read that the trainer wrote at `told_at` (its own clock)."""
        if told_at != self._told_at:
            self._told_at, self._moved_at = told_at, now
        if self._last is None:
            self._first = step
        elif step > self._last:
            self._step_seconds.append((now - self._stepped_at) / (step - self._last))
        if self._last is None or step > self._last:
            self._last, self._stepped_at = step, now

    def limit(self) -> float:
        """Seconds without a step that make a stall."""
        return max(self._floor, MEDIANS * median(self._step_seconds)) if self._step_seconds else self._floor

    def stalled(self, now: float) -> bool:
        """Whether it stands still at `now`."""
        return now - self._moved_at > self.limit()
