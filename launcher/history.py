"""What is known of runs from the journals on this machine: asks nobody, so it takes no time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from launcher.context import Context
from launcher.errors import BadInput
from launcher.events import Refusal
from launcher.home import Home, RunFolder
from launcher.journal import replay
from launcher.limits import owed_usd
from launcher.recovery import COOL_DOWN
from launcher.report import Note
from launcher.run import Run
from pricing.sources.tables import load_rates
from remote.protocol import AgentStatus


def load_run(run_id: str, context: Context) -> Run:
    """Fold a run's journal. Raises BadInput."""
    return folded(context.home.run(run_id))


def folded(folder: RunFolder) -> Run:
    """The run of a folder. Raises BadInput."""
    run = replay(folder.journal.events(), str(folder.journal.path))
    return replace(run, results_dir=folder.results_dir(run.opened.results_dir))


def all_runs(context: Context) -> list[Run]:
    """Every run known here, oldest first. One whose journal cannot be read is told and left out."""
    found = []
    for run_id in context.home.run_ids():
        try:
            found.append(load_run(run_id, context))
        except BadInput as error:
            context.report(Note(f"left out: {error}"))
    return found


def recent_refusals(home: Home, now: datetime, but: str = "") -> tuple[Refusal, ...]:
    """What the other runs of this machine were refused while it still counts, from the journals touched since."""
    found: list[Refusal] = []
    for run_id in home.run_ids():
        journal = home.run(run_id).journal
        if run_id == but or now.timestamp() - journal.path.stat().st_mtime > COOL_DOWN.total_seconds():
            continue
        try:
            found += replay(journal.events(), str(journal.path)).refusals
        except BadInput:
            continue  # told by `ls`; here it is only one hint less
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a run."""

    run: Run
    status: AgentStatus | None
    usd: Decimal
    driven_by: int | None


def look(run_id: str, context: Context) -> Look:
    """A run from local state alone, so that it takes no time; raises BadInput."""
    run = load_run(run_id, context)
    folder = context.home.run(run_id)
    return Look(run, folder.last_status(), usd_now(run, context), folder.journal.writer())


def usd_now(run: Run, context: Context) -> Decimal:
    """What a run costs if it is stopped now."""
    return owed_usd(run, context.clock.now(), load_rates())
