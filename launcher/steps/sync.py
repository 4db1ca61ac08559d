"""Syncing: wait for the end of the agent's final upload. The copy to the user's folder comes later, unpaid."""

from __future__ import annotations

from launcher.errors import GpucostError
from launcher.events import ArtifactsSynced, CheckpointSynced, Event
from launcher.jobspec import parse
from launcher.report import Note
from launcher.results import artifact_list
from launcher.run import Run
from launcher.services import Services
from launcher.steps.install import Watchdog
from launcher.steps.watch import hear_or_ask, new_checkpoint
from remote.protocol import AgentStatus, ArtifactFile, Phase


def sync(run: Run, services: Services) -> Event:
    """`ArtifactsSynced` with the number of final files in the storage, which may be 0 after a failure."""
    lease = run.lease
    assert lease is not None  # noqa: S101 - the table lets nobody in without one
    watchdog = Watchdog(services)
    while services.clock.now() < lease.deadline:
        heard = hear_or_ask(run, services)
        if isinstance(heard, CheckpointSynced):
            return heard
        if isinstance(heard, Event):
            break  # the machine is gone: what is in the storage is all there will be
        if heard is not None:
            event = new_checkpoint(run, heard, services)
            if event is not None:
                return event
        if (heard is not None and heard.phase is Phase.ENDED) or watchdog.check(run, heard) is not None:
            break
        services.clock.sleep(services.facts.poll_seconds)
    files = _files_in_storage(run, services)
    return ArtifactsSynced(at=services.clock.now(), files=len(files), bytes=sum(file.size for file in files))


def drain(run: Run, services: Services, *, until: float) -> Event | None:
    """Wait for the agent's last upload; `CheckpointSynced` where one more arrived. A second signal ends the wait."""
    while services.clock.monotonic() < until and services.interrupts.count < 2:
        heard = hear_or_ask(run, services)
        if isinstance(heard, CheckpointSynced):
            return heard
        if not isinstance(heard, AgentStatus):
            if heard is not None:
                return None
        else:
            event = new_checkpoint(run, heard, services)
            if event is not None:
                return event
            if heard.phase is Phase.ENDED:
                return None
        services.clock.sleep(services.facts.poll_seconds)
    services.report(Note("not waiting any longer for the last upload"))
    return None


def _files_in_storage(run: Run, services: Services) -> list[ArtifactFile]:
    job = parse(run.opened.job, {}, run.run_id)
    try:
        lists = [artifact_list(run, task.name, services.store) for task in job.trainings()]
    except GpucostError as error:  # the machine is paid for: ending it comes first, the copy has time
        services.report(Note(f"the result files cannot be counted now: {error}"))
        return []
    return [file for listed in lists if listed is not None for file in listed.files]
