"""The use cases that need a cloud, each read as a paragraph: train, resume, stop, logs. Renders nothing."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from launcher import wiring
from launcher.adopting import refresh
from launcher.claim import take_up
from launcher.clouds import AWS
from launcher.context import Context
from launcher.drive import drive
from launcher.errors import BadInput, ProviderError, StopUnconfirmed
from launcher.estimating import cloud_of, data_facts
from launcher.events import Cancelled, Event, LimitsChanged, Outcome, Reopened, RunOpened
from launcher.follower import Follower
from launcher.history import load_run, recent_refusals
from launcher.home import name_in
from launcher.interrupts import ASKED, STOPPED, Interrupts
from launcher.jobspec import JobSpec, parse
from launcher.journal import Journal
from launcher.localdata import DataFacts
from launcher.planning import Catalog, first_plan, next_plan, no_plan, selection, workload
from launcher.providers.interface import RefusedError, UnreachableError
from launcher.recovery import epochs_done, verdict
from launcher.report import Happened, Note
from launcher.results import collect
from launcher.run import Run, State, advance, opened
from launcher.services import Services
from launcher.ssh import SshError
from launcher.trainlog import kept_log, stored_log
from launcher.units import show_gib, show_usd
from pricing.planner import NoOfferFits, Plan

STOP_LIMIT_SECONDS = AWS.drain_seconds + AWS.stop_limit_seconds
"""A launcher may take so long itself to save, end and confirm; only then is it said to hang."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that could start now."""

    job: JobSpec
    cloud_name: str
    cloud: wiring.Cloud
    data: DataFacts
    plan: Plan
    notes: tuple[str, ...]


def prepare(job: JobSpec, context: Context) -> Prepared:
    """Check the data, reach the cloud and the storage, make the plan. Nothing is launched or uploaded."""
    cloud_name = cloud_of(job)
    _require_place(_results_dir(job, context))
    if job.is_local:
        data, notes = data_facts(job, None)
    try:
        cloud = wiring.connect(job, cloud_name, context.home)
    except (RefusedError, UnreachableError) as error:
        raise _provider_error(error) from error
    if cloud_name == "sandbox":
        context.report(Note("the embedded cloud is up; measuring this host's speed"))
    try:
        cloud.store.list("data/")  # a bucket that cannot be reached is found out before anything else
        if not job.is_local:
            data, notes = data_facts(job, cloud.store_for(job.data))
            notes += _apart(cloud.region_of(job.data), cloud.storage.region, data)
        now = context.clock.now()
        refused = recent_refusals(context.home, now)
        catalog = cloud.catalog(job)
        _require_enabled(job, catalog, context)
        plan = first_plan(job, data, catalog, now, elsewhere=refused)
    except BaseException:
        cloud.close()
        raise
    return Prepared(job, cloud_name, cloud, data, plan, notes)


def _apart(data_region: str | None, output_region: str, data: DataFacts) -> tuple[str, ...]:
    """A warning where data and output are in two regions: the plan knows one of them, and reads across are billed."""
    if data_region in {None, output_region}:
        return ()
    warning = (
        f"in a bucket in {data_region}, and `output` is in {output_region}: the estimate takes it to be there too; "
        f"each machine that reads it ({show_gib(data.bytes)}) in another region than {data_region} is billed for that"
    )
    return (warning,)


def _require_enabled(job: JobSpec, catalog: Catalog, context: Context) -> None:
    """Raises BadInput where the job names a region that the account has not enabled; the others are told."""
    named = [region for region in job.regions if region in catalog.not_enabled]
    if named:
        raise BadInput(
            f"region {named[0]!r} is not enabled in this account", hint="enable it there, or leave it out of `regions`"
        )
    if catalog.not_enabled and not job.regions:
        context.report(Note(f"left out, since this account has not enabled them: {', '.join(catalog.not_enabled)}"))


def _results_dir(job: JobSpec, context: Context) -> Path:
    return context.work_dir / "runs" / job.name


