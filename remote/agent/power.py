"""The end of the machine: left to a launcher that is there, else by our own hand, in any case at the deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable

from remote.agent import deadline
from remote.agent.processes import Programs
from remote.agent.status import Board
from remote.clock import Clock
from remote.protocol import AgentJob, LeasePaths

log = logging.getLogger(__name__)

COMMAND_SECONDS = 30.0
AGAIN_SECONDS = 5.0


def leave(
    job: AgentJob,
    paths: LeasePaths,
    programs: Programs,
    clock: Clock,
    board: Board,
    terminated: Callable[[], bool],
) -> None:
    """Wait for the launcher while it shows itself, then power off until the machine is gone.

    Returns only once SIGTERM has come and the power-off was accepted: the machine is then going down, and waiting for
    this process would only delay it.
    """
    while clock.now() < job.deadline and not terminated() and _watched(job, paths, clock, board):
        board.publish()
        clock.sleep(job.beat_seconds)
    log.info("powering off")
    while True:
        accepted = power_off(job, programs)
        if accepted and terminated():
            return
        clock.sleep(AGAIN_SECONDS)


def power_off(job: AgentJob, programs: Programs) -> bool:
    """One try, and whether the machine accepted it. A failure is logged; the caller comes again."""
    try:
        answer = programs.run(job.poweroff, COMMAND_SECONDS)
        log.info("power-off: exit code %d %s", answer.code, answer.output.strip()[-200:])
    except (OSError, TimeoutError) as error:
        log.warning("power-off: %s", error)
        return False
    return answer.code == 0


def _watched(job: AgentJob, paths: LeasePaths, clock: Clock, board: Board) -> bool:
    """Whether a launcher was there lately; it was when it started this agent."""
    seen_at = board.status.started_at
    try:
        seen_at = max(seen_at, paths.launcher_beat.stat().st_mtime)
    except OSError:
        log.debug("no sign of a launcher")
    return deadline.launcher_watches(clock.now(), seen_at, job.linger_seconds)
