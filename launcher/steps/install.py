"""Bringing the agent to a machine, and back to life there. Safe to repeat: an agent keeps its lease to itself."""

from __future__ import annotations

from launcher import mailbox
from launcher.events import Abandoned, Event, Lease, Outcome, Selection, StepFailed
from launcher.jobspec import JobSpec, parse
from launcher.limits import budget_spec
from launcher.report import Note
from launcher.run import Run
from launcher.services import Services
from launcher.ssh import SshError
from launcher.steps.watch import hear_or_ask
from launcher.storage.interface import StorageError
from pricing.offers import CapacityType
from remote.protocol import AgentJob, AgentStatus, DataSpec, TaskSpec


class Watchdog:
    """Judges an agent that is not heard, or whose status stands still: it is started again once, then given up.

    The status carries the machine's clock; how long it stands still is measured on the launcher's own.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._beat: float | None = None
        self._since = self._tried = services.clock.monotonic()
        self._revived = False

    def check(self, run: Run, status: AgentStatus | None) -> Event | None:
        """The event that follows where the agent is dead for good, or its machine gone; None while there is hope."""
        now = self._services.clock.monotonic()
        if status is not None and status.at != self._beat:
            self._beat, self._since = status.at, now
            return None
        silent = now - self._since
        facts = self._services.facts
        if silent >= facts.silence_limit_seconds and self._storage_answers(run):
            message = f"no word of the agent for {silent:.0f} s, by SSH or in the storage"
            return Abandoned(at=self._services.clock.now(), message=message)
        if status is None or silent < facts.beat_limit_seconds:
            return None
        if self._revived:
            message = f"the agent was started again and its status stands still for {silent:.0f} s once more"
            hint = f"`gpucost resume {run.run_id}` goes on from the last checkpoint"
            return StepFailed(at=self._services.clock.now(), message=message, hint=hint, outcome=Outcome.FAILED)
        return self._revive(run, silent)

    def _revive(self, run: Run, silent: float) -> Event | None:
        lease = run.lease
        assert lease is not None  # noqa: S101 - only watched while a lease is open
        now = self._services.clock.monotonic()
        if now - self._tried < self._services.facts.beat_limit_seconds:
            return None
        self._tried = now
        self._services.report(Note(f"the agent's status stands still for {silent:.0f} s; starting it again"))
        try:
            _install_once(run, lease, self._services)
        except SshError as error:
            self._services.report(Note(f"the agent cannot be started again now: {error}"))
            return None
        self._revived = True
        self._since = self._services.clock.monotonic()
        return None

    def _storage_answers(self, run: Run) -> bool:
        """Silence in a storage that does not answer says nothing."""
        lease = run.lease
        assert lease is not None  # noqa: S101 - only watched while a lease is open
        try:
            mailbox.newest_status(run.run_id, lease.lease_id, self._services.store)
        except StorageError:
            return False
        return True


def install(run: Run, lease: Lease, services: Services) -> Event | None:
    """Bring the agent to life, or back to it; the event that ends the attempt where the machine goes away meanwhile.

    A machine that cannot be reached for long is given up: nobody else will put an agent on it.
    """
    give_up = services.clock.monotonic() + services.facts.install_limit_seconds
    while True:
        try:
            _install_once(run, lease, services)
        except SshError as error:
            if services.clock.monotonic() >= give_up:
                message = f"the agent could not be installed in {services.facts.install_limit_seconds:.0f} s: {error}"
                return Abandoned(at=services.clock.now(), message=message)
            services.report(Note(f"{error}; trying again"))
            heard = hear_or_ask(run, services)
            if heard is not None:
                return heard if isinstance(heard, Event) else None
            services.clock.sleep(services.facts.poll_seconds)
        else:
            return None


def _install_once(run: Run, lease: Lease, services: Services) -> None:
    machine = services.machine(run)
    root, metadata = machine.surroundings()
    python = f"{root}{services.facts.python}"
    machine.install(services.bundle())
    machine.ensure_packages(python)
    machine.start_agent(
        agent_job(run, lease, services, python=python, metadata=metadata),
        services.credentials(_seconds_left(lease, services)),
    )


def _seconds_left(lease: Lease, services: Services) -> float:
    return (lease.deadline - services.clock.now()).total_seconds()


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
        tasks=_tasks(job, None if services.facts.emulated else selection.batch, selection),
        poweroff=list(services.facts.poweroff),
        launched_at=(lease.running_since or lease.requested_at).timestamp(),
        concurrent=selection.concurrent,
        metadata_base=metadata if spot else None,
        save_reserve_seconds=services.facts.save_reserve_seconds,
        linger_seconds=services.facts.linger_seconds,
        budget=budget_spec(run, lease, services.rates, services.facts, services.clock.now()),
        post_seconds=services.facts.post_seconds,
        gpus=0 if services.facts.emulated else int(selection.offer.instance.gpu_count),
        disk_gib=0 if services.facts.emulated else float(lease.disk_gib),
    )


def _tasks(job: JobSpec, batch: int | None, selection: Selection) -> list[TaskSpec]:
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
                "hazard_per_hour": selection.offer.risk.per_hour,
                **options,
            },
            world_size=selection.world_size,
        )
        for task in job.trainings()
    ]
