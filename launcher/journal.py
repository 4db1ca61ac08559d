"""The run journal: one JSON line per event, appended and fsynced before anything else happens.

Owns the file format and the lock that keeps a second launcher out. Knows nothing of what the events mean: `run.py`
folds them. A torn last line (a crash in the middle of a write) is dropped; any other damage is an error that names the
line.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any, TextIO

from pydantic import TypeAdapter, ValidationError

from launcher import events
from launcher.clock import SystemClock
from launcher.errors import BadInput, GpucostError, Unreadable
from launcher.events import Event, RunOpened
from launcher.run import IllegalTransition, Run, advance, opened

SCHEMA = 1
_LOCK_TRIES = 10
_LOCK_PAUSE_SECONDS = 0.02

EVENT_TYPES: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        events.RunOpened,
        events.Claimed,
        events.LimitsChanged,
        events.LaunchRequested,
        events.InstanceCreated,
        events.CloudStopArmed,
        events.PriceChanged,
        events.InstanceReady,
        events.DataStaged,
        events.CheckpointSynced,
        events.TrainingExited,
        events.ArtifactsSynced,
        events.CapacityRefused,
        events.Preempted,
        events.Abandoned,
        events.StepFailed,
        events.Cancelled,
        events.LeaseClosed,
        events.Replanned,
        events.Settled,
        events.Reopened,
    )
}


@cache
def _adapter(name: str) -> TypeAdapter[Event]:
    return TypeAdapter(EVENT_TYPES[name])  # making one takes longer than reading a hundred lines with it


class JournalBusy(GpucostError):
    """Another process drives this run."""


class JournalUnwritable(BadInput):
    """Nothing can be recorded of this run here: it cannot be driven."""


def encode(sequence: int, event: Event) -> str:
    """One journal line, without its newline."""
    name = type(event).__name__
    body = _adapter(name).dump_python(event, mode="json")
    return json.dumps(
        {"schema": SCHEMA, "seq": sequence, "type": name, "event": body},
        separators=(",", ":"),
        ensure_ascii=False,
    )


def decode(line: str, origin: str, hint: str = "restore the file from a backup; gpucost never edits it") -> Event:
    """Event of one line.

    Raises Unreadable that names `origin`: damage, with `hint`, or a schema that this version does not read.
    """
    try:
        record: dict[str, Any] = json.loads(line)
        schema, name, body = record["schema"], record["type"], record["event"]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{origin} is damaged: {error}", hint=hint) from error
    if schema != SCHEMA:
        raise Unreadable(
            f"{origin} has schema {schema}, this version reads {SCHEMA}", hint="use the gpucost that wrote it"
        )
    if name not in EVENT_TYPES:
        raise Unreadable(f"{origin} holds an unknown event {name!r}", hint="use the gpucost that wrote it")
    try:
        return _adapter(name).validate_python(body)
    except ValidationError as error:
        raise Unreadable(
            f"{origin} is damaged: {error.errors()[0]['msg']}", hint="use the gpucost that wrote it"
        ) from error


class Journal:
    """The events of one run, on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def events(self) -> list[Event]:
        """All events so far, the torn last line left out. Raises Unreadable for other damage."""
        hint = "give the run's URL instead, s3://.../RUN_ID: its copy in the storage is taken where it is whole"
        return [decode(line, f"{self.path} line {number}", hint) for number, line in enumerate(self.lines(), 1)]

    def lines(self) -> list[str]:
        """The records as they are written, the torn last one left out."""
        if not self.path.exists():
            return []
        return self.path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]

    def append(self, event: Event) -> str:
        """Write `event` and make sure that it is on disk before returning; its line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not self.path.exists()
        with self.path.open("a+b") as out:
            line = encode(_mend(out) + 1, event)
            _write(out, [line])
        if fresh:
            _sync_folder(self.path.parent)
        return line

    def extend(self, lines: Sequence[str]) -> None:
        """Append records that another launcher wrote, as they are."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as out:
            _mend(out)
            _write(out, lines)
        _sync_folder(self.path.parent)

    def replace(self, lines: Sequence[str]) -> None:
        """Put other records in the place of all: the file appears whole, and the old one is kept beside it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            os.link(self.path, _unused(self.path.with_name("journal.superseded.jsonl")))
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        with temporary.open("wb") as out:
            _write(out, lines)
        temporary.replace(self.path)
        _sync_folder(self.path.parent)

    def set_aside(self) -> Path:
        """Give the records another name; where they are now. There is no run in this folder then."""
        aside = _unused(self.path.with_name("journal.damaged.jsonl"))
        self.path.replace(aside)
        return aside

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the right to append; raises JournalBusy where another process has it, JournalUnwritable."""
        with self._lock_file() as lock:
            if not _locked(lock):
                raise _busy(lock.name, self.path.parent.name)
            lock.seek(0)
            lock.truncate()
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def _lock_file(self) -> TextIO:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.with_suffix(".lock").open("a+")
        except OSError as error:
            said = f"{self.path.parent} cannot be written: {error.strerror}"
            raise JournalUnwritable(said, hint="make it writable, or go on elsewhere with the run's URL") from error

    def writer(self) -> int | None:
        """Process id of the launcher that drives this run now; none: nobody does."""
        lock_path = self.path.with_suffix(".lock")
        if not lock_path.exists():
            return None
        with lock_path.open("r") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = lock.read().strip()
                return int(text) if text.isdigit() else -1
        return None


def _locked(lock: TextIO) -> bool:
    """Take the lock. A process that only asks who has it holds it for an instant, which is waited for."""
    pause = SystemClock()
    for _ in range(_LOCK_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        pause.sleep(_LOCK_PAUSE_SECONDS)
    return False


def replay(history: Sequence[Event], origin: str) -> Run:
    """Fold a history into a run. Raises Unreadable: it does not begin with `RunOpened`, or an event cannot follow."""
    if not history or not isinstance(history[0], RunOpened):
        raise Unreadable(
            f"{origin} does not begin with a run", hint="it is not a gpucost journal, or its start was lost"
        )
    run = opened(history[0])
    for number, event in enumerate(history[1:], 2):
        run = follow(run, event, f"{origin} line {number}")
    return run


def follow(run: Run, event: Event, origin: str) -> Run:
    """The run after one more record. Raises Unreadable, which names `origin`: the record cannot follow."""
    try:
        return advance(run, event)
    except IllegalTransition as error:
        hint = "restore the file from a backup; `gpucost stop` ends what is still running"
        raise Unreadable(f"{origin}: {error}", hint=hint) from error


def _mend(out: IO[bytes]) -> int:
    """Cut a torn last line off; how many whole lines there are."""
    out.seek(0)
    content = out.read()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        out.truncate(len(whole))
    out.seek(0, os.SEEK_END)
    return whole.count(b"\n")


def _write(out: IO[bytes], lines: Sequence[str]) -> None:
    out.write("".join(f"{line}\n" for line in lines).encode())
    out.flush()
    os.fsync(out.fileno())


def _unused(path: Path) -> Path:
    """This path, or one with a number, that nobody has yet."""
    candidates = (path.with_name(f"{path.stem}{number or ''}{path.suffix}") for number in count())
    return next(candidate for candidate in candidates if not candidate.exists())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _busy(lock_name: str, run_id: str) -> JournalBusy:
    pid = Path(lock_name).read_text(encoding="utf-8").strip() or "unknown"
    return JournalBusy(
        f"run {run_id} is driven by another process (pid {pid})",
        hint=f"look at it with `gpucost status {run_id}`, or end it with `gpucost stop {run_id}`",
    )
