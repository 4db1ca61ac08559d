"""The end of one run by its tags alone, where its records cannot be read: nobody can say then which machines it has.

Everything that carries the run's tag is removed, whatever its heartbeat says, since the user asked for it. What it cost
is in no ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from launcher.interrupts import Interrupts
from launcher.providers.sweep import Found, joined
from launcher.report import Note
from launcher.sweep.looking import Scope, Sweep, Sweeper, at_once, regions_of
from launcher.sweep.removing import Done, Removal
from launcher.sweep.verdicts import Action, Judged, Verdict

_ASKED = Verdict(Action.REMOVE, "its end was asked for")


def end_run(run_id: str, sweeper: Sweeper, interrupts: Interrupts) -> tuple[Sweep, tuple[Done, ...]]:
    """What there is of a run in all enabled regions, and what became of it. Raises ProviderError.

    Machines that a late answer of the provider hides are not among it, so it looks twice, its grace period apart; not
    after an interrupt.
    """
    regions = regions_of(sweeper, Scope())
    first = _look(run_id, regions, sweeper)
    with interrupts.installed():
        done = _Ending(first, sweeper, interrupts).run()
        if not interrupts.count:
            wait = sweeper.facts.visible_after_seconds
            sweeper.report(Note(f"looking once more in {wait:.0f} s: clouds answer late"))
            sweeper.clock.sleep(wait)
            late = _look(run_id, regions, sweeper, but=[one.found.key for one in done])
            done += _Ending(late, sweeper, interrupts).run()
            first = replace(first, items=first.items + late.items, gaps=first.gaps + late.gaps)
    return first, done


def _look(run_id: str, regions: Sequence[str], sweeper: Sweeper, but: Sequence[tuple[str, ...]] = ()) -> Sweep:
    listing = joined(at_once(lambda region: sweeper.port.find(region, run_id), regions))
    items = tuple(Judged(found, _ASKED) for found in listing.found if found.key not in but)
    return Sweep(sweeper.clock.now(), tuple(regions), items, listing.gaps, {}, {})


class _Ending(Removal):
    def _still_orphaned(self, run_id: str, orphans: Sequence[Found]) -> list[Found]:
        del run_id
        return list(orphans)
