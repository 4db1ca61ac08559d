"""One training: its configuration file, its process, its progress, its restarts.

Owns the files that the agent puts into a task's folder. Knows nothing of the other trainings, of storage or of phases.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from remote import protocol
from remote.agent import retry
from remote.agent.processes import Child, Programs
from remote.agent.retry import Attempt
from remote.agent.stall import StallWatch
from remote.clock import Clock
from remote.protocol import EXIT_DONE, EXIT_INTERRUPTED, TaskPaths, TaskProgress, TaskSpec, TaskState, TaskStatus

log = logging.getLogger(__name__)

DUMP_SECONDS = 5.0
"""Between the request for stack dumps and the end of a training that stands still."""
LOG_TAIL_BYTES = 16384
TRAINER = "remote.yolov9.train"


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """What all trainings of a lease share."""

    python: list[str]
    data: str
    stall_floor_seconds: float
    shutdown_seconds: float
    """How long torchrun may wait for its workers to save."""


class Trainer:
    """One training of the run."""

    def __init__(
        self, task: TaskSpec, paths: TaskPaths, settings: TrainerSettings, programs: Programs, clock: Clock
    ) -> None:
        self.name = task.name
        self.state = TaskState.WAITING
        self.slot = 0
        self.stalled = False
        """It failed because it stood still again."""
        self._task = task
        self._paths = paths
        self._settings = settings
        self._programs = programs
        self._clock = clock
        self._child: Child | None = None
        self._watch = StallWatch(settings.stall_floor_seconds, clock.monotonic())
        self._environment: Mapping[str, str] = {}
        self._attempts: list[Attempt] = []
        self._starts = 0
        self._dumped_at: float | None = None
        self._asked = False
        self._exit_code: int | None = None
        self._message = ""
        self._progress: TaskProgress | None = None

    def start(self, slot: int, environment: Mapping[str, str]) -> None:
        """Start it for the first time, in one of the places of the machine and with `environment` (its GPU) added."""
        self.slot = slot
        self._environment = environment
        self._launch()

    def look(self) -> None:
        """See what became of it: progress, a stall, its end, and then perhaps a restart."""
        if self._child is None or self.state is not TaskState.RUNNING:
            return
        code = self._child.poll()
        self._read_progress()
        if code is not None:
            self._child.kill()
            self._ended(code)
        elif not self._asked:
            self._end_a_stall(self._child)

    def ask_to_stop(self) -> None:
        """SIGTERM: finish the step, save, exit. One that has not started stays as it is."""
        if self._child is not None and self.state is TaskState.RUNNING and not self._asked:
            self._asked = True
            self._child.terminate()

    def kill(self, why: str) -> None:
        """End it now; its newest whole checkpoint counts."""
        if self._child is not None and self.state is TaskState.RUNNING:
            self._asked = True
            self._message = why
            self._child.kill()

    def status(self) -> TaskStatus:
        """What the launcher is told of it."""
        return TaskStatus(self.name, self.state, self._starts, self._exit_code, self._message, self._progress)

    def _launch(self) -> None:
        task = {**self._task.config, "data": self._settings.data, "output": str(self._paths.root), "resume": True}
        try:
            protocol.write_text(self._paths.config, json.dumps(task, indent=1))
            self._paths.progress.unlink(missing_ok=True)
            self._child = self._programs.start(f"task/{self.name}", self._argv(), self._paths.log, self._variables())
        except OSError as error:
            self._close(TaskState.FAILED, f"cannot be started: {error}")
            return
        self._starts += 1
        self._dumped_at = None
        self._watch = StallWatch(self._settings.stall_floor_seconds, self._clock.monotonic())
        self.state = TaskState.RUNNING
        log.info("task %s: attempt %d started", self.name, self._starts)

    def _argv(self) -> list[str]:
        trainer = ["-m", TRAINER, str(self._paths.config)]
        if self._task.world_size == 1:
            return [*self._settings.python, *trainer]
        ranks = ["--standalone", "--nproc-per-node", str(self._task.world_size)]
        return [*self._settings.python, "-m", "torch.distributed.run", *ranks, *trainer]

    def _variables(self) -> dict[str, str]:
        wait = str(int(self._settings.shutdown_seconds))
        return {**self._environment, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": wait}

    def _read_progress(self) -> None:
        try:
            self._progress = protocol.read(self._paths.progress, TaskProgress)
        except FileNotFoundError:
            return
        except (OSError, ValueError, protocol.ProtocolError) as error:
            log.warning("task %s: %s", self.name, error)
            return
        self._watch.see(self._progress.step, self._progress.at, self._clock.monotonic())

    def _end_a_stall(self, child: Child) -> None:
        now = self._clock.monotonic()
        if self._dumped_at is None:
            if self._watch.stalled(now):
                self._message = f"no step for {self._watch.limit():.0f} s: stacks are in train.log"
                log.warning("task %s: %s", self.name, self._message)
                self._dumped_at = now
                child.dump()
        elif now - self._dumped_at >= DUMP_SECONDS:
            child.kill()

    def _ended(self, code: int) -> None:
        tail = _tail(self._paths.log)
        self._exit_code = code = code if self._task.world_size == 1 else worker_exit_code(tail, code)
        if code == EXIT_DONE:
            self._close(TaskState.DONE, "")
        elif self._asked:
            self._close(TaskState.INTERRUPTED, self._message if code != EXIT_INTERRUPTED else "")
        else:
            self._judge(Attempt(code, self._watch.steps, stalled=self._dumped_at is not None), tail)

    def _judge(self, attempt: Attempt, tail: str) -> None:
        self._attempts.append(attempt)
        verdict = retry.decide(self._attempts)
        self._message = "; ".join(part for part in (verdict.why, last_line(tail)) if part)
        log.warning("task %s: %s", self.name, self._message)
        if verdict.again:
            self._launch()
        else:
            self.stalled = attempt.stalled
            self._close(TaskState.FAILED, self._message)

    def _close(self, state: TaskState, message: str) -> None:
        self.state, self._message = state, message
        log.info("task %s: %s %s", self.name, state.value, message)


def worker_exit_code(tail: str, code: int) -> int:
    """The trainer's own code: torchrun answers 1 to any failure and names the worker's code in its report."""
    reported = re.findall(r"^\s*exitcode\s*:\s*(-?\d+)", tail, re.MULTILINE)
    return int(reported[-1]) if code != EXIT_DONE and reported else code


def last_line(tail: str) -> str:
    """The last line that says something, at most 300 characters of it."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as text:
            text.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            return text.read().decode("utf-8", "replace")
    except OSError:
        return ""
