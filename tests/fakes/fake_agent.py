"""The agent of one lease as a timeline over the fake clock: stages, trains, saves, syncs, ends the machine.

Speaks the real protocol: reads the real job, writes real statuses, manifests, artifact lists and outcomes, and resumes
from the newest manifest. What it does not do is work.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from launcher_clock import FakeClock
from memory_object_store import FakeStore

from remote import protocol
from remote.agent.budget import ends_at
from remote.protocol import (
    AgentJob,
    AgentStatus,
    ArtifactFile,
    ArtifactList,
    Budget,
    Checkpoint,
    Manifest,
    Phase,
    Reason,
    StopCommand,
    StoredRun,
    TaskProgress,
    TaskState,
    TaskStatus,
)

STEPS_PER_EPOCH = 10
AGAIN_SECONDS = 10
"""Between two tries of a transfer that the storage does not take."""
FINAL_TRIES = 30
"""So often the last sync is tried."""


@dataclass
class AgentScript:
    """How long the phases of a lease take, in seconds, and what goes wrong in them."""

    staging: float = 30
    epoch: float = 60
    saving: float = 3
    uploading: float = 0
    """From a save until the checkpoint is whole in the storage."""
    syncing: float = 10
    closing: float = 1
    """From the last upload of files until the outcome is stored."""
    checkpoint_epochs: int = 1
    fails_at_epoch: int | None = None
    exit_code: int = 1
    starts: bool = True
    """False: the agent dies before its first beat."""
    says: str = ""
    """What it finds worth telling as long as it works."""
    uploads: int = 0
    """Bytes that the agent counts as sent to the storage; 0: it does not count."""
    posts: bool = True
    """False: the agent cannot write to the storage while it works."""
    trained: list[tuple[str, str, int]] = field(default_factory=list)
    """What was trained: lease, task, epoch."""
    lost: list[float] = field(default_factory=list)
    """Seconds of training that were lost with each agent that died."""


@dataclass
class FakeAgent:
    """One agent. `command`, `notice` and the deadline stop it; the end of its machine kills it."""

    clock: FakeClock
    store: FakeStore
    job: AgentJob
    script: AgentScript
    power_off: Callable[[], None]
    ahead: float = 0
    """How far the machine's clock is ahead of the true time."""
    alive: bool = True
    killed: bool = False
    """Its process was ended by somebody, before its machine was."""
    beat: float = 0.0
    """When the launcher last showed itself."""
    _chapter: int = 0
    """What was planned in an earlier chapter does not happen any more."""
    _told: AgentStatus | None = None
    _record: dict[str, object] = field(default_factory=dict)
    """`status.json` as it was written last, for the status `_told`: between two beats only the time changes."""

    def __post_init__(self) -> None:
        now = self._now()
        tasks = [TaskStatus(task.name) for task in self.job.tasks]
        self.stored = StoredRun(self.job.run_id)
        self.status = AgentStatus(self.job.run_id, self.job.lease_id, Phase.STARTING, now, now, 4242, tasks)
        self.status = replace(self.status, message=self.script.says)
        self.epochs = dict.fromkeys((task.name for task in self.job.tasks), 0)
        self.reason: Reason | None = None
        self.message = ""
        self.unsent = 0
        """Checkpoints on their way."""
        self.off_at = math.inf
        """The hard end, by the deadline or the budget."""
        self._safe_at: float | None = None
        """Until when the training is in the storage; None: it has not begun."""
        self._trained_until: float | None = None
        """When it ended; None: it goes on."""
        if not self.script.starts:
            self.alive = False
            return
        self._enter(Phase.STAGING)
        self._post()
        self._plan(self.script.staging, self._staged)
        self.take_budget(self.job.budget)

    @property
    def has_ended(self) -> bool:
        """It said how it ended; another agent of this lease would leave at once."""
        return self.status.phase is Phase.ENDED

    def die(self, *, killed: bool = False) -> None:
        """The end, by somebody who ends the process, or the machine under it."""
        if not self.alive:
            return
        if self._safe_at is not None:
            until = self.clock.elapsed if self._trained_until is None else self._trained_until
            self.script.lost.append(max(0.0, until - self._safe_at))
        self.alive, self.killed = False, killed

    def status_text(self) -> str:
        """`status.json` as it is now."""
        if self._told is not self.status:
            self._told, self._record = self.status, asdict(self.status)
        if self.alive:
            self._record["at"] = self._now()
        return json.dumps(self._record)

    def command(self, reason: Reason) -> None:
        """The launcher asks for the end."""
        self.clock.after(self.job.beat_seconds, lambda: self._if_alive(lambda: self._stop(reason)))

    def take_budget(self, budget: Budget | None) -> None:
        """Until when this budget, and the deadline, let the machine live."""
        pays_until = math.inf if budget is None else ends_at(budget)
        off_at = self.off_at = min(self.job.deadline, pays_until)
        reason = Reason.BUDGET if pays_until < self.job.deadline else Reason.DEADLINE

        def unless_replaced(action: Callable[[Reason], None]) -> Callable[[], None]:
            return lambda: action(reason) if self.off_at == off_at else None

        self._at(off_at - self.job.save_reserve_seconds, unless_replaced(self._stop))
        self._at(off_at, unless_replaced(self._out_of_time))

    def notice(self, gone_at: float) -> None:
        """The provider takes the machine back."""
        time = (self.clock.start.timestamp() + gone_at).__format__(".0f")

        def seen() -> None:
            if self.job.metadata_base is not None:
                self.status = replace(self.status, notice={"action": "terminate", "time": time})
                self._stop(Reason.PREEMPTED)

        self.clock.after(5, lambda: self._if_alive(seen))

    def _post(self) -> None:
        """The copy of the status for those who cannot reach the machine, and their command."""
        if self.script.posts and not self.store.down_for_machines:
            self.store.objects[self.stored.posted_status(self.job.lease_id)] = self.status_text().encode()
            command = self.store.objects.get(self.stored.posted_command(self.job.lease_id))
            if command is not None:
                self._stop(protocol.decode(command.decode(), StopCommand, "the posted command").reason)
        self.clock.after(self.job.post_seconds, lambda: self._if_alive(self._post))

    # -- the timeline -------------------------------------------------------------------------------------------------

    def _staged(self) -> None:
        if self.store.down_for_machines:
            self._plan(AGAIN_SECONDS, self._staged)
            return
        key = self.job.data.url.removeprefix(f"{self.store.url}/")
        data = self.store.objects.get(key)
        if data is None or self.job.data.sha256 not in {None, hashlib.sha256(data).hexdigest()}:
            self.message = f"the data at {self.job.data.url} is not what was announced"
            self._conclude(Reason.STAGING_FAILED)
            return
        for task in self.epochs:
            restored = self._newest(task)
            if restored is not None:
                self.epochs[task] = restored.epoch
                self._say(restored)
        self._enter(Phase.TRAINING)
        self._safe_at = self.clock.elapsed
        self._progress(TaskState.RUNNING)
        self._next_epoch()

    def _next_epoch(self) -> None:
        if all(self.epochs[task.name] >= int(task.config["epochs"]) for task in self.job.tasks):
            self._progress(TaskState.DONE)
            self._sync(Reason.COMPLETED)
        else:
            self._plan(self.script.epoch, self._epoch_over)

    def _epoch_over(self) -> None:
        for task in self.job.tasks:
            epochs = int(task.config["epochs"])
            if self.epochs[task.name] >= epochs:
                continue
            done = self.epochs[task.name] + 1
            if done == self.script.fails_at_epoch:
                self._fail(task.name)
                return
            self.epochs[task.name] = done
            self.script.trained.append((self.job.lease_id, task.name, done))
            if done % self.script.checkpoint_epochs == 0 or done == epochs:
                self._save(task.name, done, done * STEPS_PER_EPOCH)
        self._progress(TaskState.RUNNING)
        self._next_epoch()

    def _fail(self, name: str) -> None:
        words = f"the trainer ended with exit code {self.script.exit_code}"
        failed = TaskStatus(name, TaskState.FAILED, 1, self.script.exit_code, words)
        self.status = replace(self.status, tasks=[failed if t.name == name else t for t in self.status.tasks])
        self.message = f"{name}: {words}"
        self._sync(Reason.TRAINER_FAILED)

    def _stop(self, reason: Reason) -> None:
        if self.reason is not None or self.status.phase in {Phase.SYNCING, Phase.ENDED}:
            return
        self.reason = reason
        self._trained_until = self.clock.elapsed
        if self.status.phase is not Phase.TRAINING:
            self._conclude(reason)
            return
        self._chapter += 1
        self._plan(self.script.saving, lambda: self._save_and_sync(reason))

    def _save_and_sync(self, reason: Reason) -> None:
        for task in self.job.tasks:
            done = self.epochs[task.name]
            if done < int(task.config["epochs"]):
                self._save(task.name, done, done * STEPS_PER_EPOCH + 5)
        self._progress(TaskState.INTERRUPTED)
        self._sync(reason)

    def _sync(self, reason: Reason) -> None:
        if self._trained_until is None:
            self._trained_until = self.clock.elapsed
        self._chapter += 1
        self._enter(Phase.SYNCING)
        self._plan(self.script.syncing, lambda: self._synced(reason, FINAL_TRIES))

    def _synced(self, reason: Reason, tries: int) -> None:
        if self.unsent or self.store.down_for_machines:
            if tries:
                self._plan(AGAIN_SECONDS, lambda: self._synced(reason, tries - 1))
            else:
                self._conclude(Reason.SYNC_FAILED if reason is Reason.COMPLETED else reason)
            return
        for task in self.epochs:
            contents = {"best.pt": b"best", "results.csv": b"epoch,map50\n", "train.log": b"trained\n"}
            listed = [ArtifactFile(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in sorted(contents.items())]
            self.store.objects |= {self.stored.artifact(task, name): content for name, content in contents.items()}
            text = protocol.encode(ArtifactList(task, listed, self._now()))
            self.store.objects[self.stored.artifacts(task)] = text.encode()
        self._conclude(reason)

    def _conclude(self, reason: Reason) -> None:
        self._chapter += 1
        self.status = replace(self.status, reason=reason, message=self.message)
        self._plan(self.script.closing, self._end)

    def _end(self) -> None:
        self._enter(Phase.ENDED)
        uploaded = self.script.uploads
        self.status = replace(self.status, uploaded_bytes=uploaded, downloaded_bytes=uploaded // 2)
        closing = replace(self.status, at=self._now())
        if not self.store.down_for_machines:
            self.store.objects[self.stored.outcome(self.job.lease_id)] = protocol.encode(closing).encode()
        self._leave()

    def _leave(self) -> None:
        left = self.beat + self.job.linger_seconds - self.clock.elapsed
        if left <= 0 or self._now() >= self.off_at:
            self.power_off()
        else:
            self._plan(left, self._leave)

    def _out_of_time(self, why: Reason) -> None:
        self._chapter += 1
        self.status = replace(self.status, reason=self.status.reason or self.reason or why)
        self._enter(Phase.ENDED)
        self.power_off()

    # -- small parts --------------------------------------------------------------------------------------------------

    def _save(self, task: str, epoch: int, step: int) -> None:
        content = f"{task} {epoch} {step}".encode()
        digest = hashlib.sha256(content).hexdigest()
        folder, name = self.stored.checkpoints(task), f"{step:010d}-{digest[:8]}"
        manifest = Manifest(task, epoch, step, f"{name}.pt", digest, len(content), self._now())
        uploaded = {f"{folder}{name}.pt": content, f"{folder}{name}.json": protocol.encode(manifest).encode()}
        if self.script.uploading or self.store.down_for_machines:
            self.unsent += 1
            taken_at = self.clock.elapsed if self._trained_until is None else self._trained_until
            self._send_in(self.script.uploading, manifest, uploaded, taken_at)
        else:
            self.store.objects |= uploaded
            self._safe_at = self.clock.elapsed
            self._say(manifest)

    def _send_in(self, seconds: float, manifest: Manifest, uploaded: dict[str, bytes], taken_at: float) -> None:
        """In a while, or when the storage takes it."""

        def send() -> None:
            if self.store.down_for_machines:
                self._send_in(AGAIN_SECONDS, manifest, uploaded, taken_at)
                return
            self.unsent -= 1
            self.store.objects |= uploaded
            self._safe_at = taken_at
            self._say(manifest)

        self.clock.after(seconds, lambda: self._if_alive(send))

    def _newest(self, task: str) -> Manifest | None:
        folder = self.stored.checkpoints(task)
        manifests = [
            protocol.decode(content.decode(), Manifest, key)
            for key, content in self.store.objects.items()
            if key.startswith(folder) and key.endswith(".json")
        ]
        return max(manifests, key=lambda manifest: manifest.step, default=None)

    def _say(self, found: Manifest) -> None:
        url = f"{self.store.url}/{self.stored.checkpoints(found.task)}{found.key}"
        checkpoint = Checkpoint(found.task, found.epoch, found.step, url, found.sha256, found.size, found.at)
        self.status = replace(self.status, checkpoint=checkpoint)

    def _progress(self, state: TaskState) -> None:
        tasks = []
        for task in self.job.tasks:
            epochs, done = int(task.config["epochs"]), self.epochs[task.name]
            steps = epochs * STEPS_PER_EPOCH
            progress = TaskProgress(done, epochs, done * STEPS_PER_EPOCH, steps, 16.0, loss=1.5, at=self._now())
            tasks.append(TaskStatus(task.name, state, 1, progress=progress))
        self.status = replace(self.status, tasks=tasks)

    def _enter(self, phase: Phase) -> None:
        self.status = replace(self.status, phase=phase, at=self._now())

    def _plan(self, seconds: float, action: Callable[[], None]) -> None:
        chapter = self._chapter
        self.clock.after(seconds, lambda: self._if_alive(lambda: action() if self._chapter == chapter else None))

    def _at(self, unix: float, action: Callable[[], None]) -> None:
        self.clock.at(unix - self.ahead - self.clock.start.timestamp(), lambda: self._if_alive(action))

    def _if_alive(self, action: Callable[[], None]) -> None:
        if self.alive:
            action()

    def _now(self) -> float:
        return self.clock.now().timestamp() + self.ahead
