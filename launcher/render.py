"""Values to text for people: plans, receipts, lists. Pure; the CLI prints what comes back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal

from launcher.events import Lease, Outcome
from launcher.jobspec import parse
from launcher.recovery import ended_early, epochs_done, resume_command
from launcher.run import Run, State
from launcher.stops import Stop, show_stops
from launcher.units import show_duration, show_usd
from pricing.cost import CostLine
from pricing.ledger import LedgerEntry
from pricing.planner import Plan, PlanOption, Rejection
from pricing.throughput import Basis
from remote.protocol import AgentStatus

ROWS = 10
WIDE = 126
"""Columns that the whole table of offers takes."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[int] = frozenset()) -> str:
    """Columns as wide as their widest cell; `right` names those that hold numbers."""
    cells = [list(head), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(widths[column]) if column in right else cell.ljust(widths[column])
            for column, cell in enumerate(row)
        ).rstrip()
        for row in cells
    )


def show_plan(plan: Plan, *, rows: int = ROWS, width: int = WIDE, startable: Sequence[str] = ()) -> str:
    """The ranked offers, cheapest first, then what was ruled out and why.

    In less than `WIDE` columns the ranges are left out. `startable` are the clouds on which a machine can be started:
    where the chosen one is not among them, the best that is follows; empty: the plan is made of nothing else.
    """
    lines = [_ranked(plan.ranked[:rows], ranges=width >= WIDE)]
    if len(plan.ranked) > rows:
        lines.append(f"... and {len(plan.ranked) - rows} more that fit")
    lines += _ruled_out(plan.rejections)
    chosen = plan.chosen
    lines.append("")
    batch = "" if chosen.throughput.basis is Basis.PROBED else f", batch {chosen.batch}"
    lines.append(f"chosen: {chosen.offer.key}, {chosen.layout}{batch}")
    lines.append(f"speed:  {chosen.throughput.images_per_second:.3g} images/s ({chosen.throughput.source})")
    lines.append(f"price:  {chosen.offer.usd_per_hour} USD/h as of {chosen.offer.observed_at}")
    lines.append("cost:   " + "; ".join(f"{line.what.split(',')[0]} {show_usd(line.usd)}" for line in chosen.lines))
    lines += [f"note:   {note}" for note in (*plan.notes, *chosen.notes)]
    if startable and chosen.offer.provider not in startable:
        lines.append(f"note:   {_best_startable(plan, startable)}")
    return "\n".join(lines)


def _best_startable(plan: Plan, startable: Sequence[str]) -> str:
    provider = plan.chosen.offer.provider
    best = next((option for option in plan.ranked if option.offer.provider in startable), None)
    if best is None:
        return f"gpucost starts no machines on {provider} yet, and nothing that fits where it does"
    where = f"{best.offer.key}: {show_usd(best.usd)} in {show_duration(best.seconds)}"
    return f"gpucost starts no machines on {provider} yet; the best that `train` can take is {where}"


def _ranked(options: Sequence[PlanOption], *, ranges: bool) -> str:
    head = ("#", "GPU", "type", "market", "where", "USD/h", "time", "range", "cost", "range")
    rows = [_row(number, option) for number, option in enumerate(options, 1)]
    if ranges:
        return table(head, rows, right=frozenset({0, 5, 6, 8}))
    short = [(*row[:7], row[8]) for row in (head, *rows)]
    return table(short[0], short[1:], right=frozenset({0, 5, 6, 7}))


def _row(number: int, option: PlanOption) -> tuple[str, ...]:
    offer = option.offer
    count = "" if offer.instance.gpu_count == 1 else f"{offer.instance.gpu_count:g}x "
    return (
        str(number),
        f"{count}{offer.instance.gpu}",
        offer.instance.name,
        offer.capacity_type,
        f"{offer.provider} {offer.zone or offer.region}",
        f"{offer.usd_per_hour:.4f}",
        show_duration(option.seconds),
        f"{show_duration(option.seconds_low)} .. {show_duration(option.seconds_high)}",
        show_usd(option.usd),
        f"{show_usd(option.usd_low)} .. {show_usd(option.usd_high)}",
    )


