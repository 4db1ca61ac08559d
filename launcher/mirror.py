"""The journal's copy in the object storage: one create-only object for each record, numbered, which is also the fence.

With it any machine can go on with a run from the prefix alone. Two launchers cannot both write record 17: the one whose
create comes second finds another content there, and steps back. That needs nothing but create-only objects, which S3,
GCS and OSS all have. The launcher's beat beside it says who drives the run now, so that a second one is told before it
claims the run; it is a courtesy, the fence does not depend on it or on any clock.

A launch is mirrored before it is made; everything else is best effort, kept here until the storage answers, and never
delays a stop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launcher.clock import Clock
from launcher.errors import ExitCode, GpucostError, Unreadable
from launcher.events import Claimed, Event
from launcher.journal import decode
from launcher.storage.interface import ObjectStore, StorageError
from remote.protocol import StoredRun

BEAT_SECONDS = 60.0
"""Between two beats, each a write request that costs a two-hundredth of a cent a thousand times over."""
ALIVE_SECONDS = 180.0
"""A launcher heard so lately drives its run: three beats, of which two may be lost or late."""
PAUSE_SECONDS = 30.0
"""After a storage that did not answer, it is left alone for so long."""
SCHEMA = 1
_RECORD = re.compile(r"(\d{6})\.json")


class Fenced(GpucostError):
    """Another launcher has taken this run over. Nothing was stopped from here, and nothing more is done."""

    exit_code = ExitCode.HELD


@dataclass(frozen=True, slots=True)
class Launcher:
    """This process, as the others are told of it."""

    name: str
    """Host and process id, for people."""
    place: str
    """A random name of its state directory: within it, the lock of the journal says who drives a run."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The launcher that was heard last."""

    launcher: str
    place: str
    """The state directory that it works from, as a name that means nothing."""
    silent_seconds: float
    ended: bool

    @property
    def drives(self) -> bool:
        """It is alive, as far as its beat tells."""
        return not self.ended and self.silent_seconds < ALIVE_SECONDS


