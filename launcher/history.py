"""What is known of runs from the journals on this machine: asks nobody, so it takes no time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from launcher.clouds import AWS
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
from remote.protocol import AgentStatus, Phase


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


def usd_now(run: Run, context: Context, status: AgentStatus | None = None) -> Decimal:
    """What a run costs if it is stopped now; `status`: what its agent said last."""
    return owed_usd(run, paid_until(run, status, context.clock.now()), load_rates())


def paid_until(run: Run, status: AgentStatus | None, now: datetime) -> datetime:
    """Now, or when the open machine was off at the latest: by its own stops, or soon after its agent ended."""
    if run.lease is None:
        return now
    off = timedelta(seconds=AWS.power_off_seconds)
    ends = [now, run.lease.deadline + off]
    if status is not None and status.lease_id == run.lease.lease_id and status.phase is Phase.ENDED:
        ends.append(datetime.fromtimestamp(status.at, UTC) + timedelta(seconds=AWS.linger_seconds) + off)
    return min(ends)
