"""From a job to a plan: the job's numbers in the planner's words, and its answer in the run's. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from launcher.errors import NoPlan
from launcher.events import Estimate, Refusal, Selection
from launcher.jobspec import JobSpec, TaskOverride
from launcher.localdata import DataFacts
from launcher.recovery import cooled, epochs_done, loses_work_on_spot, rest_usd
from launcher.run import Run
from launcher.units import cents_up
from pricing.cost import Rates
from pricing.explain import usd_text
from pricing.models import MODELS
from pricing.offers import Market, Offer, Policy
from pricing.phases import Overheads
from pricing.planner import NoOfferFits, Plan, PlanOption, plan_run
from pricing.throughput import Throughput
from pricing.workload import Workload


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything a plan is made from, beside the job."""

    offers: tuple[Offer, ...]
    rates: Rates
    throughput: Throughput
    overheads: dict[str, Overheads]
    provisionable: tuple[str, ...] | None
    """Providers on which a machine can be started; none: an estimate over all of them."""
    storage_region: str | None = None
    """Where the bucket is; none: nobody was asked."""
    not_enabled: tuple[str, ...] = ()
    """Regions whose offers are left out, since the account has not enabled them."""


def workload(job: JobSpec, data: DataFacts, *, epochs_done: int = 0, auto_batch: int | None = None) -> Workload:
    """The run in numbers. Several trainings count as so many of the heaviest one, which errs on the dear side.

    `auto_batch`: what `auto` has come to in this run; none: still open.
    """
    trainings = job.trainings()
    heaviest = max(trainings, key=_weight)
    batches = {task.batch for task in trainings}
    batch = heaviest.batch if isinstance(heaviest.batch, int) and "auto" not in batches else auto_batch
    return Workload(
        variant=str(heaviest.model),
        image_size=int(heaviest.image_size or 0),
        batch=batch,
        epochs=max(1, int(heaviest.epochs or 0) - epochs_done),
        train_images=data.train_images,
        val_images=data.val_images,
        data_bytes=data.bytes,
        tasks=len(trainings),
    )


def _weight(task: TaskOverride) -> float:
    flops = MODELS[str(task.model)].train_gflop
    return flops * float(task.image_size or 0) ** 2 * float(task.epochs or 0)


def policy(job: JobSpec, catalog: Catalog, *, budget: Decimal | None, hours: float | None) -> Policy:
    """The job's constraints."""
    clouds = () if catalog.provisionable is not None else tuple(job.clouds)
    return Policy(
        budget_usd=budget,
        max_hours=hours,
        clouds=clouds,
        regions=job.regions,
        gpus=job.gpus,
        market=Market(job.market),
        disk_gib=job.disk,
        provisionable=catalog.provisionable,
        max_gpus_per_task=job.layout.gpus,
        storage_region=catalog.storage_region,
        keeps_data=job.is_local,
    )


def first_plan(
    job: JobSpec, data: DataFacts, catalog: Catalog, now: datetime, *, elsewhere: tuple[Refusal, ...] = ()
) -> Plan:
    """The plan for a whole job. Raises NoPlan with what would help."""
    hours = None if job.deadline is None else job.deadline / 3600
    wanted = policy(job, catalog, budget=job.budget, hours=hours)
    try:
        return _plan(workload(job, data), wanted, catalog, now, cooled(elsewhere, catalog.offers, now))
    except NoOfferFits as error:
        raise no_plan(error) from error


def next_plan(
    run: Run, job: JobSpec, catalog: Catalog, now: datetime, *, elsewhere: tuple[Refusal, ...] = ()
) -> Selection:
    """The best machine for what a run has left to do, with what it may still spend. Raises NoOfferFits.

    `elsewhere`: what other runs were refused lately.
    """
    opened = run.opened.workload
    data = DataFacts(opened.train_images, opened.val_images, opened.data_bytes)
    done = epochs_done(run, job.task_names)
    hours = None if run.ends_by is None else max((run.ends_by - now) / timedelta(hours=1), 1e-6)
    budget = None if run.budget_usd is None else run.budget_usd - run.spent_usd
    if budget is not None and budget <= 0:
        cap = usd_text(run.budget_usd or Decimal(0))
        said = f"the budget of {cap} USD is used up: {usd_text(run.spent_usd)} USD are spent"
        raise NoOfferFits(said, hint="raise the budget")
    wanted = replace(policy(job, catalog, budget=budget, hours=hours), resumes=done > 0)
    if loses_work_on_spot(run):
        wanted = _without_spot(wanted)
    left_out = cooled((*run.refusals, *elsewhere), catalog.offers, now)
    work = workload(job, data, epochs_done=done, auto_batch=run.batch)
    return selection(_plan(work, wanted, catalog, now, left_out).chosen, job)


def _without_spot(wanted: Policy) -> Policy:
    if wanted.market is Market.SPOT:
        raise NoOfferFits(
            "a preemption lost all work, since no checkpoint could be restored: spot is refused for this run",
            hint="allow on-demand machines (market: any)",
        )
    return replace(wanted, market=Market.ON_DEMAND)


def _plan(work: Workload, wanted: Policy, catalog: Catalog, now: datetime, left_out: frozenset[str]) -> Plan:
    return plan_run(
        work,
        catalog.offers,
        wanted,
        throughput=catalog.throughput,
        rates=catalog.rates,
        overheads=catalog.overheads,
        now=now,
        cooled=left_out,
    )


def selection(option: PlanOption, job: JobSpec) -> Selection:
    """The chosen option as the run keeps it."""
    return Selection(
        offer=option.offer,
        estimate=Estimate(
            usd=option.usd,
            usd_low=option.usd_low,
            usd_high=option.usd_high,
            seconds=option.seconds,
            seconds_low=option.seconds_low,
            seconds_high=option.seconds_high,
            basis=option.throughput.source,
            traffic=option.traffic,
        ),
        concurrent=max(option.layout.jobs, job.layout.concurrent),
        world_size=option.layout.world_size,
        batch=option.batch,
    )


def no_plan(error: NoOfferFits, run: Run | None = None) -> NoPlan:
    """The planner's refusal as an error for the user; for a run that is taken up again with the budget it needs."""
    if run is None or error.cheapest is None:
        return NoPlan(error.message, hint=error.hint)
    enough = cents_up(run.spent_usd + max(error.cheapest.usd_sure, rest_usd(run)))
    return NoPlan(error.message, hint=f"`gpucost resume {run.run_id} --budget {enough}`")
