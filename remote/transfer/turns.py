"""Which task's checkpoint an outcome names, as it has room for one: each in turn, for as long as a reader may be away.

Pure: knows no files and no storage.
"""

from __future__ import annotations

from remote.protocol import Checkpoint

HELD_SECONDS = 7.0
"""Longer than a launcher that watches looks away, and no divisor of the usual paces of those who look less often."""


class Turns:
    """The newest stored checkpoint of each task; one that was stored since it was last named comes before others."""

    def __init__(self) -> None:
        self._newest: dict[str, Checkpoint] = {}
        self._order: list[str] = []
        self._named: str | None = None
        self._since = 0.0
        self._said: Checkpoint | None = None

    def stored(self, checkpoint: Checkpoint) -> None:
        """This is now the newest one of its task."""
        task = checkpoint.task
        self._newest[task] = checkpoint
        if task != self._named:
            self._order = [task, *(other for other in self._order if other != task)]

    def current(self, now: float, *, last: bool = False) -> Checkpoint | None:
        """The one to name at `now` (monotonic seconds), None where none is stored; `last`: nothing is said after it."""
        if self._order and self._is_due(now, last=last):
            if self._named is not None:
                self._order.append(self._named)
            self._named, self._since = self._order.pop(0), now
        self._said = None if self._named is None else self._newest[self._named]
        return self._said

    def _is_due(self, now: float, *, last: bool) -> bool:
        if self._named is None:
            return True
        return self._said == self._newest[self._named] if last else now - self._since >= HELD_SECONDS
