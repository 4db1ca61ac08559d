"""What the launcher is told: the phase, which only moves forward, and the file it is written to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from remote import protocol
from remote.clock import Clock
from remote.protocol import AgentJob, AgentStatus, LeasePaths, Phase, Reason, TaskStatus

log = logging.getLogger(__name__)

ORDER = list(Phase)


class Board:
    """The newest status. `status` is replaced, never changed."""

    def __init__(self, job: AgentJob, paths: LeasePaths, clock: Clock, pid: int) -> None:
        self._paths = paths
        self._clock = clock
        self._entered = clock.monotonic()
        self._notes: list[str] = []
        self._warning = ""
        self._unwritten = False
        now = clock.now()
        tasks = [TaskStatus(task.name) for task in job.tasks]
        self.status = AgentStatus(job.run_id, job.lease_id, Phase.STARTING, now, now, pid, tasks)
        self._uploaded, self._downloaded = self._carried()

    def enter(self, phase: Phase) -> None:
        """Move forward to `phase` and note how long the one before took. A step back changes nothing."""
        if ORDER.index(phase) <= ORDER.index(self.status.phase):
            return
        now = self._clock.monotonic()
        took = {**self.status.phase_seconds, self.status.phase.value: round(now - self._entered, 3)}
        self._entered = now
        self.status = replace(self.status, phase=phase, phase_seconds=took)
        log.info("phase %s", phase.value)

    def tasks(self, tasks: Sequence[TaskStatus]) -> None:
        """Take over what is known of the trainings."""
        self.status = replace(self.status, tasks=list(tasks))

    def note(self, message: str) -> None:
        """Add something worth knowing to the message, to stay there."""
        if message and message not in self._notes:
            self._notes.append(message)
        self._compose()

    def warn(self, message: str) -> None:
        """Say what is wrong just now; the next word replaces it, an empty one takes it back."""
        self._warning = message
        self._compose()

    def announce(self, notice: dict[str, str] | None, rebalance: str | None) -> None:
        """Take over what the provider said."""
        self.status = replace(self.status, notice=notice, rebalance=rebalance)

    def moved(self, *, uploaded: int, downloaded: int) -> None:
        """Take over how many bytes the transfer programs of this agent have sent and fetched."""
        self.status = replace(
            self.status,
            uploaded_bytes=self._uploaded + uploaded,
            downloaded_bytes=self._downloaded + downloaded,
        )

    def _carried(self) -> tuple[int, int]:
        """What was sent and fetched under an agent of this lease that died."""
        try:
            before = protocol.read(self._paths.status, AgentStatus)
        except (OSError, ValueError, protocol.ProtocolError):
            return 0, 0
        return before.uploaded_bytes, before.downloaded_bytes

    def end(self, reason: Reason, message: str) -> None:
        """Say why it ended. The first reason stands; a later message is added."""
        self.status = replace(self.status, reason=self.status.reason or reason)
        self.note(message)

    def _compose(self) -> None:
        said = [*self._notes, self._warning] if self._warning not in self._notes else self._notes
        self.status = replace(self.status, message="; ".join(part for part in said if part))

    def publish(self) -> None:
        """Write the file. A full disk or a lost folder is logged once and stops nothing."""
        self.status = replace(self.status, at=self._clock.now())
        try:
            protocol.write(self._paths.status, self.status)
            self._unwritten = False
        except OSError as error:
            if not self._unwritten:
                log.warning("status cannot be written: %s", error)
            self._unwritten = True
