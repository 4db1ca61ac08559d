"""The ledger as people and spreadsheets read it, folded from the journals.

One row for each closed lease, and one for the objects of each settled run (`RUN_ID/storage`).
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from launcher.render import state_word, table
from launcher.run import Run
from launcher.units import show_duration, show_usd
from pricing.cost import total
from pricing.ledger import Basis, LedgerEntry

COLUMNS = (
    "lease_id",
    "run_id",
    "name",
    "cloud",
    "provider",
    "region",
    "zone",
    "instance_type",
    "gpu",
    "gpu_count",
    "market",
    "usd_per_hour",
    "started_at",
    "ended_at",
    "billed_seconds",
    "usd",
    "estimate_usd",
    "outcome",
    "basis",
)


def _rows(runs: Sequence[Run]) -> Iterator[tuple[Run, LedgerEntry | None]]:
    """A run with each of its machines, then with none: for what its objects cost."""
    for run in runs:
        for entry in run.entries:
            yield run, entry
        if run.storage:
            yield run, None


def row_count(runs: Sequence[Run]) -> int:
    """How many rows the ledger of these runs has."""
    return sum(1 for _ in _rows(runs))


def total_usd(runs: Sequence[Run]) -> Decimal:
    """Everything that was paid: all leases, and the objects of the settled runs."""
    return sum((run.spent_usd for run in runs), Decimal(0))


def csv_text(runs: Sequence[Run]) -> str:
    """Comma-separated, with a header; times in UTC, money in full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run, entry in _rows(runs):
        writer.writerow(_storage_cells(run) if entry is None else _cells(run, entry))
    return out.getvalue()


def _cells(run: Run, entry: LedgerEntry) -> tuple[object, ...]:
    return (
        entry.lease_id,
        entry.run_id,
        run.opened.name,
        run.opened.cloud,
        entry.provider,
        entry.region,
        entry.zone,
        entry.instance_type,
        entry.gpu,
        entry.gpu_count,
        entry.capacity_type.value,
        f"{entry.usd_per_hour:f}",
        _time(entry.started_at),
        _time(entry.ended_at),
        entry.billed_seconds,
        f"{entry.usd:f}",
        "" if entry.estimate_usd is None else f"{entry.estimate_usd:f}",
        state_word(run),
        entry.basis.value,
    )


def _storage_cells(run: Run) -> tuple[object, ...]:
    """The same columns; those that only a machine has are empty, its time is that of the run."""
    machine = ("", "", "", "", "", "")
    return (
        f"{run.run_id}/storage",
        run.run_id,
        run.opened.name,
        run.opened.cloud,
        run.selection.offer.provider,
        run.opened.storage_region or "",
        *machine,
        _time(run.opened.at),
        "" if run.settled_at is None else _time(run.settled_at),
        0,
        f"{total(run.storage):f}",
        "",
        state_word(run),
        Basis.OBJECTS.value,
    )


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def table_text(runs: Sequence[Run]) -> str:
    """The same for a terminal, with the total."""
    head = ("run", "machine", "market", "billed", "cost", "estimated", "ended")
    rows = [_storage_row(run) if entry is None else _row(run, entry) for run, entry in _rows(runs)]
    if not rows:
        return "nothing was paid for yet\n"
    return f"{table(head, rows, right=frozenset({3, 4, 5}))}\ntotal: {show_usd(total_usd(runs))}\n"


def _row(run: Run, entry: LedgerEntry) -> tuple[str, ...]:
    return (
        run.run_id,
        f"{entry.instance_type} {entry.zone or entry.region}",
        entry.capacity_type.value,
        show_duration(entry.billed_seconds),
        show_usd(entry.usd),
        "" if entry.estimate_usd is None else show_usd(entry.estimate_usd),
        f"{entry.ended_at:%Y-%m-%d %H:%M}",
    )


def _storage_row(run: Run) -> tuple[str, ...]:
    ended = "" if run.settled_at is None else f"{run.settled_at:%Y-%m-%d %H:%M}"
    return (run.run_id, "objects and download", "", "", show_usd(total(run.storage)), "", ended)


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears whole, where a link points, and into a pipe or device. Raises OSError."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
