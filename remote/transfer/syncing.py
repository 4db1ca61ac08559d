"""While trainings run: their checkpoints go to the storage as they appear; at the end, everything that they leave.

Owns what is uploaded when. The trainer is never waited for and never waits: a checkpoint is taken by a hard link, which
keeps that very file whatever the trainer renames over it. Checkpoints that come faster than the upload are skipped but
for the newest, so nothing piles up on the disk.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from remote.clock import Clock
from remote.protocol import AgentJob, Checkpoint, LeasePaths, StoredRun, TransferOutcome
from remote.transfer.artifacts import TaskArtifacts
from remote.transfer.checkpoints import TaskCheckpoints, progress_of
from remote.transfer.report import Report
from remote.transfer.store import RemoteStore, StoreError, StoreRefused

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
        self._newest: Checkpoint | None = None
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
        self._report.write(replace(self._report.outcome, final=True))
        return 1

    def _last_pass(self) -> None:
        for task in self._tasks:
            self._checkpoint(task)
        for task in self._tasks:
            self._files += self._artifacts[task].upload_all(self._clock.now(), self._report.moved)

    def _new_checkpoint(self, task: str) -> None:
        """Store the task's newest checkpoint, if it is not stored yet and the trainer has told what it is.

        The trainer writes its progress after a checkpoint: progress from before it would name an earlier epoch. If none
        comes by the next round, the checkpoint goes with what is known.
        """
        now = Seen.of(self._paths.task(task).last)
        if now is None or now == self._seen.get(task):
            return
        told = Seen.of(self._paths.task(task).progress)
        if now == self._waiting.get(task) or (told is not None and told.modified_ns >= now.modified_ns):
            self._checkpoint(task)
        else:
            self._waiting[task] = now

    def _checkpoint(self, task: str) -> None:
        """Store the task's newest checkpoint, if it is not stored yet."""
        last = self._paths.task(task).last
        now = Seen.of(last)
        if now is None or now == self._seen.get(task):
            return
        taken = self._paths.transfer / f"{task}.taken.pt"
        taken.unlink(missing_ok=True)
        os.link(last, taken)
        taken_as = Seen.of(taken)
        progress = progress_of(self._paths.task(task))
        checkpoint = self._stored[task].commit(taken, progress, self._clock.now(), self._report.moved)
        taken.unlink()
        self._newest = checkpoint
        self._files += 1
        if taken_as is not None:
            self._seen[task] = taken_as
        log.info("task %s: checkpoint of epoch %d, step %d stored", task, checkpoint.epoch, checkpoint.step)
        self._stored[task].prune(checkpoint.key.rsplit("/", 1)[1])

    def _alongside(self) -> None:
        if self._clock.monotonic() < self._alongside_at:
            return
        for task in self._tasks:
            self._files += self._artifacts[task].upload_changed(self._report.moved)
        self._alongside_at = self._clock.monotonic() + ALONGSIDE_SECONDS

    def _low_disk(self) -> str:
        free = shutil.disk_usage(self._paths.root).free
        return f"the disk is nearly full: {free / 2**20:.0f} MiB free" if free < LOW_BYTES else ""

    def _say(self, *, ok: bool, message: str = "", final: bool = False) -> None:
        try:
            self._report.write(
                TransferOutcome(ok=ok, message=message, final=final, files=self._files, checkpoint=self._newest)
            )
        except OSError as error:
            log.warning("outcome cannot be written: %s", error)
