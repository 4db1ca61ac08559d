"""The ledger as people and spreadsheets read it: one row per closed lease, folded from the journals."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

from launcher.render import table
from launcher.run import Run
from launcher.units import show_duration, show_usd
from pricing.ledger import LedgerEntry

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


def _rows(runs: Sequence[Run]) -> Iterator[tuple[Run, LedgerEntry]]:
    for run in runs:
        for entry in run.entries:
            yield run, entry


def total_usd(runs: Sequence[Run]) -> Decimal:
    """Everything that was paid."""
    return sum((entry.usd for _, entry in _rows(runs)), Decimal(0))


def csv_text(runs: Sequence[Run]) -> str:
    """Comma-separated, with a header; times in UTC, money in full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run, entry in _rows(runs):
        writer.writerow(_cells(run, entry))
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
        f"{entry.started_at:%Y-%m-%dT%H:%M:%SZ}",
        f"{entry.ended_at:%Y-%m-%dT%H:%M:%SZ}",
        entry.billed_seconds,
        f"{entry.usd:f}",
        "" if entry.estimate_usd is None else f"{entry.estimate_usd:f}",
        run.outcome.value if run.outcome else run.state.value,
        entry.basis.value,
    )


def table_text(runs: Sequence[Run]) -> str:
    """The same for a terminal, with the total."""
    head = ("run", "machine", "market", "billed", "cost", "estimated", "ended")
    rows = [
        (
            run.run_id,
            f"{entry.instance_type} {entry.zone or entry.region}",
            entry.capacity_type.value,
            show_duration(entry.billed_seconds),
            show_usd(entry.usd),
            "" if entry.estimate_usd is None else show_usd(entry.estimate_usd),
            f"{entry.ended_at:%Y-%m-%d %H:%M}",
        )
        for run, entry in _rows(runs)
    ]
    if not rows:
        return "nothing was paid for yet\n"
    return f"{table(head, rows, right=frozenset({3, 4, 5}))}\ntotal: {show_usd(total_usd(runs))}\n"


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears whole. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
