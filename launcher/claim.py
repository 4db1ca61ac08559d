"""Taking up a run: the journal here and its copy in the storage are brought to agree, and the run is claimed.

The lock of the journal keeps a second launcher of this state directory out; the copy keeps every other one out. Knows
nothing of steps.
"""

from __future__ import annotations

from dataclasses import replace

from launcher.clock import Clock
from launcher.errors import BadInput, ExitCode, StopUnconfirmed
from launcher.events import Claimed
from launcher.home import RunFolder
from launcher.journal import Journal, JournalBusy, replay
from launcher.mirror import Mirror
from launcher.report import Note, Reporter
from launcher.run import Run, State, advance
from launcher.storage.interface import StorageError
from launcher.units import show_duration


class HeldElsewhere(JournalBusy):
    """A launcher on another machine drives this run."""

    exit_code = ExitCode.HELD


def take_up(journal: Journal, mirror: Mirror, clock: Clock, report: Reporter, *, by_force: bool = False) -> Run:
    """The run as everybody knows it, claimed for this launcher unless it is settled. The caller holds the lock.

    A storage that does not answer is told and gone on without: no machine is launched before it does. `by_force`: a
    launcher that is alive elsewhere loses the run. Raises HeldElsewhere, Fenced, BadInput.
    """
    folder = RunFolder(journal.path.parent)
    try:
        agree(journal, mirror)
        if not by_force:
            _refuse_if_held(mirror, journal.path.parent.name)
    except StorageError as error:
        report(Note(f"whether another launcher has this run cannot be found out: {error}"))
        mirror.begin(0, journal.lines())
    run = replay(journal.events(), str(journal.path))
    if run.state is not State.SETTLED:
        run = _claimed(run, journal, mirror, clock)
    told = mirror.flush_if_possible()
    if told is not None:
        report(Note(f"the journal is not copied to the storage yet: {told}"))
    return replace(run, results_dir=folder.results_dir(run.opened.results_dir))


def _claimed(run: Run, journal: Journal, mirror: Mirror, clock: Clock) -> Run:
    claim = Claimed(at=clock.now(), launcher=mirror.launcher.name)
    try:
        mirror.add(journal.append(claim))
    except OSError as error:
        reason = f"the journal {journal.path} cannot be written: {error}"
        hint = f"make room, then `gpucost resume {run.run_id}`"
        if run.lease is not None:
            raise StopUnconfirmed(f"{reason}; A MACHINE OF THIS RUN MAY STILL BE BILLED", hint=hint) from error
        raise BadInput(reason, hint=hint) from error
    return advance(run, claim)


def agree(journal: Journal, mirror: Mirror) -> None:
    """Take over what the storage has and this machine has not; what both have must be the same. Raises StorageError.

    Records are linked by their order: where one number agrees, all before it do. Records that only this machine has
    and that lost their number to another launcher's are laid aside beside the journal.
    """
    mine = journal.lines()
    stored = mirror.length()
    common = min(stored, len(mine))
    if common and mirror.record(common) != mine[common - 1]:
        mine = mirror.records()
        journal.replace(mine)
    elif stored > len(mine):
        missing = mirror.records(after=len(mine))
        journal.extend(missing)
        mine += missing
    mirror.begin(stored, mine[stored:])


def _refuse_if_held(mirror: Mirror, run_id: str) -> None:
    holder = mirror.holder()
    if holder is None or not holder.drives or holder.place == mirror.launcher.place:
        return
    raise HeldElsewhere(
        f"run {run_id} is driven by {holder.launcher}, heard {show_duration(holder.silent_seconds)} ago",
        hint=f"watch it: `gpucost attach {run_id}`; take it over: `gpucost resume {run_id} --take-over`",
    )
