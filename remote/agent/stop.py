"""Why training has to stop before it is done. Owns the sources: command file, SIGTERM, notice, deadline, budget."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from remote import protocol
from remote.agent import preemption
from remote.agent.limits import Limits
from remote.protocol import AgentJob, LeasePaths, Reason, StopCommand

log = logging.getLogger(__name__)

TERMINATED_SECONDS = 60.0
"""What a SIGTERM to the agent leaves: systemd gives 90 s before it kills."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Training stops."""

    reason: Reason
    message: str
    gone_at: float
    """Everything must be stored by then (Unix seconds)."""


class StopSources:
    """Looks at all sources; a notice is urgent and comes first."""

    def __init__(self, job: AgentJob, paths: LeasePaths, notices: preemption.Notices, limits: Limits) -> None:
        self._reserve = job.save_reserve_seconds
        self._tasks = [task.name for task in job.tasks]
        self._paths = paths
        self._limits = limits
        self._notices = notices
        self.notice: dict[str, str] | None = None
        self.rebalance: str | None = None
        self.terminated = False
        """Set by the handler of SIGTERM."""

    def look(self, now: float) -> Stop | None:
        """The most urgent reason to stop at `now`, or None."""
        self.notice = self.notice or self._notices.preemption()
        if self.rebalance is None:
            self.rebalance = self._notices.rebalance()
            if self.rebalance is not None:
                self._save_soon()
        if self.notice is not None:
            return self._preempted(self.notice, now)
        self._limits.refresh()
        if now + self._reserve >= self._limits.off_at:
            return Stop(self._limits.reason, self._limits.words(now), self._limits.off_at)
        if self.terminated:
            gone_at = min(self._limits.off_at, now + TERMINATED_SECONDS)
            return Stop(Reason.PREEMPTED, "the machine is going down (SIGTERM)", gone_at)
        return self._commanded()

    def _save_soon(self) -> None:
        """The machine is at elevated risk, and may go without any other notice: what was trained so far is saved."""
        for task in self._tasks:
            request = self._paths.task(task).save_request
            try:
                request.parent.mkdir(parents=True, exist_ok=True)
                request.touch()
            except OSError as error:
                log.warning("%s cannot be asked to save: %s", task, error)

    def _preempted(self, notice: dict[str, str], now: float) -> Stop:
        gone_at = min(self._limits.off_at, preemption.gone_at(notice, now))
        return Stop(Reason.PREEMPTED, f"the provider takes the machine back at {notice.get('time', 'once')}", gone_at)

    def _commanded(self) -> Stop | None:
        try:
            command = protocol.read(self._paths.command, StopCommand)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, protocol.ProtocolError) as error:
            log.warning("a command cannot be read and counts as a stop: %s", error)
            return Stop(Reason.CANCELLED, f"stop command cannot be read: {error}", self._limits.off_at)
        return Stop(command.reason, "the launcher asked for it", self._limits.off_at)
