"""The world of a fault schedule: a `World` whose launchers die, sleep and are set wrong, and that keeps the truth.

What it notes is for `cloud_truth`: prices as they were, when a launcher lived, how far clocks were apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import count, takewhile
from pathlib import Path

from cut_journal import Cut, CutJournal
from fake_timer import FakePrices
from launcher_clock import FakeClock
from launcher_processes import SharedClock
from launcher_world import World

from launcher.errors import NoPlan
from launcher.events import Event
from launcher.home import Home, RunFolder
from launcher.jobspec import JobSpec
from launcher.journal import Journal, JournalBusy, decode, encode
from launcher.planning import Catalog
from launcher.providers.interface import LaunchRequest
from launcher.run import Run
from pricing.planner import Plan
from remote.protocol import AgentStatus, StoredRun

_PLANS: dict[tuple[str, float, int], Plan | None] = {}
"""By job, speed and rates; None: no offer fits."""
LAUNCH, CLOSE = '"type":"LaunchRequested"', '"type":"LeaseClosed"'
"""In the lines of a journal."""


class MemoryJournal(CutJournal):
    """A journal in memory. Each line is encoded and decoded as on disk, and a launcher dies at the same ones."""

    def __init__(self, path: Path, shelf: Shelf, cut: Cut | None = None) -> None:
        super().__init__(path, cut)
        self._shelf = shelf

    def lines(self) -> list[str]:
        """The records as they are written."""
        return list(self._shelf.journals.get(self.path, ()))

    def events(self) -> list[Event]:
        """All events so far."""
        return [decoded(line) for line in self.lines()]

    def write(self, event: Event) -> str:
        """One more record; its line."""
        line = encode(len(self.lines()) + 1, event)
        self.extend([line])
        return line

    def extend(self, lines: Sequence[str]) -> None:
        """Append records that another launcher wrote, as they are."""
        self.replace([*self.lines(), *lines])

    def replace(self, lines: Sequence[str]) -> None:
        """Put other records in the place of all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._shelf.journals[self.path] = list(lines)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the right to append; raises JournalBusy where another process has it."""
        if self.path in self._shelf.held:
            raise JournalBusy(f"run {self.path.parent.name} is driven by another process")
        self._shelf.held.add(self.path)
        try:
            yield
        finally:
            self._shelf.held.remove(self.path)


@lru_cache(maxsize=1000)
def decoded(line: str) -> Event:
    """The event of a journal line."""
    return decode(line, "a line in memory")


@dataclass(frozen=True)
class Shelf:
    """What a state directory keeps in memory."""

    journals: dict[Path, list[str]] = field(default_factory=dict)
    held: set[Path] = field(default_factory=set)
    statuses: dict[Path, AgentStatus] = field(default_factory=dict)


@dataclass(frozen=True)
class QuickFolder(RunFolder):
    """Keeps the journal and the agent's last status in memory."""

    shelf: Shelf

    @property
    def journal(self) -> Journal:
        """The truth about the run."""
        return MemoryJournal(self.root / "journal.jsonl", self.shelf)

    def keep_status(self, status: AgentStatus) -> None:
        """Remember what the agent said last."""
        self.shelf.statuses[self.root] = status

    def last_status(self) -> AgentStatus | None:
        """What the agent said last."""
        return self.shelf.statuses.get(self.root)


@dataclass(frozen=True)
class QuickHome(Home):
    """A state directory of such folders."""

    shelf: Shelf = field(default_factory=Shelf)

    def run(self, run_id: str) -> RunFolder:
        """The folder of one run."""
        return QuickFolder(self.runs / run_id, self.shelf)


@dataclass
class Truth:
    """What no launcher knows."""

    prices: FakePrices
    """With all that they were."""
    lives: list[tuple[datetime, datetime]] = field(default_factory=list)
    """When launchers lived."""
    clocks: set[float] = field(default_factory=lambda: {0.0})
    """How far the clocks of launchers and machines were ahead of the true time."""
    storage_out: list[tuple[datetime, datetime]] = field(default_factory=list)
    """When machines could not reach the storage."""
    unwritten: list[str] = field(default_factory=list)
    """Leases whose machine was launched although the storage had no open lease of that name."""
    silent_seconds: float = 0
    """How long, all together, launchers could not learn a price, tell an agent or end a machine."""

    @property
    def clock_error(self) -> float:
        """The most by which two clocks were apart, in seconds."""
        return max(self.clocks) - min(self.clocks)


@dataclass
class ScheduleWorld(World):
    """`ScheduleWorld(folder, clock=SharedClock())`."""

    clock: FakeClock = field(default_factory=SharedClock)
    truth: Truth | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        home = self.home = QuickHome(self.home.root)
        self.journal_class = lambda path, cut: MemoryJournal(path, home.shelf, cut)
        self.truth = self.truth or Truth(self.prices)
        self.prices = self.truth.prices
        self.store_failed = 0
        """Calls of the storage that failed while the last launcher lived."""
        self.provider.on_launch = self._note_launch

    def catalog(self) -> Catalog:
        """Plans are made with the prices in force."""
        known = {} if self.prices.down else self.prices.prices
        offers = tuple(replace(one, usd_per_hour=known.get(one.key, one.usd_per_hour)) for one in self.offers)
        return replace(super().catalog(), offers=offers)

    def plan(self, job: JobSpec) -> Plan:
        """Nothing has happened yet: schedules that begin alike have one plan."""
        asked = (job.model_dump_json(), self.images_per_second, id(self.rates))
        if asked not in _PLANS:
            try:
                _PLANS[asked] = super().plan(job)
            except NoPlan:
                _PLANS[asked] = None
        known = _PLANS[asked]
        if known is None:
            raise NoPlan("no offer fits these limits")
        return known

    def set_clock(self, ahead: float) -> None:
        """The next launcher of this machine runs on a clock that is wrong by so much."""
        self.clock_ahead = ahead
        self.truth.clocks.add(ahead)

    def live(self, drive: Callable[[], Run]) -> Run:
        """One launcher, however it ends; how long it lived is noted."""
        begun, self.store_failed = self.clock.now(), len(self.store.failed)
        try:
            run = drive()
        finally:
            self.truth.lives.append((begun, self.clock.now()))
            self.store_failed = len(self.store.failed) - self.store_failed
        for machine in self.provider.alive():
            assert self._is_open(machine.request), "the run is settled, and something is still billed"
        return run

    def _note_launch(self, request: LaunchRequest) -> None:
        if not self._is_open(request):
            self.truth.unwritten.append(request.lease_id)

    def _is_open(self, request: LaunchRequest) -> bool:
        """Whether the lease is, for anybody who has the prefix only: the newest record about leases is its intent."""
        names = StoredRun(request.run_id)
        stored = (self.store.objects.get(names.record(number), b"").decode() for number in count(1))
        about = [line for line in takewhile(bool, stored) if LAUNCH in line or CLOSE in line]
        return bool(about) and LAUNCH in about[-1] and f'"lease_id":"{request.lease_id}"' in about[-1]
