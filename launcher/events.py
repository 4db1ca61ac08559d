"""What happens to a run, as values: the records of the journal and what they carry. Frozen, without behaviour.

What they do to a run is in `launcher.run`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from pricing.cost import CostLine, PriceChange
from pricing.extras import NO_TRAFFIC, Traffic
from pricing.ledger import LedgerEntry
from pricing.offers import Offer
from pricing.workload import Workload


class Outcome(StrEnum):
    """Why a run ended."""

    DONE = "done"
    BUDGET = "budget"
    DEADLINE = "deadline"
    REFUSED = "refused"
    FAILED = "failed"
    CANCELLED = "cancelled"


class DeadlineBasis(StrEnum):
    """Which of the three limits set a lease's deadline."""

    BUDGET = "budget"
    USER = "deadline"
    ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the plan promised for one lease."""

    usd: Decimal
    usd_low: Decimal
    usd_high: Decimal
    seconds: float
    seconds_low: float
    seconds_high: float
    basis: str
    """Where the throughput comes from, in words."""
    traffic: Traffic = NO_TRAFFIC
    """What the machine moves between itself and the bucket, as far as the plan knows."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What the planner chose for the next lease."""

    offer: Offer
    estimate: Estimate
    concurrent: int = 1
    world_size: int = 1
    batch: int = 16


@dataclass(frozen=True, slots=True)
class Lease:
    """One paid machine, from `LaunchRequested` until it is confirmed gone."""

    lease_id: str
    token: str
    """Idempotency token of the launch call: a digest of run, attempt, zone, type and market."""
    selection: Selection
    deadline: datetime
    deadline_basis: DeadlineBasis
    disk_gib: int
    requested_at: datetime
    instance_id: str | None = None
    address: str | None = None
    host_key: str | None = None
    running_since: datetime | None = None
    cloud_stop_asked: bool = False
    """The cloud was asked to hold a stop, whatever it answered."""
    cloud_stop_at: datetime | None = None
    """When the cloud itself ends the machine; None: no such stop is armed."""
    prices: tuple[PriceChange, ...] = ()
    """Changes of the machine's price after the launch, by time."""


@dataclass(frozen=True, slots=True)
class SyncedCheckpoint:
    """A checkpoint that is complete in the object storage."""

    task: str
    epoch: int
    step: int
    key: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """An offer that was refused or taken away, and when: replanning leaves it out for a while."""

    offer_key: str
    at: datetime
    reason: str
    quota: bool = False
    """The account's quota is used up: the whole family, in this region and market, is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a run, as the journal keeps it."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOpened(Event):
    """The first record: everything a later process needs to go on without the job file."""

    run_id: str
    name: str
    cloud: str
    job: dict[str, Any]
    """The validated job as JSON values; without a secret."""
    workload: Workload
    budget_usd: Decimal | None
    ends_by: datetime | None
    """The user's deadline."""
    storage_url: str
    data_url: str | None
    """Where the data already is; none: a local folder that is packed and put there first."""
    results_dir: str
    selection: Selection
    storage_region: str | None = None
    """Where the bucket is: transfers between regions are billed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed(Event):
    """From here on this launcher drives the run; every other one steps back when it meets this record."""

    launcher: str
    """Host and process, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsChanged(Event):
    """The user gave an unfinished run another budget or deadline. Both hold at once."""

    budget_usd: Decimal | None
    ends_by: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequested(Event):
    """From here on a machine may exist."""

    lease: Lease
    data_url: str
    data_sha256: str | None
    data_files: int | None
    data_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceCreated(Event):
    """The provider answered with an id."""

    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudStopArmed(Event):
    """The cloud holds a stop for this machine, or does not: `until` is None, and `message` says why."""

    until: datetime | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChanged(Event):
    """The provider charges another price for the machine from now on."""

    change: PriceChange


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReady(Event):
    """The machine runs, its host key is known and it lets us in."""

    address: str
    host_key: str
    running_since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DataStaged(Event):
    """The agent has the data and starts to train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSynced(Event):
    """One more checkpoint survives the machine."""

    checkpoint: SyncedCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingExited(Event):
    """The agent trains no more; `reason` is one of `remote.protocol.Reason`."""

    reason: str
    exit_code: int | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactsSynced(Event):
    """Best weights and results are in the storage."""

    files: int
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRefused(Event):
    """The provider has no such machine for us now: capacity or quota."""

    message: str
    quota: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted(Event):
    """The provider takes the machine away, or has taken it."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned(Event):
    """This machine is of no use and is given up; another one of the same kind may do."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed(Event):
    """A step gave up. `outcome` is what the run will be called if nothing else is tried."""

    message: str
    hint: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Event):
    """The user, or the machine under the launcher, asked to stop."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseClosed(Event):
    """The provider confirms that the machine is gone (or never was); what it cost."""

    entry: LedgerEntry | None
    """None: no machine ever ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned(Event):
    """The run goes on with another machine."""

    selection: Selection
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Event):
    """The end."""

    outcome: Outcome
    message: str
    exit_code: int | None = None
    """The trainer's own code, or minus its signal, where training failed."""
    collected: bool = True
    """The results were copied to the user's folder, as far as there are any."""
    storage: tuple[CostLine, ...] = ()
    """What the objects of the run cost beside its machines: requests, and 30 days of what is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened(Event):
    """A settled run is taken up again from its checkpoints, with a new budget or deadline."""

    budget_usd: Decimal | None
    ends_by: datetime | None
    selection: Selection
    lost: tuple[str, ...] = ()
    """Tasks whose checkpoint is no longer in the storage: they begin again."""
