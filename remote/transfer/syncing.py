"""While trainings run: their checkpoints go to the storage as they appear; at the end, everything that they leave.

Owns what is uploaded when. The trainer is never waited for and never waits: a checkpoint is taken by a hard link, which
keeps that very file whatever the trainer renames over it. Checkpoints that come faster than the upload are skipped but
for the newest, so nothing piles up on the disk; and no upload needs room on it, so that a full one keeps nothing back.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from remote.clock import Clock
from remote.protocol import AgentJob, Checkpoint, LeasePaths, Reason, StoredRun, TransferOutcome
from remote.transfer.artifacts import TaskArtifacts
from remote.transfer.checkpoints import TaskCheckpoints, progress_of
from remote.transfer.report import Report
from remote.transfer.store import RemoteStore, StoreError, StoreRefused
from remote.transfer.turns import Turns

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
AFTER_FAILURE_SECONDS = 5.0
ALONGSIDE_SECONDS = 60.0
"""Between uploads of results, logs and the best weights while training runs."""
FINAL_TRIES = 5
LOW_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was uploaded: a new one has another inode or time."""

    inode: int
    modified_ns: int
    size: int

    @staticmethod
    def of(path: Path) -> Seen | None:
        """The file now, or None."""
        try:
            state = path.stat()
        except FileNotFoundError:
            return None
        return Seen(state.st_ino, state.st_mtime_ns, state.st_size)


