"""What must hold after every drill, whatever happened: nothing runs, the ledger is complete, no more work is lost than
what was done since the newest complete checkpoint.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from cli_process import processes_of

from drills import progress
from drills.result import Loss
from drills.scene import BUDGET_USD, NAME, Scene


@dataclass(frozen=True, slots=True)
class Verdict:
    """The run at its end."""

    outcome: str
    loss: Loss
    usd: Decimal
    billed_after_seconds: float | None
    faults: list[str]


def examine(scene: Scene) -> Verdict:
    """Look at everything while the embedded cloud is still up."""
    run = _run(scene)
    rows = _ledger(scene)
    faults = [*_still_there(scene), *_not_settled(run), *_ledger_faults(scene, rows), *_result_faults(scene, run)]
    loss = _loss(scene, run)
    faults += _loss_faults(scene)
    return Verdict(
        outcome=_outcome(scene, run),
        loss=loss,
        usd=sum((Decimal(row["usd"]) for row in rows), Decimal(0)),
        billed_after_seconds=_billed_after(scene, rows),
        faults=faults,
    )


def left_on_host(home: Path) -> list[str]:
    """Processes that name the home, after everything was taken down."""
    return [f"the process {command[:120]}" for command in processes_of(home)]


def _run(scene: Scene) -> dict[str, Any]:
    answer = scene.user.run("status", "--json").text
    start = answer.find("{")
    document: dict[str, Any] = json.loads(answer[start:]) if start >= 0 else {}
    return document


def _outcome(scene: Scene, run: dict[str, Any]) -> str:
    machines = run.get("machines", 0)
    end = run.get("outcome") or run.get("state", "no run")
    return "; ".join([f"{end}, {machines} machine{'s' if machines != 1 else ''}", *scene.remarks])


def _not_settled(run: dict[str, Any]) -> Iterator[str]:
    if run.get("state") not in {"settled", "planned"}:
        yield f"the run is {run.get('state')!r} and not settled"


def _still_there(scene: Scene) -> Iterator[str]:
    for instance in scene.truth.living():
        yield f"machine {instance.instance_id} is {instance.state}"
    for thing in scene.truth.left_behind():
        yield f"left in the cloud: {thing}"


def _ledger(scene: Scene) -> list[dict[str, str]]:
    scene.user.run("report", "--csv", "costs.csv")
    path = scene.user.folder / "costs.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def _ledger_faults(scene: Scene, rows: list[dict[str, str]]) -> Iterator[str]:
    """Every machine that the provider knows has its line, and none is paid twice."""
    machines = scene.truth.instances()
    leases = [row["lease_id"] for row in _of_machines(rows)]
    if len(leases) != len(machines):
        yield f"{len(machines)} machines ran, the ledger has {len(leases)} of them"
    if len(set(leases)) != len(leases):
        yield "a lease is in the ledger twice"
    paid = sum((Decimal(row["usd"]) for row in rows), Decimal(0))
    if paid > Decimal(BUDGET_USD):
        yield f"{paid} USD were paid, the budget is {BUDGET_USD}"


def _result_faults(scene: Scene, run: dict[str, Any]) -> Iterator[str]:
    """A run that is done has all its epochs, each once, and its weights."""
    if run.get("outcome") != "done":
        return
    folder = scene.user.folder / "runs" / NAME
    missing = [name for name in ("best.pt", "last.pt", "results.csv", "train.log") if not (folder / name).exists()]
    if missing:
        yield f"the results lack {', '.join(missing)}"
        return
    rows = list(csv.reader((folder / "results.csv").read_text().splitlines()))[1:]
    epochs = [int(row[0]) for row in rows]
    if epochs != list(range(scene.epochs)):
        yield f"results.csv has the epochs {epochs}, not 0 to {scene.epochs - 1}"


def _loss(scene: Scene, run: dict[str, Any]) -> Loss:
    """The worst throw-back after the accident; where nothing went on after it, what a resume would have to repeat."""
    samples, strike = scene.progress.samples, scene.accident
    worst = progress.loss(samples, strike.at if strike else 0.0)
    if run.get("outcome") == "done" or not samples:
        return worst
    steps = max(worst.steps, scene.progress.reached() - scene.stored())
    return Loss(steps, steps / samples[-1].steps_per_epoch)


def _loss_faults(scene: Scene) -> Iterator[str]:
    """A training begins again no earlier than the newest checkpoint that was complete when the accident came."""
    strike = scene.accident
    if strike is None or scene.spoilt is not None:
        return
    for _, after in progress.restarts(scene.progress.samples, strike.at):
        if progress.began_at(after) < strike.stored:
            yield f"training went on from step {progress.began_at(after)}, step {strike.stored} was safe"


def _billed_after(scene: Scene, rows: list[dict[str, str]]) -> float | None:
    if scene.accident is None:
        return None
    at = scene.accident.at
    spans = [(_moment(row["started_at"]), _moment(row["ended_at"])) for row in _of_machines(rows)]
    return sum(max(0.0, ended - max(at, started)) for started, ended in spans)


def _of_machines(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Without the lines of kept objects."""
    return [row for row in rows if row["instance_type"]]


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
