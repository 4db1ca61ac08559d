"""Launchers that die: at a journal line, or wherever somebody raises `Killed` in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher.events import Event
from launcher.journal import Journal
from launcher.mirror import Mirror


class Killed(BaseException):
    """`kill -9` of the launcher."""


@dataclass(frozen=True)
class Cut:
    """The launcher dies at a journal line of this process: before it is written (the effect is done), or after."""

    line: int
    before: bool


class CutJournal(Journal):
    """A journal whose process dies at one of its lines."""

    def __init__(self, path: Path, cut: Cut | None) -> None:
        super().__init__(path)
        self._cut = cut
        self._lines = 0

    def append(self, event: Event) -> str:
        self._lines += 1
        cut = self._cut if self._cut is not None and self._cut.line == self._lines else None
        if cut is not None and cut.before:
            raise Killed
        line = self.write(event)
        if cut is not None:
            raise Killed
        return line

    def write(self, event: Event) -> str:
        """Append for good; the line."""
        return super().append(event)


@contextmanager
def leaving(mirror: Mirror) -> Iterator[None]:
    """However it ends, a launcher says so; one that is killed does not."""
    try:
        yield
    except Killed:
        raise
    except BaseException:
        mirror.leave()
        raise
    mirror.leave()