class Sync:
    """One sync program. `run` returns the exit code."""

    def __init__(self, job: AgentJob, paths: LeasePaths, store: RemoteStore, report: Report, clock: Clock) -> None:
        run = StoredRun(job.run_id)
        self._paths = paths
        self._report = report
        self._clock = clock
        self._tasks = [task.name for task in job.tasks]
        self._stored = {name: TaskCheckpoints(store, run, name, paths.transfer) for name in self._tasks}
        self._artifacts = {
            name: TaskArtifacts(store, run, name, paths.task(name), paths.transfer) for name in self._tasks
        }
        self._seen: dict[str, Seen] = {}
        self._waiting: dict[str, Seen] = {}
        self._labels: dict[str, int | None] = {}
        """Which step the trainer told of the checkpoint that is stored."""
        self._turns = Turns()
        self._newest_of: dict[str, Checkpoint] = {}
        """Stored, and older ones not yet removed."""
        self._files = 0
        self._alongside_at = clock.monotonic() + ALONGSIDE_SECONDS

    def run(self) -> int:
        """Round after round until the final request, then the last pass."""
        while not self._paths.final_request.exists():
            self._clock.sleep(ROUND_SECONDS if self.round() else AFTER_FAILURE_SECONDS)
        return self.finish()

    def round(self) -> bool:
        """Upload what is new; whether all of it worked. What did not comes again with the next round."""
        try:
            for task in self._tasks:
                self._new_checkpoint(task)
            self._alongside()
        except (StoreError, OSError) as error:
            log.warning("%s", error)
            self._say(ok=False, message=str(error))
            return False
        self._say(ok=True, message=self._low_disk())
        return True

    def finish(self) -> int:
        """The last pass, tried a few times: checkpoints of all tasks first, then their files; 0 when all is stored."""
        self._make_room()
        for tried in range(1, FINAL_TRIES + 1):
            try:
                self._last_pass()
            except (StoreError, OSError) as error:
                log.warning("last pass: %s", error)
                self._say(ok=False, message=str(error))
                if isinstance(error, StoreRefused) or tried == FINAL_TRIES:
                    break
                self._clock.sleep(2.0**tried)
            else:
                self._say(ok=True, final=True)
                return 0
        self._say(ok=False, message=self._report.outcome.message, final=True)
        return 1

    def _last_pass(self) -> None:
        for task in self._tasks:
            self._checkpoint(task)
        for task in self._tasks:
            artifacts = self._artifacts[task]
            upload = artifacts.upload_small if self._is_taken_away() else artifacts.upload_all
            self._files += upload(self._clock.now(), self._report.moved)
        for task in self._tasks:
            self._prune(task)

    def _is_taken_away(self) -> bool:
        """Whether the provider ends the machine: nothing big but checkpoints goes then, the run goes on elsewhere."""
        return self._paths.final_request.read_text("utf-8") == Reason.PREEMPTED.value

    def _new_checkpoint(self, task: str) -> None:
        """Store the task's newest checkpoint, if it is not stored yet and the trainer has told what it is.

        The trainer writes its progress after a checkpoint: progress from before it would name an earlier epoch. If none
        comes by the next round, the checkpoint goes with what is known.
        """
        now = Seen.of(self._paths.task(task).last)
        if now is None or now == self._seen.get(task):
            return
        if now == self._waiting.get(task) or self._is_told(task, now):
            self._checkpoint(task)
            self._prune(task)
        else:
            self._waiting[task] = now

    def _is_told(self, task: str, checkpoint: Seen) -> bool:
        """Whether the trainer's progress is of this checkpoint, and not of the one before."""
        paths = self._paths.task(task)
        told = Seen.of(paths.progress)
        if told is None or told.modified_ns < checkpoint.modified_ns:
            return False
        progress = progress_of(paths)
        return progress is None or progress.saved_step is None or progress.saved_step != self._labels.get(task)

    def _checkpoint(self, task: str) -> None:
        """Store the task's newest checkpoint, if it is not stored yet.

        Progress is read first: a checkpoint that comes in between goes by an earlier step, never by a later one.
        """
        last = self._paths.task(task).last
        now = Seen.of(last)
        if now is None or now == self._seen.get(task):
            return
        progress = progress_of(self._paths.task(task))
        taken = self._paths.transfer / f"{task}.taken.pt"
        taken.unlink(missing_ok=True)
        os.link(last, taken)
        taken_as = Seen.of(taken)
        checkpoint = self._stored[task].commit(taken, progress, self._clock.now(), self._report.moved)
        taken.unlink()
        self._newest_of[task] = checkpoint
        self._turns.stored(checkpoint)
        self._labels[task] = None if progress is None else progress.saved_step
        self._files += 1
        if taken_as is not None:
            self._seen[task] = taken_as
        log.info("task %s: checkpoint of epoch %d, step %d stored", task, checkpoint.epoch, checkpoint.step)

    def _prune(self, task: str) -> None:
        """Remove what is old. That it does not work is no reason to send anything again: the next one does it."""
        newest = self._newest_of.pop(task, None)
        if newest is None:
            return
        try:
            self._stored[task].prune(newest.key.rsplit("/", 1)[1])
        except StoreError as error:
            log.warning("old checkpoints of %s stay: %s", task, error)

    def _alongside(self) -> None:
        if self._clock.monotonic() < self._alongside_at:
            return
        for task in self._tasks:
            if self._paths.final_request.exists():
                return  # checkpoints first
            self._files += self._artifacts[task].upload_changed(self._clock.now(), self._report.moved)
        self._alongside_at = self._clock.monotonic() + ALONGSIDE_SECONDS

    def _low_disk(self) -> str:
        free = self._free()
        return f"the disk is nearly full: {free / 2**20:.0f} MiB free" if free < LOW_BYTES else ""

    def _make_room(self) -> None:
        """Nothing trains any more: on a disk that is nearly full the data set goes, so that the end can be told."""
        if self._free() < LOW_BYTES:
            log.warning("the disk is nearly full: the data set is removed")
            shutil.rmtree(self._paths.data, ignore_errors=True)

    def _free(self) -> int:
        return shutil.disk_usage(self._paths.root).free

    def _say(self, *, ok: bool, message: str = "", final: bool = False) -> None:
        named = self._turns.current(self._clock.monotonic(), last=final)
        try:
            self._report.write(
                TransferOutcome(ok=ok, message=message, final=final, files=self._files, checkpoint=named)
            )
        except OSError as error:
            log.warning("outcome cannot be written: %s", error)