def _ruled_out(rejections: Sequence[Rejection]) -> list[str]:
    if not rejections:
        return []
    counts = Counter(rejection.constraint.value for rejection in rejections)
    listed = ", ".join(f"{count} by {constraint}" for constraint, count in counts.most_common())
    lines = [f"not ranked: {len(rejections)} offers ({listed}); for example"]
    seen: set[str] = set()
    for rejection in rejections:
        if rejection.constraint.value not in seen:
            seen.add(rejection.constraint.value)
            lines.append(f"  {rejection.offer.key}: {rejection.reason}")
    return lines


def show_cap(budget: Decimal | None, deadline_seconds: float | None) -> str:
    """The two limits, or the lack of them, in one line."""
    money = (
        f"at most {show_usd(budget)}" if budget is not None else "NO BUDGET: the machine ends at twice the plan's p90"
    )
    return money + (f", done within {show_duration(deadline_seconds)}" if deadline_seconds is not None else "")


def show_receipt(run: Run) -> str:
    """What was paid for, line by line, against what was estimated."""
    lines = [f"receipt of {run.run_id}", f"  ended: {_ending(run)}", *(f"  {line}" for line in _early(run))]
    for entry in run.entries:
        lines += _lease_lines(entry)
    if not run.entries:
        lines.append("  nothing was paid for: no machine ever ran" if not run.storage else "  no machine ever ran")
    if run.storage:
        lines += ["  objects of the run, estimated from their sizes", *map(_cost_line, run.storage)]
    cap = f" of {show_usd(run.budget_usd)} allowed" if run.budget_usd is not None else ""
    lines.append(f"  total: {show_usd(run.spent_usd)}{cap}")
    lines.append(f"  estimated: {_estimated(run)}")
    if run.state is State.SETTLED and run.entries:
        gone = ", ".join(f"{entry.lease_id.rsplit('-', 1)[-1]}: {entry.instance_type}" for entry in run.entries)
        lines.append(f"  confirmed gone by the provider: machine {gone}")
    return "\n".join(lines)


def _ending(run: Run) -> str:
    return f"{state_word(run)}{': ' + run.message if run.message else ''}"


def state_word(run: Run) -> str:
    """Where a run is, in one word everywhere: its state, and once it is over how it ended."""
    return run.outcome.value if run.outcome else run.state.value


def _early(run: Run) -> list[str]:
    """What ended before its last epoch, since nothing got better any more."""
    job = parse(run.opened.job, {}, run.run_id)
    epochs = job.epochs_by_task
    waited = f" for {job.trainer.patience} epochs" if job.trainer.patience else ""
    return [
        f"ended early: {last.task} after epoch {last.epoch} of {epochs[last.task]}, no better{waited} (patience)"
        for last in ended_early(run, epochs)
    ]


def _lease_lines(entry: LedgerEntry) -> list[str]:
    where = f"{entry.provider} {entry.zone or entry.region}"
    ran = math.ceil((entry.ended_at - entry.started_at).total_seconds())
    billed = f"{entry.billed_seconds} s billed{f' (it ran {ran} s)' if ran < entry.billed_seconds else ''}"
    head = f"  {entry.instance_type} ({entry.gpu}), {entry.capacity_type}, {where}: {billed}"
    return [head, *map(_cost_line, entry.lines)]


def _cost_line(line: CostLine) -> str:
    amount = f"{line.quantity:>12.6f} {line.unit:<9} x {line.usd_per_unit:f} = {line.usd:.6f} USD"
    return f"    {line.what:<36} {amount}"


def _estimated(run: Run) -> str:
    first = run.opened.selection.estimate
    spent = run.spent_usd
    ratio = f", actual is {float(spent / first.usd):.2f} times that" if first.usd and spent else ""
    return (
        f"{show_usd(first.usd)} ({show_usd(first.usd_low)} .. {show_usd(first.usd_high)}) "
        f"in {show_duration(first.seconds)}{ratio}; speed: {first.basis}"
    )


def show_runs(runs: Sequence[tuple[Run, Decimal]]) -> str:
    """One line for each run, with what it costs if it is stopped now; the newest last."""
    head = ("run", "state", "epochs", "machines", "cost", "budget", "where")
    return table(head, (_run_row(run, usd) for run, usd in runs), right=frozenset({2, 3, 4, 5}))


