"""From a job file to a run: check the data, reach the cloud, make the plan, the first record. Nothing is launched."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from launcher import wiring
from launcher.context import Context
from launcher.errors import BadInput, ProviderError
from launcher.estimating import cloud_of, data_facts
from launcher.events import RunOpened
from launcher.history import load_run, recent_refusals
from launcher.home import name_in
from launcher.jobspec import JobSpec
from launcher.localdata import DataFacts
from launcher.planning import Catalog, first_plan, selection, workload
from launcher.providers.interface import RefusedError, UnreachableError
from launcher.report import Happened, Note
from launcher.run import Run, State, opened
from launcher.units import show_gib
from pricing.planner import Plan


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
    require_place(_results_dir(job, context))
    if job.is_local:
        data, notes = data_facts(job, None)
    try:
        cloud = wiring.connect(job, cloud_name, context.home)
    except (RefusedError, UnreachableError) as error:
        raise provider_error(error) from error
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


def require_place(folder: Path) -> None:
    """Raises BadInput where results could not be put into `folder` later."""
    trouble = no_place(folder)
    if trouble:
        raise BadInput(trouble, hint="start from another folder, or move what is in the way")


def no_place(folder: Path) -> str:
    """Why results could not be put into `folder` later; empty where they can."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return ""
    return f"results cannot be written to {folder}: {there} is no folder that can be written"


def provider_error(error: RefusedError | UnreachableError) -> ProviderError:
    """The user's error for a provider that cannot be used."""
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
