"""Taking up a run: the journal here and its copy in the storage are brought to agree, and the run is claimed.

The lock of the journal keeps a second launcher of this state directory out; the copy keeps every other one out. Knows
nothing of steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from launcher.clock import Clock
from launcher.errors import BadInput, ExitCode, StopUnconfirmed, Unreadable
from launcher.events import Claimed, RunOpened
from launcher.home import RunFolder, name_in
from launcher.journal import Journal, JournalBusy, decode, replay
from launcher.mirror import Mirror, is_record
from launcher.report import Note, Reporter
from launcher.run import IllegalTransition, Run, State, advance
from launcher.storage.interface import StorageError
from launcher.units import show_duration

_RUN_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{4}-[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class HeldElsewhere(JournalBusy):
    """A launcher on another machine drives this run."""

    exit_code = ExitCode.HELD

    def __init__(self, message: str, *, hint: str = "", holder: str = "") -> None:
        super().__init__(message, hint=hint)
        self.holder = holder
        """Its host and process."""


def take_up(journal: Journal, mirror: Mirror, clock: Clock, report: Reporter, *, by_force: bool = False) -> Run:
    """The run as everybody knows it, claimed for this launcher unless it is settled. The caller holds the lock.

    A storage that does not answer is told and gone on without: no machine is launched before it does. `by_force`: a
    launcher that is alive elsewhere loses the run. Raises HeldElsewhere, Fenced, BadInput.
    """
    folder = RunFolder(journal.path.parent)
    try:
        agree(journal, mirror, report)
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
    elif run.state is not State.SETTLED:
        mirror.beat()
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


def agree(journal: Journal, mirror: Mirror, report: Reporter, *, only_forward: bool = False) -> None:
    """Take over what the storage has and this machine has not; what both have must be the same.

    Records are linked by their order: where one number agrees, all before do. Records that only this machine has and
    that lost their number to another launcher's are laid aside beside the journal, unless `only_forward`: then nothing
    is taken over. What is in the storage is not trusted: it must be this run's, and follow from what is here. What was
    lost of it and is here is written again. Raises StorageError, and Unreadable where it is another run's, or where
    something is lost that is not here.
    """
    mine, stored = journal.lines(), mirror.length()
    if stored:
        _require_own(mirror, journal.path.parent.name, mine)
    if not all(map(is_record, mine)) and _covers(mirror, stored, mine):
        mine = _that_follow([], mirror, stored) + mine[stored:]
        journal.replace(mine)
        report(Note(f"the damaged journal {journal.path} was mended from its copy in the storage"))
    common, theirs = _last_common(mirror, min(stored, len(mine)))
    if common and theirs != mine[common - 1]:
        if only_forward:
            return
        mine = _that_follow([], mirror, stored)
        journal.replace(mine)
    elif stored > len(mine):
        if common < len(mine):
            raise mirror.damaged(common + 1)  # what comes behind it may be another launcher's
        missing = _that_follow(mine, mirror, stored)
        journal.extend(missing)
        mine += missing
    if not only_forward:
        _mend(mirror, mine[:stored], report)
    mirror.begin(min(stored, len(mine)), mine[stored:])


def _last_common(mirror: Mirror, most: int) -> tuple[int, str]:
    """Number and line of the last whole record among the first so many of the copy; 0 where there is none."""
    lines = ((number, mirror.record(number)) for number in range(most, 0, -1))
    return next(((number, line) for number, line in lines if is_record(line)), (0, ""))


def _covers(mirror: Mirror, stored: int, mine: Sequence[str]) -> bool:
    """Whether the copy has everything that is damaged here, and is followed by the rest."""
    behind = mine[stored:]
    return all(map(is_record, behind)) and (not behind or (stored > 0 and mirror.record(stored) == mine[stored - 1]))


def _mend(mirror: Mirror, lines: Sequence[str], report: Reporter) -> None:
    """Write again what is gone from the storage, or has another size."""
    there = mirror.numbers()
    for number, line in enumerate(lines, 1):
        if there.get(number) != len(line.encode()):
            mirror.restore(number, line)
            report(Note(f"record {number} was lost from the storage, and is written again"))


def _require_own(mirror: Mirror, run_id: str, mine: Sequence[str]) -> None:
    """As `require_own`, of a copy whose beginning may be lost where this machine has it."""
    first = mirror.record(1)
    if is_record(first) or not mine:
        require_own(first, run_id)


def require_own(line: str, run_id: str) -> None:
    """Raises Unreadable where a first record is not that of this run, or names what could be no run of ours."""
    event = decode(line, "the first record in the storage")
    if not isinstance(event, RunOpened):
        raise Unreadable("the copy of the journal does not begin with a run", hint="check the URL")
    names = {event.name, str(event.job.get("name")), name_in(run_id)}
    if event.run_id != run_id or len(names) > 1 or not _RUN_ID.fullmatch(run_id):
        hint = "check the URL, and who may write there"
        raise Unreadable(f"the records stored for {run_id} are another run's", hint=hint)


def _that_follow(mine: Sequence[str], mirror: Mirror, stored: int) -> list[str]:
    """The stored lines behind these. Raises Unreadable for one that is no record, or cannot follow."""
    lines = mirror.records(len(mine), stored)
    run = replay([decode(line, "the journal") for line in mine], "the journal") if mine else None
    for number, line in enumerate(lines, len(mine) + 1):
        event = decode(line, "a stored record")
        try:
            run = replay([event], "the copy of the journal") if run is None else advance(run, event)
        except IllegalTransition as error:
            raise mirror.damaged(number, str(error)) from error
    return lines


def _refuse_if_held(mirror: Mirror, run_id: str) -> None:
    holder = mirror.holder()
    if holder is None or not holder.drives or holder.place == mirror.launcher.place:
        return
    raise HeldElsewhere(
        f"run {run_id} is driven by {holder.launcher}, heard {show_duration(holder.silent_seconds)} ago",
        hint=f"watch it: `gpucost attach {run_id}`; take it over: `gpucost resume {run_id} --take-over`",
        holder=holder.launcher,
    )
