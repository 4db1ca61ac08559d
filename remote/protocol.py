"""What the launcher and the machine say to each other: records in files, and their schema.

Owns the records; where they lie is in `remote.names`. Standard library only and Python 3.10:
the agent runs on the machine's own interpreter. Knows nothing of clouds, SSH, prices or the trainer's insides.

Times are Unix seconds (UTC) as floats; sizes are bytes. Every file appears whole (temporary name, fsync, rename) and
carries `schema`; a reader refuses a version it does not know and names both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from remote.names import LeasePaths as LeasePaths
from remote.names import StoredRun as StoredRun
from remote.names import TaskPaths as TaskPaths
from remote.records import SCHEMA as SCHEMA
from remote.records import Amount as Amount
from remote.records import Moment as Moment
from remote.records import ProtocolError as ProtocolError
from remote.records import Words as Words
from remote.records import decode as decode
from remote.records import encode as encode
from remote.records import printable as printable
from remote.records import read as read
from remote.records import write as write
from remote.records import write_text as write_text

EXIT_DONE = 0
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 75
"""The trainer was asked to stop, wrote a checkpoint at a step boundary and can be resumed (sysexits' EX_TEMPFAIL)."""


class Phase(str, Enum):
    """Where the agent is. It only moves forward."""

    STARTING = "starting"
    STAGING = "staging"
    TRAINING = "training"
    SYNCING = "syncing"
    ENDED = "ended"


class Reason(str, Enum):
    """Why the agent stopped training."""

    COMPLETED = "completed"
    TRAINER_FAILED = "trainer-failed"
    STAGING_FAILED = "staging-failed"
    SYNC_FAILED = "sync-failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    DEADLINE = "deadline"
    BUDGET = "budget"
    STALLED = "stalled"


class TaskState(str, Enum):
    """One training of the run."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True)
class StorageSpec:
    """Where results go and data comes from: an object-storage prefix, reached by role or by a 0600 file."""

    url: str
    """`s3://bucket/prefix`, no slash at the end; everything of the run lies under `url/RUN_ID/`."""
    region: str
    endpoint_url: str | None = None
    credentials: str = "role"
    """`role`: the machine's own; `file`: `LeasePaths.credentials`, mode 0600, in AWS shared-credentials form."""


@dataclass(frozen=True)
class DataSpec:
    """The data set to stage."""

    url: str
    """One `.zip`, `.tar`, `.tar.gz` object, or a prefix that ends in a slash."""
    sha256: str | None = None
    """Of the one object, where the launcher knows it."""
    size: int | None = None
    files: int | None = None
    """How many pictures must be there before training starts."""


@dataclass(frozen=True)
class PricePoint:
    """From `since` on, the machine with everything that is billed by its time costs this much."""

    since: Moment
    """Unix seconds."""
    usd_per_hour: float


@dataclass(frozen=True)
class Budget:
    """What would have to be paid if the machine ended at a time, as the launcher's sum put into numbers.

    owed(t) = fixed_usd + the integral of the prices from the first point to t + stop_seconds. Training stops before
    owed passes `cap_usd`.
    """

    cap_usd: float
    fixed_usd: float
    """Owed whatever happens now: closed leases, transfers, the last upload, objects that are kept."""
    points: list[PricePoint]
    """By time; never empty. A price holds until the next point."""
    stop_seconds: float
    """From a stop to the end of billing, at worst."""
    schema: int = SCHEMA


@dataclass(frozen=True)
class TaskSpec:
    """One training: its name and the trainer's configuration (the trainer checks it; paths are added by the agent)."""

    name: str
    config: dict[str, Any]
    world_size: int = 1


@dataclass(frozen=True)
class AgentJob:
    """Everything the agent needs, in one file and without a secret. Written by the launcher before the agent starts."""

    run_id: str
    lease_id: str
    deadline: Moment
    """The machine is off by then, whatever happens."""
    python: list[str]
    """argv prefix of the training environment's interpreter."""
    storage: StorageSpec
    data: DataSpec
    tasks: list[TaskSpec]
    poweroff: list[str]
    """argv that ends the machine, tried until it does."""
    launched_at: Moment = 0.0
    """When the machine began to run, by the launcher's clock: no clock of the machine may say less."""
    concurrent: int = 1
    """How many tasks share the machine at a time."""
    metadata_base: str | None = None
    """Base URL of the cloud's metadata service, to see a preemption notice; none: no notices."""
    save_reserve_seconds: float = 90.0
    """Training stops this long before the deadline, so that the last save and upload are inside it."""
    linger_seconds: float = 180.0
    """How long after the final upload the machine waits for a launcher that shows itself."""
    stall_floor_seconds: float = 600.0
    """No step for max(this, 20 median steps) is a stall."""
    resume: bool = True
    """Look for checkpoints of this run in the storage before training."""
    beat_seconds: float = 1.0
    """Between two writes of the status, and two looks for reasons to stop."""
    gpus: int = 0
    """How many GPUs `nvidia-smi -L` must list before anything is staged; 0: none are looked for."""
    disk_gib: float = 0.0
    """How big the disk under the lease folder must be, as it was ordered; 0: not checked."""
    budget: Budget | None = None
    """The cap of the run as a function of time; none: there is no cap."""
    post_seconds: float = 60.0
    """Between two copies of the status to the storage, and two looks there for a command."""
    schema: int = SCHEMA


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose manifest is in the storage: the object was complete before it."""

    task: Words
    epoch: int
    """Epochs finished."""
    step: int
    key: str
    """Full URL of the object."""
    sha256: str
    size: int
    at: Moment


@dataclass(frozen=True)
class TaskProgress:
    """`progress.json` in a task's folder, replaced by the trainer about once a second."""

    epoch: int
    """Epochs finished."""
    epochs: int
    step: int
    """Optimiser steps and micro-batches count alike: batches finished since the start of the training."""
    steps: int
    images_per_second: float
    loss: float | None = None
    map50: float | None = None
    map50_95: float | None = None
    best_map50_95: float | None = None
    peak_memory_gib: float | None = None
    resumed_step: int | None = None
    """Step of the checkpoint that this attempt began with; none: it began with the first step."""
    saved_step: int | None = None
    """Step of the checkpoint that `last.pt` is as this is written; none: the trainer does not tell."""
    saved_epoch: int | None = None
    """Epochs finished in that checkpoint."""
    checkpoint_seconds: Amount | None = None
    """Between two checkpoints, as the trainer chose it from the hazard and its own measured saving time."""
    at: Moment = 0.0
    schema: int = SCHEMA


@dataclass(frozen=True)
class TaskStatus:
    """What the agent knows of one task."""

    name: Words
    state: TaskState = TaskState.WAITING
    attempts: int = 0
    exit_code: int | None = None
    """The trainer's own; negative: ended by that signal."""
    message: Words = ""
    progress: TaskProgress | None = None


@dataclass(frozen=True)
class AgentStatus:
    """`status.json`: replaced whole at each beat; also uploaded at the end as `leases/LEASE_ID/outcome.json`."""

    run_id: str
    lease_id: str
    phase: Phase
    at: Moment
    """The beat: when this file was written."""
    started_at: Moment
    pid: int
    tasks: list[TaskStatus] = field(default_factory=list)
    notice: dict[str, Words] | None = None
    """The preemption notice as the metadata service gave it: `action` and `time`."""
    rebalance: Words | None = None
    """When the provider said that a preemption has become likely; training goes on."""
    checkpoint: Checkpoint | None = None
    """The newest one of a task in the storage; the tasks are named in turn."""
    uploaded_bytes: int = 0
    """Sent to the storage so far, by all programs of this lease."""
    downloaded_bytes: int = 0
    """Fetched from it."""
    reason: Reason | None = None
    message: Words = ""
    phase_seconds: dict[str, Amount] = field(default_factory=dict)
    """How long each finished phase took."""
    schema: int = SCHEMA


@dataclass(frozen=True)
class StopCommand:
    """`command.json`, launcher to agent: stop training with a checkpoint, sync, end."""

    reason: Reason
    at: Moment
    schema: int = SCHEMA


@dataclass(frozen=True)
class TransferOutcome:
    """What the transfer program renews while it works: `transfer/stage.json` and `transfer/sync.json`."""

    ok: bool
    message: Words = ""
    final: bool = False
    """Nothing more will come: staging is done, or the final sync is."""
    bytes: int = 0
    files: int = 0
    checkpoint: Checkpoint | None = None
    data: str | None = None
    """Folder of the staged data set; of staging only."""
    restored: dict[str, int] = field(default_factory=dict)
    """Step of the checkpoint that was put in place, by task; of staging only."""
    at: Moment = 0.0
    schema: int = SCHEMA


@dataclass(frozen=True)
class ArtifactFile:
    """One final file of a task, named as below `StoredRun.artifact(task, "")`."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class ArtifactList:
    """`artifacts.json` of one task: written after every file that it names."""

    task: Words
    files: list[ArtifactFile]
    at: Moment
    schema: int = SCHEMA


@dataclass(frozen=True)
class Manifest:
    """The commit point of one checkpoint in the storage, written after its object."""

    task: Words
    epoch: int
    step: int
    key: str
    """Name of the object, relative to the folder of the manifest."""
    sha256: str
    size: int
    at: Moment
    schema: int = SCHEMA
