"""The end of the machine: left to a launcher that is there, else by our own hand, in any case at its hard end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from remote.agent import deadline
from remote.agent.limits import Limits
from remote.agent.processes import Programs
from remote.agent.status import Board
from remote.clock import Clock
from remote.protocol import AgentJob, LeasePaths

log = logging.getLogger(__name__)

COMMAND_SECONDS = 30.0
AGAIN_SECONDS = 5.0
TERMINATED = (-15, 143)
"""The shutdown's own SIGTERM met the command that asked for it: directly, or through a shell or sudo."""
UNDER_WAY = "already a shutdown"
"""What systemd answers to a second power-off while the first one goes on."""


@dataclass(frozen=True, slots=True)
class Power:
    """The switch of this machine."""

    job: AgentJob
    paths: LeasePaths
    limits: Limits
    programs: Programs
    clock: Clock

    def leave(self, board: Board, terminated: Callable[[], bool]) -> None:
        """Wait for the launcher while it shows itself, then power off until the machine is gone.

        Returns only once SIGTERM has come and the power-off was accepted: the machine is then going down, and waiting
        for this process would only delay it.
        """
        while not terminated() and self._has_time() and self._watched(board):
            board.publish()
            self.clock.sleep(self.job.beat_seconds)
        log.info("powering off")
        accepted = False
        while True:
            accepted = self.off() or accepted
            again = self.clock.monotonic() + AGAIN_SECONDS
            while self.clock.monotonic() < again:
                if accepted and terminated():
                    return
                self.clock.sleep(self.job.beat_seconds)

    def off(self) -> bool:
        """One try, and whether the machine accepted it. A failure is logged; the caller comes again."""
        try:
            answer = self.programs.run(self.job.poweroff, COMMAND_SECONDS)
            log.info("power-off: exit code %d %s", answer.code, answer.output.strip()[-200:])
        except (OSError, TimeoutError) as error:
            log.warning("power-off: %s", error)
            return False
        return answer.code == 0 or answer.code in TERMINATED or UNDER_WAY in answer.output

    def _has_time(self) -> bool:
        self.limits.refresh()
        return self.clock.now() < self.limits.off_at

    def _watched(self, board: Board) -> bool:
        """Whether a launcher was there lately; it was when it started this agent."""
        seen_at = board.status.started_at
        try:
            seen_at = max(seen_at, self.paths.launcher_beat.stat().st_mtime)
        except OSError:
            log.debug("no sign of a launcher")
        return deadline.launcher_watches(self.clock.now(), seen_at, self.job.linger_seconds)
