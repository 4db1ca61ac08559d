"""The JSON documents of `--json`: plain values whose layout is a contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from launcher.jobspec import parse
from launcher.recovery import ended_early
from launcher.run import Run
from pricing.cost import total
from pricing.ledger import Basis, LedgerEntry
from pricing.planner import Plan, PlanOption

if TYPE_CHECKING:
    from launcher.asking import View
    from remote.dataset import Dataset, Imported, Note, Sampled, Summary


def plan_document(plan: Plan, rows: int) -> dict[str, object]:
    """A plan: the chosen option, the ranked ones, and every rejection with its reason."""
    return {
        "chosen": option_document(plan.chosen),
        "ranked": [option_document(option) for option in plan.ranked[:rows]],
        "ranked_total": len(plan.ranked),
        "rejected": [
            {"offer": r.offer.key, "constraint": r.constraint.value, "reason": r.reason} for r in plan.rejections
        ],
        "notes": list(plan.notes),
    }


def option_document(option: PlanOption) -> dict[str, object]:
    """One way to run, with every term of its cost."""
    return {
        "offer": option.offer.key,
        "gpu": option.offer.instance.gpu,
        "gpu_count": option.offer.instance.gpu_count,
        "instance_type": option.offer.instance.name,
        "market": option.offer.capacity_type.value,
        "provider": option.offer.provider,
        "region": option.offer.region,
        "zone": option.offer.zone,
        "usd_per_hour": option.offer.usd_per_hour,
        "price_source": option.offer.source,
        "price_observed_at": option.offer.observed_at,
        "images_per_second": option.throughput.images_per_second,
        "throughput_basis": option.throughput.basis.value,
        "seconds": option.seconds,
        "seconds_low": option.seconds_low,
        "seconds_high": option.seconds_high,
        "usd": option.usd,
        "usd_low": option.usd_low,
        "usd_high": option.usd_high,
        "batch": option.batch,
        "lines": [asdict(line) for line in option.lines],
    }


def run_document(run: Run) -> dict[str, object]:
    """A run: where it is, why it ended, what it cost."""
    epochs = parse(run.opened.job, {}, run.run_id).epochs_by_task
    return {
        "run_id": run.run_id,
        "name": run.opened.name,
        "cloud": run.opened.cloud,
        "state": run.state.value,
        "outcome": run.outcome.value if run.outcome else None,
        "message": run.message,
        "trainer_exit_code": run.exit_code,
        "machines": run.attempt,
        "preemptions": run.preemptions,
        "usd": run.spent_usd,
        "budget_usd": run.budget_usd,
        "estimate_usd": run.opened.selection.estimate.usd,
        "results_dir": run.results_dir,
        "storage_url": run.url,
        "ended_early": [last.task for last in ended_early(run, epochs)],
        "checkpoints": [asdict(checkpoint) for checkpoint in run.checkpoints],
        "leases": [entry_document(run, entry) for entry in run.entries],
        "storage": [asdict(line) for line in run.storage],
    }


def status_document(view: View) -> dict[str, object]:
    """A run with what it costs if it is stopped now, who drives it, and the stops of its machine."""
    holder = None if view.word is None else view.word.holder
    return {
        **run_document(view.run),
        "usd_now": view.usd,
        "driven": view.driven,
        "driven_by": view.driven_by,
        "launcher": None
        if holder is None
        else {"name": holder.launcher, "heard_seconds_ago": round(holder.silent_seconds), "ended": holder.ended},
        "overtaken": view.word is not None and view.word.overtaken,
        "agent": None if view.status is None else asdict(view.status),
        "stops": [asdict(stop) for stop in view.stops],
        "deadline": None if view.run.lease is None else view.run.lease.deadline,
    }


def entry_document(run: Run, entry: LedgerEntry) -> dict[str, object]:
    """One line of the ledger with its cost lines."""
    return {"name": run.opened.name, "cloud": run.opened.cloud, **asdict(entry)}


def storage_document(run: Run) -> dict[str, object]:
    """What the objects of a settled run cost, with the cost lines."""
    return {
        "run_id": run.run_id,
        "name": run.opened.name,
        "cloud": run.opened.cloud,
        "region": run.opened.storage_region,
        "lines": [asdict(line) for line in run.storage],
        "usd": total(run.storage),
        "basis": Basis.OBJECTS.value,
    }


def data_document(dataset: Dataset) -> dict[str, object]:
    """A data set that can be trained on, in numbers, with everything that was noticed in it."""
    from remote.dataset import summary

    counted = summary(dataset)
    sizes = {"smallest": counted.smallest, "largest": counted.largest}
    return {
        "file": dataset.file,
        "sample": False,
        **_counts(counted),
        **sizes,
        "notes": list(map(_note, dataset.notes)),
    }


def sampled_document(found: Sampled, url: str) -> dict[str, object]:
    """A data set in a bucket, as far as its names and a sample of its files show it."""
    counts = {"names": list(found.names), "splits": [asdict(split) for split in found.splits]}
    return {
        "url": url,
        "sample": True,
        **counts,
        "traffic": asdict(found.traffic),
        "notes": list(map(_note, found.notes)),
    }


def imported_document(made: Imported) -> dict[str, object]:
    """A data set that was made of one in another layout, with everything that was not taken over."""
    place = {"layout": made.layout.value, "folder": made.root}
    return {**place, **_counts(made.summary), "notes": list(map(_note, made.notes))}


def _counts(counted: Summary) -> dict[str, object]:
    return {"names": list(counted.names), "splits": [asdict(split) for split in counted.splits]}


def _note(note: Note) -> dict[str, object]:
    return {"kind": note.kind.value, "text": note.text, "file": note.file, "line": note.line}
