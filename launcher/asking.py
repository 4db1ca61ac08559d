"""Looking at one run: what is known here, and for one that no launcher of this machine drives the word of the storage.

Nothing is changed there; what is newer there is brought here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from launcher import adopting, wiring
from launcher.context import Context
from launcher.errors import BadInput, ProviderError
from launcher.events import CloudStopArmed, LaunchRequested
from launcher.history import folded, load_run, usd_now
from launcher.home import RunFolder
from launcher.journal import decode, replay
from launcher.mailbox import newest_status
from launcher.mirror import Holder, Mirror
from launcher.run import Run, State
from launcher.stops import Stop, stops_of
from launcher.storage.interface import ObjectStore, StorageError
from launcher.units import show_duration
from remote.protocol import AgentStatus


@dataclass(frozen=True, slots=True)
class Word:
    """What the storage says of a run."""

    run: Run
    """As it is there, where that and the journal here disagree; else as it is here."""
    status: AgentStatus | None
    """What the agent of the open lease said last."""
    holder: Holder | None
    """The launcher that was heard last, wherever it is."""
    overtaken: bool
    """The journal of this machine has records that lost their place to another launcher's: it is out of date."""
    place: str
    """This state directory, as `Holder.place` names it."""

    @property
    def driver(self) -> Holder | None:
        """The launcher elsewhere that drives the run now. One of this machine would hold the journal's lock."""
        holder = self.holder
        return holder if holder is not None and holder.drives and holder.place != self.place else None


@dataclass(frozen=True, slots=True)
class View:
    """One run as `status` shows it."""

    run: Run
    status: AgentStatus | None
    usd: Decimal
    driven_by: int | None
    """Process of this machine that drives it."""
    asked: bool
    """The storage was asked who drives it."""
    word: Word | None
    """What it answered."""
    cloud_said: str
    """Why the cloud holds no stop for the open machine."""
    at: datetime
    """When it was looked at."""

    @property
    def driven(self) -> bool:
        """Some launcher is alive and drives the run."""
        return self.driven_by is not None or (self.word is not None and self.word.driver is not None)

    @property
    def stops(self) -> tuple[Stop, ...]:
        """The four stops of the open machine."""
        lease = self.run.lease
        if lease is None:
            return ()
        return stops_of(lease, self.status, self.at, driven=self.driven, cloud_said=self.cloud_said)

    @property
    def driver(self) -> str:
        """Who drives an unfinished run, in words."""
        if self.driven_by is not None:
            return f"process {self.driven_by} of this machine"
        if self.word is not None and self.word.driver is not None:
            heard = show_duration(self.word.driver.silent_seconds)
            return f"{self.word.driver.launcher}, heard {heard} ago"
        return f"{self._nobody()}; go on with `gpucost resume {self.run.run_id}`"

    def _nobody(self) -> str:
        if self.word is None:
            return "nobody here, and the storage does not say who does" if self.asked else "nobody"
        last = self.word.holder
        if last is None or last.ended:
            return "nobody"
        return f"nobody ({last.launcher} was heard last, {show_duration(last.silent_seconds)} ago)"


def view(run_id: str, context: Context, *, thoroughly: bool = False) -> View:
    """What is known of a run. Raises BadInput.

    From local state alone, at once, where the run is over or is driven from this machine, or lies in the embedded
    cloud, which has no other; `thoroughly`: the storage is asked even then, unless it is driven from here.
    """
    run, folder = load_run(run_id, context), context.home.run(run_id)
    pid = folder.journal.writer()
    open_elsewhere = run.state is not State.SETTLED and run.opened.cloud != "sandbox"
    asked = pid is None and (thoroughly or open_elsewhere)
    word = ask(run_id, context) if asked else None
    if word is not None:
        run = word.run
    status = word.status if word is not None and word.status is not None else folder.last_status()
    usd = usd_now(run, context, status)
    return View(run, status, usd, pid, asked, word, _cloud_said(folder, run), context.clock.now())


def _cloud_said(folder: RunFolder, run: Run) -> str:
    if run.lease is None or run.lease.cloud_stop_at is not None:
        return ""
    said = [event for event in folder.journal.events() if isinstance(event, CloudStopArmed | LaunchRequested)]
    return said[-1].message if said and isinstance(said[-1], CloudStopArmed) else ""


def ask(run_id: str, context: Context) -> Word | None:
    """The word of the storage; None where it does not answer."""
    run = load_run(run_id, context)
    try:
        with wiring.storage_at(run.opened.storage_url, context.home, run) as store:
            adopting.adopt(run_id, store, context)
            return word_of(run_id, store, context)
    except (BadInput, ProviderError, StorageError):
        return None


def word_of(run_id: str, store: ObjectStore, context: Context) -> Word:
    """The same of a storage that is reached already. Raises StorageError, BadInput."""
    folder = context.home.run(run_id)
    place = context.home.place()
    mirror = Mirror(store, run_id, wiring.this_launcher(context.home), context.clock, folder.scratch)
    stored = _as_stored(folder, mirror)
    run = stored or folded(folder)
    status = None if run.lease is None else newest_status(run_id, run.lease.lease_id, store)
    return Word(run, status, mirror.holder(), stored is not None, place)


def _as_stored(folder: RunFolder, mirror: Mirror) -> Run | None:
    """The run of the storage, where the journal here disagrees with it."""
    mine = folder.journal.lines()
    common = min(mirror.length(), len(mine))
    if not common or mirror.record(common) in (mine[common - 1], ""):
        return None
    return replay([decode(line, "a stored record") for line in mirror.records()], "the copy of the journal")
