"""Where the paths in a data.yaml lead on this machine: candidates in a fixed order, and what to say about the choice.

Data sets are copied from machine to machine and their paths are not, so a path is tried as written first, and then as
its writer may have meant it. What is used instead of what was written is always told. The working folder plays no part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from remote.dataset.datafile import DataFile, Entry
from remote.dataset.values import DatasetError, Note, NoteKind

DRIVE = re.compile(r"^[A-Za-z]:")


@dataclass(frozen=True, slots=True)
class Written:
    """A path as somebody wrote it, on whatever system."""

    parts: tuple[str, ...]
    rooted: bool
    """Absolute on a system like this one."""
    foreign: bool
    """Absolute on Windows: exists nowhere here."""

    @classmethod
    def parse(cls, text: str) -> Written:
        """Read a path; a backslash separates too."""
        plain = text.strip().replace("\\", "/")
        foreign = bool(DRIVE.match(plain)) or plain.startswith("//")
        plain = DRIVE.sub("", plain)
        parts = tuple(part for part in PurePosixPath(plain).parts if part.strip("/"))
        return cls(parts, plain.startswith("/") and not foreign, foreign)

    def below(self, base: Path) -> Path:
        """This path, started from `base` unless it is absolute."""
        return Path("/", *self.parts) if self.rooted else base.joinpath(*self.parts)

    def tails(self) -> Iterator[tuple[str, ...]]:
        """The path without its first part, without its first two, and so on; never with a `..` in it."""
        for start in range(len(self.parts)):
            if ".." not in self.parts[start:]:
                yield self.parts[start:]


@dataclass(frozen=True, slots=True)
class Place:
    """An existing folder or list file, and the entry that leads to it."""

    entry: Entry
    path: Path


def locate(data: DataFile, entry: Entry) -> tuple[Place, Note | None]:
    """Find the folder or list that `entry` means, with a note unless it is where data.yaml says.

    Raises DatasetError that lists every place tried.
    """
    tried: list[Path] = []
    for candidate in _candidates(data, entry):
        if candidate in tried:
            continue
        if exists(candidate):
            return Place(entry, candidate), _note(data, entry, candidate) if tried or _given_up(data, entry) else None
        tried.append(candidate)
    raise _not_found(data, entry, tried)


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; a name that no file system takes is not there."""
    try:
        return path.exists()
    except OSError:
        return False


def bases(data: DataFile) -> list[Path]:
    """Folders that relative paths may start from: `path`, as written and beside data.yaml, then data.yaml's own."""
    home = data.file.parent
    if data.path is None:
        return [home]
    written = Written.parse(data.path.text)
    return [home] if written.foreign else [written.below(home), home]


def _candidates(data: DataFile, entry: Entry) -> Iterator[Path]:
    written = Written.parse(entry.text)
    home = data.file.parent
    if written.rooted:
        yield written.below(home)
        return
    if not written.foreign:
        for base in bases(data):
            yield written.below(base)
    inner = tuple(part for part in written.parts if part != "..")
    if written.foreign:
        yield from (home.joinpath(*tail) for tail in written.tails())
    elif inner != written.parts:
        yield from (base.joinpath(*inner) for base in bases(data))
    else:
        yield written.below(home.parent)


def _given_up(data: DataFile, entry: Entry) -> bool:
    """Whether the first candidate is already another place than the one written."""
    if Written.parse(entry.text).rooted:
        return False
    return Written.parse(entry.text).foreign or (data.path is not None and Written.parse(data.path.text).foreign)


def _note(data: DataFile, entry: Entry, found: Path) -> Note:
    written = f"`{entry.key}: {entry.text}`"
    if data.path is not None and not Written.parse(entry.text).rooted:
        written += f" under `path: {data.path.text}`"
    return Note(NoteKind.PLACE, f"{written} is not there; {found} is used", data.file, entry.line)


def _not_found(data: DataFile, entry: Entry, tried: list[Path]) -> DatasetError:
    places = ", ".join(str(path) for path in tried)
    given = ""
    if data.path is not None and not Written.parse(entry.text).rooted:
        given = f" under `path: {data.path.text}` (line {data.path.line})"
    what = "no such file" if entry.text.endswith(".txt") else "no such folder"
    message = f"{data.file}:{entry.line}: {what} for `{entry.key}: {entry.text}`{given}; tried {places or 'nothing'}"
    return DatasetError(message, _way_out(data, entry))


def _way_out(data: DataFile, entry: Entry) -> str:
    written, home = Written.parse(entry.text), data.file.parent
    if written.rooted:
        for tail in written.tails():
            if exists(home.joinpath(*tail)):
                drop = ": drop the first slash" if len(tail) == len(written.parts) else ""
                return f"{'/'.join(tail)} exists beside {data.file.name}{drop}, write `{entry.key}: {'/'.join(tail)}`"
    key = "path" if data.path is not None and not written.rooted else entry.key
    return f"change `{key}` in {data.file.name}: paths start from the folder of {data.file.name}"