def _run_row(run: Run, usd: Decimal) -> tuple[str, ...]:
    offer = run.selection.offer
    return (
        run.run_id,
        state_word(run),
        str(max((checkpoint.epoch for checkpoint in run.checkpoints), default=0)),
        str(run.attempt),
        show_usd(usd),
        show_usd(run.budget_usd) if run.budget_usd is not None else "none",
        f"{run.opened.cloud} {offer.zone or offer.region} {offer.instance.name} {offer.capacity_type}",
    )


def show_status(
    run: Run, status: AgentStatus | None, *, now: datetime, usd: Decimal, driver: str, stops: Sequence[Stop] = ()
) -> str:
    """Everything about one run that is known without asking its machine."""
    lines = [f"run      {run.run_id}", f"state    {_ending(run)}", *(f"         {line}" for line in _early(run))]
    if run.lease is not None:
        lines += _lease_status(run, run.lease, stops, now)
    if status is not None and run.state is not State.SETTLED:
        age = max(0.0, now.timestamp() - status.at)
        lines.append(f"agent    {show_agent(status)} ({show_duration(age)} ago)")
    tasks = parse(run.opened.job, {}, run.run_id).task_names
    lines.append(f"saved    {epochs_done(run, tasks)} epochs, in {run.url}{_since_saved(run, status)}")
    cap = f" of {show_usd(run.budget_usd)}" if run.budget_usd is not None else ""
    lines.append(
        f"spent    {show_usd(usd)}{cap}" if run.lease is None else f"owed     {show_usd(usd)}{cap} if stopped now"
    )
    if status is not None and run.state is State.SETTLED:
        lines.append(f"last     {show_agent(status)}")
        lines.append(f"results  {run.results_dir}")
    if run.state is State.SETTLED and run.outcome is not Outcome.DONE:
        lines.append(f"go on    {resume_command(run)}")
    if run.state is not State.SETTLED:
        lines.append(f"driven   by {driver}")
    return "\n".join(lines)


def _lease_status(run: Run, lease: Lease, stops: Sequence[Stop], now: datetime) -> list[str]:
    left = (lease.deadline - now).total_seconds()
    until = f"in {show_duration(left)}" if left >= 0 else f"{show_duration(-left)} ago"
    lines = [
        f"machine  {lease.instance_id or 'asked for'} {lease.selection.offer.key}",
        f"off by   {lease.deadline:%F %T} UTC ({until}; {lease.deadline_basis})",
    ]
    if stops:
        lines.append(f"stops    {show_stops(stops, lease.deadline)}")
    if left < 0:
        lines.append(f"         past its time, and nobody has confirmed its end: `gpucost stop {run.run_id}` does")
    return lines


def _since_saved(run: Run, status: AgentStatus | None) -> str:
    """How much a preemption would cost now, and how often is saved."""
    if status is None or run.lease is None or status.lease_id != run.lease.lease_id:
        return ""
    saved = {checkpoint.task: checkpoint.step for checkpoint in run.checkpoints}
    parts = []
    for task in status.tasks:
        if task.progress is None:
            continue
        at_risk = max(0, task.progress.step - saved.get(task.name, 0))
        every = task.progress.checkpoint_seconds
        often = f", one each {show_duration(every)}" if every else ""
        name = f"{task.name}: " if len(status.tasks) > 1 else ""
        parts.append(f"{name}{at_risk} steps since the last checkpoint{often}")
    return f" ({'; '.join(parts)})" if parts else ""


def show_agent(status: AgentStatus, width: int | None = None) -> str:
    """Phase and progress in one line; in a narrow one, loss and speed give way first."""
    texts = ["  ".join([status.phase.value, *_progress(status, dropped)]) for dropped in range(4)]
    return next((text for text in texts if width is None or len(text) <= width), texts[-1])


def _progress(status: AgentStatus, dropped: int) -> list[str]:
    """One part for each task that has begun; the less important fields are left out as `dropped` grows."""
    parts = []
    for task in status.tasks:
        progress = task.progress
        if progress is None:
            continue
        name = f"{task.name}: " if len(status.tasks) > 1 else ""
        fields = [f"{name}epoch {progress.epoch}/{progress.epochs}"]
        if dropped < 2:
            fields.append(f"{progress.images_per_second:.1f} images/s")
        if progress.loss is not None and dropped < 1:
            fields.append(f"loss {progress.loss:.3f}")
        if progress.map50 is not None and dropped < 3:
            fields.append(f"mAP50 {progress.map50:.3f}")
        parts.append("  ".join(fields))
    return parts
