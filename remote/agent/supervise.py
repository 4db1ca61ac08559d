"""The life of one lease on its machine: check, stage, train, sync, end. Reads as a paragraph; the parts are elsewhere.

Owns the order of things and the beat. Every wait goes through `_pause`, which writes the status, looks for reasons to
stop and raises OutOfTime at the deadline. Whatever its parts do, the machine is powered off.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remote import protocol
from remote.agent import deadline
from remote.agent.checks import missing_pictures, unfit
from remote.agent.limits import Limits
from remote.agent.power import Power
from remote.agent.preemption import Notices
from remote.agent.processes import Child, Programs
from remote.agent.resume import ResumeCheck
from remote.agent.retry import ending
from remote.agent.status import Board
from remote.agent.stop import Stop, StopSources
from remote.agent.trainer import Trainer, TrainerSettings
from remote.agent.transfers import FINAL_FAILURES, KILL_SECONDS, PostProgram, Silence, SyncProgram, Transfers
from remote.clock import Clock
from remote.protocol import AgentJob, LeasePaths, Phase, Reason, TaskState, TransferOutcome

log = logging.getLogger(__name__)

STAGE_SILENCE_SECONDS = 900.0
"""Unpacking a large archive reports nothing while it goes on."""
STAGE_STARTS = 3
"""A staging that something killed goes on from what is on the disk; one that is killed again and again does not."""
HUNG = 124
"""The exit code of a program that was ended for its silence, as that of `timeout`."""
OUTCOME_UPLOAD_SECONDS = 60.0
LAST_POST_SECONDS = 10.0
"""What the copy of the last status may take before the machine is left; the outcome is stored by then."""


class OutOfTime(Exception):
    """The deadline is here, or the end of what the budget pays for."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the agent touches of the world."""

    programs: Programs
    clock: Clock
    notices: Notices


