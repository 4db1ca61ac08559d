"""Removing what a sweep found to be orphaned: machines first, then what they held, each until the provider says gone.

Right before a run's things are removed they are looked at and judged again, with its heartbeat: it may have come back
to life since. A failure is the failure of one thing; the rest goes on. An interrupt ends the work between two calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from launcher.errors import ExitCode
from launcher.interrupts import Interrupted, Interrupts
from launcher.providers.interface import RefusedError, UnreachableError
from launcher.providers.sweep import Found, InUseError, Kind, joined
from launcher.report import Note
from launcher.sweep.looking import Sweep, Sweeper, read_beats
from launcher.sweep.verdicts import Judged, judge_all

_FIRST = frozenset({Kind.INSTANCE, Kind.SPOT_REQUEST})
"""What can hold, or start, everything else."""
_ORDER = list(Kind)
_NAMED = 3


class Result(StrEnum):
    """What became of one orphan."""

    REMOVED = "removed"
    GONE = "gone by itself"
    KEPT = "kept"
    FAILED = "not removed"
    UNCONFIRMED = "not confirmed gone"
    NOT_DONE = "not done"


@dataclass(frozen=True, slots=True)
class Done:
    """One orphan, what became of it, and why."""

    found: Found
    result: Result
    reason: str = ""

    @property
    def is_left(self) -> bool:
        """Whether it should be gone and is not, as far as anybody knows."""
        return self.result in {Result.FAILED, Result.UNCONFIRMED, Result.NOT_DONE}


@dataclass(slots=True)
class Removal:
    """One pass over the orphans of a sweep."""

    sweep: Sweep
    sweeper: Sweeper
    interrupts: Interrupts
    done: list[Done] = field(default_factory=list)

    def run(self) -> tuple[Done, ...]:
        """Remove every orphan; one result for each, in the order in which they came about."""
        orphans = sorted((judged.found for judged in self.sweep.orphans), key=lambda one: _ORDER.index(one.kind))
        self._remove([one for one in orphans if one.kind in _FIRST])
        self._remove([one for one in orphans if one.kind not in _FIRST])
        return tuple(self.done)

    def _remove(self, orphans: Sequence[Found]) -> None:
        """Look at each run again and ask for the end of its orphans at once; then wait until all are gone.

        What a machine that cannot be ended holds is not waited for.
        """
        waiting: dict[Found, str] = {}
        held = {one.found.run_id for one in self.done if one.found.kind is Kind.INSTANCE and one.is_left}
        for run_id in dict.fromkeys(one.run_id for one in orphans):
            mine = [one for one in orphans if one.run_id == run_id]
            if self.interrupts.count:
                self._leave(mine)
                continue
            asked: dict[Found, str] = {}
            for one in self._still_orphaned(str(run_id), mine):
                self._try(one, asked)
            if run_id in held:
                self._give_up(asked, "its machine is still there")
            waiting |= asked
        self._until_gone(waiting)

    def _leave(self, orphans: Iterable[Found]) -> None:
        self.done += [Done(one, Result.NOT_DONE, "interrupted") for one in orphans]

    def _still_orphaned(self, run_id: str, orphans: Sequence[Found]) -> list[Found]:
        """Those that are still there and still orphaned, as they are now; the others get their result."""
        judged, gaps = self._look_again(run_id)
        now = {one.found.key: one for one in judged}
        doomed = []
        for one in orphans:
            again = now.get(one.key)
            if again is not None and again.is_orphan:
                doomed.append(again.found)
            elif again is not None:
                self.done.append(Done(one, Result.KEPT, again.verdict.reason))
            elif gaps:
                self.done.append(Done(one, Result.FAILED, f"cannot be looked at again: {gaps[0]}"))
            else:
                self.done.append(Done(one, Result.GONE))
        return doomed

    def _look_again(self, run_id: str) -> tuple[tuple[Judged, ...], list[str]]:
        """Everything of a run, judged anew, and why something may be missing."""
        known = [judged.found for judged in self.sweep.items if judged.found.run_id == run_id]
        port = self.sweeper.port
        regions = dict.fromkeys(one.region for one in known if one.region)
        outputs = dict.fromkeys(one.output for one in known if one.kind is Kind.UPLOAD and one.output)
        listing = joined(
            [*(port.find(region, run_id) for region in regions), *(port.uploads(output, run_id) for output in outputs)]
        )
        places = {run_id: self.sweep.places.get(run_id, ())}
        beats = read_beats(self.sweeper, places)
        judged = judge_all(listing.found, beats, self.sweeper.clock.now(), gone=known)
        return judged, [gap.reason for gap in listing.gaps]

    def _until_gone(self, waiting: dict[Found, str]) -> None:
        """Ask again and again for the end of what is still there, until the provider says gone or the time is up."""
        clock, facts = self.sweeper.clock, self.sweeper.facts
        give_up = clock.monotonic() + facts.stop_limit_seconds
        if waiting:
            named = ", ".join(one.id for one in list(waiting)[:_NAMED])
            self.sweeper.report(Note(f"waiting until {len(waiting)} more are gone: {named}"))
        while waiting:
            self._pause(facts.poll_seconds)
            for one in list(waiting):
                over = clock.monotonic() >= give_up and f"no other word in {facts.stop_limit_seconds:.0f} s"
                if self.interrupts.count or over:
                    self._give_up(waiting, over or "interrupted")
                    return
                self._try(one, waiting)

    def _try(self, one: Found, waiting: dict[Found, str]) -> None:
        try:
            if self.sweeper.port.remove(one):
                waiting.pop(one, None)
                self.done.append(Done(one, Result.REMOVED))
            else:
                waiting[one] = "the provider does not say that it is gone"
        except (InUseError, UnreachableError) as error:
            waiting[one] = str(error)
        except RefusedError as error:
            waiting.pop(one, None)
            self.done.append(Done(one, Result.FAILED, f"{error}; {error.hint}"))

    def _give_up(self, waiting: dict[Found, str], why: str) -> None:
        self.done += [Done(one, Result.UNCONFIRMED, f"{said}; {why}") for one, said in waiting.items()]
        waiting.clear()

    def _pause(self, seconds: float) -> None:
        try:
            with self.interrupts.raising():
                self.sweeper.clock.sleep(seconds)
        except Interrupted:
            pass  # counted: the loop looks


def remove_orphans(sweep: Sweep, sweeper: Sweeper, interrupts: Interrupts) -> tuple[Done, ...]:
    """Remove what `sweep` found to be orphaned. Raises nothing of the provider's: every failure is a result."""
    with interrupts.installed():
        return Removal(sweep, sweeper, interrupts).run()


def exit_code(sweep: Sweep, done: Sequence[Done], *, interrupted: bool) -> ExitCode:
    """How a removal ended: the loudest thing that can be said of it."""
    left = [one for one in done if one.is_left]
    if left and interrupted:
        return ExitCode.INTERRUPTED
    if any(one.found.may_bill for one in left):
        return ExitCode.NOT_CONFIRMED_GONE
    return ExitCode.REFUSED if left or sweep.gaps else ExitCode.DONE