class Mirror:
    """The copy of one run's journal, as one launcher process writes it."""

    def __init__(self, store: ObjectStore, run_id: str, launcher: Launcher, clock: Clock, scratch: Path) -> None:
        """`scratch` is a folder for a small file on its way."""
        self._store = store
        self._run_id = run_id
        self._names = StoredRun(run_id)
        self.launcher = launcher
        self._clock = clock
        self._file = scratch / "small.json"
        self._stored = 0
        self._waiting: list[str] = []
        self._failed_at: float | None = None
        self._beaten_at: float | None = None
        self._lost = False
        """Another launcher has the run."""

    def length(self) -> int:
        """The number of the last record; objects behind it that no launcher can have written do not count.

        Some before it may be missing or damaged. Raises StorageError.
        """
        return next((number for number in sorted(self.numbers(), reverse=True) if is_record(self.record(number))), 0)

    def numbers(self) -> dict[int, int]:
        """Of everything that has the name of a record, with its bytes. Raises StorageError."""
        items = self._store.list(self._names.journal)
        found = ((_RECORD.fullmatch(item.key.removeprefix(self._names.journal)), item.size) for item in items)
        return {int(match[1]): size for match, size in found if match is not None}

    def record(self, number: int) -> str:
        """One stored line, empty where there is none. Raises StorageError."""
        return (self._store.get(self._names.record(number)) or b"").decode("utf-8", "replace")

    def records(self, after: int = 0, until: int | None = None) -> list[str]:
        """The stored lines from number `after` + 1 on, to `until` or the last.

        Raises StorageError, and Unreadable where one is missing or damaged: what follows it cannot be understood.
        """
        last = self.length() if until is None else until
        lines = []
        for number in range(after + 1, last + 1):
            lines.append(self.record(number))
            if not is_record(lines[-1]):
                raise self.damaged(number)
        return lines

    def damaged(self, number: int, reason: str = "") -> Unreadable:
        """The error for a record that is not what follows the one before it."""
        said = f"record {number} of the journal in {self._store.url}/{self._names.journal} is missing or damaged"
        hint = "go on where the whole journal is; `gpucost stop` ends what is still running"
        return Unreadable(f"{said}: {reason}" if reason else said, hint=hint)

    def restore(self, number: int, line: str) -> None:
        """Write a record of ours again where it is gone or damaged. Raises StorageError."""
        self._send(line, self._names.record(number))

    def holder(self) -> Holder | None:
        """Who drives the run; None where nobody ever said so. Raises StorageError."""
        content = self._store.get(self._names.launcher_beat)
        if content is None:
            return None
        try:
            beat = json.loads(content)
            silent = self._clock.now().timestamp() - float(beat["at"])
            return Holder(str(beat["launcher"]), str(beat.get("place", "")), abs(silent), bool(beat.get("ended")))
        except (ValueError, KeyError, TypeError):
            return None

    def begin(self, stored: int, waiting: Sequence[str]) -> None:
        """Take up the copy: `stored` records are in the storage, these lines are not yet."""
        self._stored = stored
        self._waiting = list(waiting)

    def add(self, line: str) -> None:
        """One more record for the storage; nothing is sent."""
        self._waiting.append(line)

    def flush(self) -> None:
        """Store everything that waits. Raises StorageError, Fenced."""
        while self._waiting:
            self._create(self._stored + 1, self._waiting[0])
            self._stored += 1
            del self._waiting[0]

    def flush_if_possible(self, *, at_once: bool = False) -> str | None:
        """`flush`, unless the storage failed just now and it is not asked for `at_once`.

        Why not, told once for each outage. Raises Fenced.
        """
        now = self._clock.monotonic()
        if not at_once and self._failed_at is not None and now - self._failed_at < PAUSE_SECONDS:
            return None
        first = self._failed_at is None
        try:
            self.flush()
        except StorageError as error:
            self._failed_at = now
            return str(error) if first else None
        self._failed_at = None
        return None

    def beat(self) -> None:
        """Say that this launcher is alive, about once a minute, and look for another one. Raises Fenced."""
        now = self._clock.monotonic()
        if self._beaten_at is not None and now - self._beaten_at < BEAT_SECONDS:
            return
        self._beaten_at = now
        with suppress(StorageError):
            self.flush()
            self.check()  # before the beat: the one of a launcher that took the run over must stay
            self._write_beat(ended=False)

    def check(self) -> None:
        """Whether the run is still this launcher's: before what must not be done twice. Raises Fenced, StorageError."""
        number = self._stored + 1
        if number in self.numbers() and is_record(self.record(number)):
            raise self._fenced(number)

    def leave(self) -> None:
        """This launcher drives the run no more: what waits is tried once more, or others would take its end for none.

        Where another launcher has the run, its beat is left alone.
        """
        with suppress(StorageError, Fenced):
            self.flush()
        if not self._lost:
            with suppress(StorageError):
                self._write_beat(ended=True)

    def _write_beat(self, *, ended: bool) -> None:
        at = self._clock.now().timestamp()
        me = self.launcher
        beat = {"schema": SCHEMA, "launcher": me.name, "place": me.place, "at": at, "ended": ended}
        self._send(json.dumps(beat), self._names.launcher_beat)

    def _create(self, number: int, line: str) -> None:
        key = self._names.record(number)
        if self._store.create(key, line.encode()):
            return
        found = (self._store.get(key) or b"").decode("utf-8", "replace")
        if found == line:
            return
        if is_record(found) or any(later > number for later in self.numbers()):
            raise self._fenced(number)
        self._send(line, key)  # no launcher wrote that, and none could read it

    def _send(self, text: str, key: str) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(text, encoding="utf-8")
        except OSError as error:  # a full disk here is one more way for the storage to be out of reach
            raise StorageError(f"{key} cannot be sent: {error}", hint="make room on this machine") from error
        self._store.upload(self._file, key)

    def _fenced(self, number: int) -> Fenced:
        self._lost = True
        said = f"run {self._run_id} was taken over by {self._claimant(number)}: nothing more is done from here"
        return Fenced(said, hint=f"look at it with `gpucost status {self._store.url}/{self._run_id}`")

    def _claimant(self, number: int) -> str:
        lines = (self.record(one) for one in sorted(self.numbers()) if one >= number)
        claims = [event.launcher for event in map(_event, lines) if isinstance(event, Claimed)]
        return claims[-1] if claims else "another launcher"


def _event(line: str) -> Event | None:
    try:
        return decode(line, "a stored record")
    except GpucostError:
        return None


def is_record(line: str) -> bool:
    """Whether a launcher can have written this."""
    return _event(line) is not None