class Supervisor:
    """One agent. `run` is called once."""

    def __init__(self, job: AgentJob, paths: LeasePaths, ports: Ports, pid: int) -> None:
        self._job = job
        self._paths = paths
        self._programs = ports.programs
        self._clock = ports.clock
        self._board = Board(job, paths, ports.clock, pid)
        self._limits = Limits(job, paths.budget)
        self._sources = StopSources(job, paths, ports.notices, self._limits)
        self._transfers = Transfers(job, paths, ports.programs)
        self._post = PostProgram(self._transfers, ports.clock)
        self._sync = SyncProgram(self._transfers, paths, ports.clock)
        self._resumes = ResumeCheck({})
        self._trainers: list[Trainer] = []
        self._stop: Stop | None = None
        self._downloaded = 0

    def terminate(self) -> None:
        """For the handler of SIGTERM: stop at the next beat."""
        self._sources.terminated = True

    def run(self) -> None:
        """From the start to the end of the machine. Does not return before the machine goes down."""
        try:
            self._live()
        except OutOfTime:
            self._cut_short(self._limits.reason, f"{self._limits.words(self._clock.now())}; not everything was stored")
        except Exception as error:  # the top level: whatever failed, the machine ends
            log.exception("internal error")
            self._rescue(f"internal error of the agent: {type(error).__name__}: {error}")
        finally:
            self._leave()

    def _leave(self) -> None:
        power = Power(self._job, self._paths, self._limits, self._programs, self._clock)
        try:
            self._post.finish(min(self._clock.now() + LAST_POST_SECONDS, self._limits.off_at))
        finally:
            power.leave(self._board, lambda: self._sources.terminated)

    def _live(self) -> None:
        self._board.publish()
        self._post.keep()
        staged = self._stage()
        if staged is not None:
            self._train(staged)
            self._last_sync()
        self._conclude()

    # -- staging ------------------------------------------------------------------------------------------------------

    def _stage(self) -> TransferOutcome | None:
        """The staged data set, or None with the reason on the board."""
        problem = unfit(self._job, self._paths.root, self._programs)
        if problem is None:
            self._board.enter(Phase.STAGING)
            code = self._staging()
            outcome = self._transfers.outcome(self._paths.stage_outcome)
            self._downloaded = 0 if outcome is None else outcome.bytes
            if self._stop is not None:
                return None
            if code == 0 and outcome is not None and outcome.ok and outcome.final and outcome.data:
                problem = missing_pictures(self._job, outcome)
                self._board.note(outcome.message)
            else:
                problem = self._transfers.failure("stage", code, outcome)
            if problem is None:
                return outcome
        self._board.end(Reason.STAGING_FAILED, problem)
        return None

    def _staging(self) -> int:
        """Run staging, again where it was killed by another hand than ours; its last exit code."""
        for start in range(1, STAGE_STARTS + 1):
            self._paths.stage_outcome.unlink(missing_ok=True)
            code = self._watched("stage", STAGE_SILENCE_SECONDS)
            if code >= 0 or self._stop is not None:
                break
            log.warning("transfer stage, start %d of %d: %s", start, STAGE_STARTS, ending(code))
        return code

    def _watched(self, verb: str, silence_seconds: float) -> int:
        """Run a verb of the transfer program to its end, a stop or its silence; its exit code, HUNG for silence."""
        try:
            child = self._transfers.start(verb)
        except OSError as error:
            log.warning("transfer %s cannot be started: %s", verb, error)
            return 127
        silence = Silence(self._paths.stage_outcome, self._clock)
        while (code := child.poll()) is None:
            self._pause()
            if self._stop is not None or silence.seconds() > silence_seconds:
                log.warning("transfer %s is ended", verb)
                code = self._killed(child)
                return HUNG if self._stop is None else code
        return code

    def _killed(self, child: Child) -> int:
        child.kill()
        given_up = self._clock.monotonic() + KILL_SECONDS
        while (code := child.poll()) is None and self._clock.monotonic() < given_up:
            self._pause()
        return -9 if code is None else code

    # -- training -----------------------------------------------------------------------------------------------------

    def _train(self, staged: TransferOutcome) -> None:
        self._board.enter(Phase.TRAINING)
        self._paths.final_request.unlink(missing_ok=True)  # of an agent that died in its last sync
        self._resumes = ResumeCheck(staged.restored)
        settings = TrainerSettings(
            self._job.python, str(staged.data), self._job.stall_floor_seconds, self._job.save_reserve_seconds
        )
        self._trainers = [
            Trainer(task, self._paths.task(task.name), settings, self._programs, self._clock)
            for task in self._job.tasks
        ]
        self._checkpoint_of(staged)
        while self._stop is None and any(trainer.state in _OPEN for trainer in self._trainers):
            self._start_waiting()
            self._look_after_all()
            self._pause()
        if self._stop is not None:
            self._stop_training(self._stop)

    def _start_waiting(self) -> None:
        slots = {trainer.slot for trainer in self._trainers if trainer.state is TaskState.RUNNING}
        free = [slot for slot in range(self._job.concurrent) if slot not in slots]
        waiting = [trainer for trainer in self._trainers if trainer.state is TaskState.WAITING]
        for slot, trainer in zip(free, waiting, strict=False):
            trainer.start(slot, self._gpu_of(slot))

    def _gpu_of(self, slot: int) -> dict[str, str]:
        """Trainings that share a machine get a GPU each, in turn."""
        shared = self._job.concurrent > 1 and self._job.gpus > 0
        return {"CUDA_VISIBLE_DEVICES": str(slot % self._job.gpus)} if shared else {}

    def _look_after_all(self) -> None:
        for trainer in self._trainers:
            trainer.look()
            problem = self._resumes.look(trainer.status())
            if problem is not None:
                log.error("%s", problem)
                self._board.note(problem)
        self._checkpoint_of(self._sync.keep())
        self._board.warn(self._sync.message)

    def _checkpoint_of(self, outcome: TransferOutcome | None) -> None:
        if outcome is not None and outcome.checkpoint is not None:
            self._board.status = replace(self._board.status, checkpoint=outcome.checkpoint)

    def _stop_training(self, stop: Stop) -> None:
        """Ask, wait as long as the time that is left allows, then kill."""
        log.info("stopping: %s: %s", stop.reason.value, stop.message)
        now = self._clock.now()
        save_until = now + deadline.save_seconds(now, stop.gone_at, self._job.save_reserve_seconds)
        for trainer in self._trainers:
            trainer.ask_to_stop()
        self._wait_for_trainers(save_until)
        for trainer in self._trainers:
            trainer.kill("it did not save in time and was killed: its last whole checkpoint counts")
        self._wait_for_trainers(self._clock.now() + KILL_SECONDS)

    def _wait_for_trainers(self, until: float) -> None:
        self._look_after_all()
        while any(trainer.state is TaskState.RUNNING for trainer in self._trainers):
            if self._clock.now() >= min(until, self._gone_at()):
                return
            self._pause()
            self._look_after_all()

    # -- the end ------------------------------------------------------------------------------------------------------

    def _last_sync(self) -> None:
        """Everything that the trainings left goes to the storage; bounded by silence, failures and the time left."""
        self._board.enter(Phase.SYNCING)
        self._sync.begin_last_pass()
        kept = deadline.outcome_seconds(self._clock.now(), self._gone_at())
        while not self._sync.done and self._sync.failures < FINAL_FAILURES:
            if not self._paths.final_request.exists():
                self._write(self._paths.final_request, "" if self._stop is None else self._stop.reason.value)
            self._checkpoint_of(self._sync.keep())
            self._board.warn(self._sync.message)
            if self._clock.now() >= self._gone_at() - kept:
                self._sync.message = self._sync.message or "the last upload was not finished in time"
                return
            self._pause()

    def _conclude(self) -> None:
        """Say why it ended: first as an object in the storage, then in the status."""
        self._board.warn("")
        self._board.moved(uploaded=self._sync.bytes, downloaded=self._downloaded)
        self._board.end(*self._verdict())
        closing = replace(self._board.status, phase=Phase.ENDED, at=self._clock.now())
        self._write(self._paths.outcome, protocol.encode(closing))
        self._upload_outcome()
        self._board.enter(Phase.ENDED)
        self._board.publish()

    def _write(self, path: Path, text: str) -> None:
        try:
            protocol.write_text(path, text)
        except OSError as error:
            log.warning("%s cannot be written: %s", path.name, error)

    def _upload_outcome(self) -> None:
        try:
            child = self._transfers.start("outcome")
        except OSError as error:
            self._board.note(f"the outcome was not stored: {error}")
            return
        now = self._clock.now()
        until = min(max(self._gone_at(), now + deadline.OUTCOME_SECONDS), now + OUTCOME_UPLOAD_SECONDS)
        while (code := child.poll()) is None and self._clock.now() < until:
            self._pause()
        if code != 0:
            child.kill()
            self._board.note("the outcome was not stored")

    def _verdict(self) -> tuple[Reason, str]:
        done = bool(self._trainers) and all(trainer.state is TaskState.DONE for trainer in self._trainers)
        if done and self._sync.done:
            return Reason.COMPLETED, ""
        unsynced = "" if self._sync.done else self._sync.message
        if self._stop is not None:
            return self._stop.reason, "; ".join(part for part in (self._stop.message, unsynced) if part)
        if done:
            return Reason.SYNC_FAILED, unsynced
        failed = [trainer for trainer in self._trainers if trainer.state is TaskState.FAILED]
        stalled = bool(failed) and all(trainer.stalled for trainer in failed)
        said = [f"{trainer.name}: {trainer.status().message}" for trainer in failed]
        reason = Reason.STALLED if stalled else Reason.TRAINER_FAILED
        return reason, "; ".join(part for part in (*said, unsynced) if part)

    def _rescue(self, message: str) -> None:
        """After a mistake of our own: what the trainings saved is still stored."""
        self._stop = self._stop or Stop(Reason.TRAINER_FAILED, message, self._limits.off_at)
        try:
            if self._trainers:
                self._stop_training(self._stop)
                self._last_sync()
            self._conclude()
        except Exception:
            log.exception("and again")
            self._cut_short(Reason.TRAINER_FAILED, message)

    def _cut_short(self, reason: Reason, message: str) -> None:
        """End without waiting for anything that could hang."""
        for trainer in self._trainers:
            trainer.kill(message)
        self._sync.kill()
        self._clock.sleep(self._job.beat_seconds)
        for trainer in self._trainers:
            trainer.look()
        self._board.tasks([trainer.status() for trainer in self._trainers] or self._board.status.tasks)
        self._board.end(self._stop.reason if self._stop is not None else reason, message)
        self._board.enter(Phase.ENDED)
        self._board.publish()

    # -- the beat -----------------------------------------------------------------------------------------------------

    def _gone_at(self) -> float:
        return self._limits.off_at if self._stop is None else self._stop.gone_at

    def _pause(self) -> None:
        """One beat: write the status, wait, look for reasons to stop. Raises OutOfTime."""
        if self._trainers:
            self._board.tasks([trainer.status() for trainer in self._trainers])
        self._board.moved(uploaded=self._sync.bytes, downloaded=self._downloaded)
        self._board.publish()
        self._clock.sleep(self._job.beat_seconds)
        self._post.keep()
        self._limits.refresh()
        now = self._clock.now()
        if now >= self._limits.off_at:
            raise OutOfTime
        found = self._sources.look(now)
        self._board.announce(self._sources.notice, self._sources.rebalance)
        if self._stop is None:
            self._stop = found
        elif found is not None and found.gone_at < self._stop.gone_at:
            self._stop = replace(self._stop, gone_at=found.gone_at)


_OPEN: Sequence[TaskState] = (TaskState.WAITING, TaskState.RUNNING)
