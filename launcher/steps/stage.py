"""Staging: put the agent on the machine, start it, wait until it trains."""

from __future__ import annotations

from launcher.events import DataStaged, Event, Lease, Outcome, StepFailed
from launcher.jobspec import JobSpec, parse
from launcher.report import Note
from launcher.run import Run
from launcher.services import Services
from launcher.ssh import SshError
from launcher.steps.watch import ending, hear_or_ask
from pricing.offers import CapacityType
from remote.protocol import AgentJob, AgentStatus, DataSpec, Phase, TaskSpec

_INSTALL_TRIES = 5
_FIRST_BEAT_SECONDS = 60
"""The agent writes its status within a second or two of its start."""


def stage(run: Run, services: Services) -> Event:
    """`DataStaged` once the agent trains; or what the agent, or the provider, says instead."""
    lease = run.lease
    assert lease is not None  # noqa: S101 - the table lets nobody in without one
    heard = hear_or_ask(run, services)
    if heard is None:
        failure = _install(run, lease, services)
        if failure is not None:
            return failure
    started = services.clock.monotonic()
    while True:
        heard = hear_or_ask(run, services)
        if isinstance(heard, Event):
            return heard
        if heard is None and services.clock.monotonic() - started > _FIRST_BEAT_SECONDS:
            failure = _not_started(run, services)
            if failure is not None:
                return failure
        if heard is not None:
            event = ending(heard, services)
            if event is not None:
                return event
            if _trains(heard):
                return DataStaged(at=services.clock.now())
        services.clock.sleep(services.facts.poll_seconds)


def _not_started(run: Run, services: Services) -> Event | None:
    """What the agent's log says on a machine that lets us in and has no status; None where it does not let us in."""
    task = parse(run.opened.job, {}, run.run_id).trainings()[0].name
    try:
        machine = services.machine(run)
        if machine.status() is not None:
            return None
        said = machine.log_tail(task).strip().splitlines()[-1:]
    except SshError:
        return None
    message = f"the agent did not start: {' '.join(said) or 'its log is empty'}"
    hint = "the machine is being ended; its image may lack python3 3.10 or newer"
    return StepFailed(at=services.clock.now(), message=message, hint=hint, outcome=Outcome.FAILED)


def _trains(status: AgentStatus) -> bool:
    return status.phase in {Phase.TRAINING, Phase.SYNCING, Phase.ENDED}


def _install(run: Run, lease: Lease, services: Services) -> Event | None:
    """Bring the agent to life; the event that ends the attempt where the machine goes away meanwhile."""
    for attempt in range(1, _INSTALL_TRIES + 1):
        try:
            _install_once(run, lease, services)
        except SshError as error:
            if attempt == _INSTALL_TRIES:
                raise
            services.report(Note(f"{error}; trying again"))
            heard = hear_or_ask(run, services)
            if isinstance(heard, Event):
                return heard
            services.clock.sleep(services.facts.poll_seconds)
        else:
            return None
    return None


def _install_once(run: Run, lease: Lease, services: Services) -> None:
    machine = services.machine(run)
    root, metadata = machine.surroundings()
    python = f"{root}{services.facts.python}"
    machine.install(services.bundle())
    machine.ensure_packages(python)
    machine.start_agent(agent_job(run, lease, services, python=python, metadata=metadata), services.credentials())


def agent_job(run: Run, lease: Lease, services: Services, *, python: str, metadata: str) -> AgentJob:
    """What the agent is told: the run's job in the protocol's words, without a secret."""
    job = parse(run.opened.job, {}, run.run_id)
    selection = lease.selection
    spot = selection.offer.capacity_type is CapacityType.SPOT
    return AgentJob(
        run_id=run.run_id,
        lease_id=lease.lease_id,
        deadline=lease.deadline.timestamp(),
        python=[python],
        storage=services.storage,
        data=DataSpec(url=str(run.data_url), sha256=run.data_sha256, size=run.data_bytes, files=run.data_files),
        # Without a GPU whose memory counts, the trainer chooses by the size of the set.
        tasks=_tasks(job, None if services.facts.emulated else selection.batch, selection.world_size),
        poweroff=list(services.facts.poweroff),
        concurrent=selection.concurrent,
        metadata_base=metadata if spot else None,
        save_reserve_seconds=services.facts.save_reserve_seconds,
        linger_seconds=services.facts.linger_seconds,
        gpus=0 if services.facts.emulated else int(selection.offer.instance.gpu_count),
        disk_gib=0 if services.facts.emulated else float(lease.disk_gib),
    )


def _tasks(job: JobSpec, batch: int | None, world_size: int) -> list[TaskSpec]:
    options = job.trainer.model_dump(exclude_none=True)
    return [
        TaskSpec(
            name=task.name,
            config={
                "model": task.model,
                "epochs": task.epochs,
                "image_size": task.image_size,
                "batch": batch if task.batch == "auto" else task.batch,
                "hyp": dict(task.hyperparameters),
                "seed": task.seed,
                **options,
            },
            world_size=world_size,
        )
        for task in job.trainings()
    ]