def _require_place(folder: Path) -> None:
    """Raises BadInput where results could not be put into `folder` later."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise BadInput(
            f"results cannot be written to {folder}: {there} is no folder that can be written",
            hint="start from another folder, or move what is in the way",
        )


def _provider_error(error: RefusedError | UnreachableError) -> ProviderError:
    hint = error.hint if isinstance(error, RefusedError) else "check the network, then try again"
    return ProviderError(str(error), hint=hint)


def open_run(prepared: Prepared, context: Context) -> Run:
    """Write the first record of a new run; nothing is launched by it. Raises BadInput where its name has one now."""
    now = context.clock.now()
    job = prepared.job
    run_id = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}-{job.name}"
    record = RunOpened(
        at=now,
        run_id=run_id,
        name=job.name,
        cloud=prepared.cloud_name,
        job=job.model_dump(mode="json") | {"data": _absolute(job)},
        workload=workload(job, prepared.data),
        budget_usd=job.budget,
        ends_by=None if job.deadline is None else now + timedelta(seconds=job.deadline),
        storage_url=prepared.cloud.store.url,
        storage_region=prepared.cloud.storage.region,
        data_url=None if job.is_local else job.data,
        results_dir=str(_results_dir(job, context)),
        selection=selection(prepared.plan.chosen, job),
    )
    with context.home.opening(job.name):  # `prepare` took a while: another process may have begun one
        rival = unfinished(job, context)
        if rival is not None:
            raise _going_on(job.name, rival, "begun just now")
        context.home.run(run_id).journal.append(record)
    run = opened(record)
    context.report(Happened(record, run))
    return run


def _absolute(job: JobSpec) -> str:
    return str(Path(job.data).expanduser().absolute()) if job.is_local else job.data


def unfinished(job: JobSpec, context: Context) -> str | None:
    """The newest unsettled run of the same name. Raises BadInput where it is another job, or is being driven."""
    for run_id in reversed(context.home.run_ids()):
        if name_in(run_id) != job.name or not context.home.run(run_id).journal.events():
            continue
        run = load_run(run_id, context)
        if run.state is State.SETTLED:
            return None
        pid = context.home.run(run_id).journal.writer()
        if pid is not None:
            raise _going_on(job.name, run_id, f"process {pid}")
        mine = job.model_dump(mode="json") | {"data": _absolute(job)}
        changed = sorted(key for key, value in run.opened.job.items() if mine.get(key) != value)
        if changed:
            raise BadInput(
                f"an unfinished run called {job.name!r} differs from this job in {', '.join(changed)}",
                hint=f"`gpucost resume {run_id}` or `gpucost stop {run_id}` first, or choose another name",
            )
        return run_id
    return None


def _going_on(name: str, run_id: str, detail: str) -> BadInput:
    hint = f"look at it with `gpucost status {run_id}`, or give this job another name"
    return BadInput(f"a run called {name!r} is going on ({detail})", hint=hint)


def go_on(
    run_id: str,
    context: Context,
    *,
    cloud: wiring.Cloud | None = None,
    by_force: bool = False,
    first: Callable[[Run], Event | None] = lambda _run: None,
) -> Run:
    """Drive a run to its end from where its journal is, here or in the storage.

    `by_force`: even if a launcher on another machine is alive and drives it. `first` may give an event to begin with.
    Raises JournalBusy, HeldElsewhere, Fenced, ProviderError, StopUnconfirmed.
    """
    journal = context.home.run(run_id).journal
    interrupts = Interrupts()
    with journal.writing(), interrupts.installed():
        run = load_run(run_id, context)
        given = nullcontext(cloud) if cloud is not None else _connected(run, context)
        with given as connected, _serving(run, connected, context, interrupts) as services:
            claimed = take_up(journal, services.mirror, context.clock, context.report, by_force=by_force)
            event = first(claimed)
            if event is not None:
                services.mirror.add(journal.append(event))
                claimed = advance(claimed, event)
                context.report(Happened(event, claimed))
            try:
                return drive(claimed, journal, services)
            finally:
                services.mirror.leave()


@contextmanager
def _serving(run: Run, cloud: wiring.Cloud, context: Context, interrupts: Interrupts) -> Iterator[Services]:
    """What the steps of a run need; its connection is dropped when the block ends."""
    services = cloud.services(run, context.home, clock=context.clock, report=context.report, interrupts=interrupts)
    try:
        yield services
    finally:
        services.hang_up()


@contextmanager
def _connected(run: Run, context: Context) -> Iterator[wiring.Cloud]:
    """The cloud of a run, given back when the block ends."""
    job = parse(run.opened.job, {}, run.run_id)
    try:
        cloud = wiring.connect(job, run.opened.cloud, context.home)
    except (RefusedError, UnreachableError) as error:
        raise _provider_error(error) from error
    try:
        yield cloud
    finally:
        cloud.close()


@dataclass(frozen=True, slots=True)
class Limits:
    """What `resume` changes: a budget for the whole run, or so much more than the present one; a deadline from now."""

    budget: Decimal | None = None
    more: Decimal | None = None
    deadline: float | None = None

    def budget_for(self, run: Run) -> Decimal | None:
        """The new cap of a run."""
        if self.more is not None:
            return (run.budget_usd or run.spent_usd) + self.more
        return self.budget or run.budget_usd

    @property
    def given(self) -> bool:
        """There is something to change."""
        return any(value is not None for value in (self.budget, self.more, self.deadline))


def resume(run_id: str, context: Context, limits: Limits, *, by_force: bool = False) -> Run:
    """Go on with a run that lost its launcher, or with a settled one from its checkpoints. Raises BadInput, NoPlan."""
    refresh(run_id, context)  # a launcher elsewhere may have gone on, or ended it
    run = load_run(run_id, context)
    if run.state is not State.SETTLED:
        return go_on(run_id, context, by_force=by_force, first=lambda found: _new_limits(found, limits, context))
    if run.outcome is Outcome.DONE:
        return _collect_again(run, context)
    journal = context.home.run(run_id).journal
    with _connected(run, context) as cloud:
        with journal.writing():
            run = load_run(run_id, context)  # another process may have been quicker
            if run.state is State.SETTLED:
                journal.append(_reopen(run, cloud, context, limits))
        return go_on(run_id, context, cloud=cloud, by_force=by_force)


def _new_limits(run: Run, limits: Limits, context: Context) -> Event | None:
    if not limits.given or run.state is State.SETTLED:
        return None
    now = context.clock.now()
    ends_by = run.ends_by if limits.deadline is None else now + timedelta(seconds=limits.deadline)
    return LimitsChanged(at=now, budget_usd=limits.budget_for(run), ends_by=ends_by)


def _collect_again(run: Run, context: Context) -> Run:
    """Copy the results of a run that is done. Raises BadInput where they were copied at its end, StorageError."""
    if run.collected and Path(run.results_dir).is_dir():
        raise BadInput(f"run {run.run_id} is done", hint=f"its results are in {run.results_dir}")
    tasks = parse(run.opened.job, {}, run.run_id).task_names
    with _connected(run, context) as cloud:
        try:
            collect(run, tasks, cloud.store)
        except OSError as error:
            raise BadInput(
                f"the results cannot be copied: {error}", hint="make room for them, then try again"
            ) from error
    return replace(run, collected=True)


def _reopen(run: Run, cloud: wiring.Cloud, context: Context, limits: Limits) -> Reopened:
    now = context.clock.now()
    job = parse(run.opened.job, {}, run.run_id)
    ends_by = run.ends_by if run.ends_by is not None and run.ends_by > now else None
    if limits.deadline is not None:
        ends_by = now + timedelta(seconds=limits.deadline)
    lost = _lost(run, cloud)
    if lost:
        context.report(Note(f"the checkpoints of {', '.join(lost)} are gone from the storage: training begins again"))
    budget = limits.budget_for(run)
    reopened = Reopened(at=now, budget_usd=budget, ends_by=ends_by, selection=run.selection, lost=lost)
    planned = advance(run, reopened)
    try:
        chosen = next_plan(planned, job, cloud.catalog(job), now)
    except NoOfferFits as error:
        raise no_plan(error, planned) from error
    done = epochs_done(planned, job.task_names)
    context.report(Note(f"going on after epoch {done} on {chosen.offer.key}, about {show_usd(chosen.estimate.usd)}"))
    return replace(reopened, selection=chosen)


def _lost(run: Run, cloud: wiring.Cloud) -> tuple[str, ...]:
    """Tasks whose newest checkpoint the storage does not have any more."""
    prefix = f"{cloud.store.url}/"
    return tuple(known.task for known in run.checkpoints if not cloud.store.list(known.key.removeprefix(prefix)))


def stop(run_id: str, context: Context) -> Run:
    """End a run, through the launcher that drives it or from here; the settled run. Raises StopUnconfirmed."""
    journal = context.home.run(run_id).journal
    pid = journal.writer()
    if pid is not None and pid > 0:
        follower = Follower(run_id, context)
        run = follower.look(silent=True)
        if run.state is not State.STOPPING or _would_go_on(run):  # a second signal would skip the last upload
            with suppress(ProcessLookupError):
                os.kill(pid, ASKED)
        context.report(Note(f"the launcher (process {pid}) is asked to save, to end the machine and to confirm it"))
        if not follower.until_left(STOP_LIMIT_SECONDS):
            raise _hangs(run_id, journal)
    elif load_run(run_id, context).state is State.SETTLED:
        refresh(run_id, context)  # a launcher elsewhere may have taken it up again
    with journal.writing():
        run = load_run(run_id, context)
        wish = _cancelled(run, context)
        if wish is not None:
            journal.append(wish)  # whatever becomes of this process, the next one goes on with the stop
    if run.state is State.SETTLED:
        return run
    # A launcher elsewhere may have written other records meanwhile; then the wish is written again behind them.
    return go_on(run_id, context, by_force=True, first=lambda found: _cancelled(found, context))


def _would_go_on(run: Run) -> bool:
    """Another machine would follow the one that is being ended."""
    return verdict(run).outcome is None


def _cancelled(run: Run, context: Context) -> Event | None:
    if run.state is State.SETTLED or (run.state is State.STOPPING and not _would_go_on(run)):
        return None
    return Cancelled(at=context.clock.now(), message=STOPPED)


def _hangs(run_id: str, journal: Journal) -> StopUnconfirmed:
    return StopUnconfirmed(
        f"THE LAUNCHER OF {run_id} HAS NOT CONFIRMED THE STOP IN {STOP_LIMIT_SECONDS:.0f} s",
        hint=f"end it (`kill -9 {journal.writer()}`), then run `gpucost stop {run_id}` again",
    )


def log_text(run_id: str, task: str | None, context: Context) -> str:
    """The end of a training's log: from the machine while it lets us in, else what the storage or the results have.

    Raises BadInput.
    """
    run = load_run(run_id, context)
    names = parse(run.opened.job, {}, run_id).task_names
    if task is not None and task not in names:
        raise BadInput(f"run {run_id} has no training {task!r}", hint=f"it has {', '.join(names)}")
    name = task or names[0]
    if run.lease is None or run.lease.address is None:
        return kept_log(run, name, names, context)
    if not context.home.run(run_id).private_key.exists():
        context.report(Note("the key to the machine is where it was launched: this is what it copied to the storage"))
        return stored_log(run, name, context)
    with _connected(run, context) as cloud, _serving(run, cloud, context, Interrupts()) as services:
        try:
            return services.machine(run).log_tail(name)
        except SshError as error:
            context.report(Note(f"the machine does not answer ({error}): this is what it copied to the storage"))
    return stored_log(run, name, context)
