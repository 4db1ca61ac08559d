"""Events and runs for the tests of the launcher's pure parts: one of each kind, and a way to each state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from pricing_cases import RATES, T4_SMALL, WORKLOAD

from launcher import events
from launcher import run as table
from launcher.events import DeadlineBasis, Estimate, Event, Lease, Outcome, Selection, SyncedCheckpoint
from launcher.jobspec import parse
from launcher.run import Run, State
from pricing.cost import PriceChange
from pricing.ledger import EndedBy, LeaseInterval, LedgerEntry, ledger_entry
from pricing.offers import CapacityType, Offer

NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
RUN_ID = "20261201T090000-ab12-job"
OFFER = Offer(T4_SMALL, "us-east-1", "use1-az1", CapacityType.SPOT, Decimal("0.20"), "2026-11-15", "test table")
ESTIMATE = Estimate(Decimal("0.10"), Decimal("0.08"), Decimal("0.15"), 1800.0, 1500.0, 2400.0, "test")
SELECTION = Selection(OFFER, ESTIMATE)
ELSEWHERE = replace(SELECTION, offer=replace(OFFER, region="us-west-2", zone="usw2-az1"))
JOB = parse(
    {
        "name": "job",
        "data": "s3://bucket/data.tar",
        "images": 1000,
        "output": "s3://bucket/runs",
        "budget": "5",
    },
    {},
    "test",
).model_dump(mode="json")


def later(seconds: float) -> datetime:
    """So many seconds after the run was opened."""
    return NOW + timedelta(seconds=seconds)


def opened(**changes: object) -> events.RunOpened:
    """The first record of a run."""
    record = events.RunOpened(
        at=NOW,
        run_id=RUN_ID,
        name="job",
        cloud="aws",
        job=JOB,
        workload=WORKLOAD,
        budget_usd=Decimal(5),
        ends_by=None,
        storage_url="s3://bucket/runs",
        data_url="s3://bucket/data.tar",
        results_dir="/nowhere/runs/job",
        selection=SELECTION,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def lease(number: int = 1, **changes: object) -> Lease:
    """The lease of one machine, as it is when it is asked for."""
    made = Lease(
        f"{RUN_ID}-{number}", f"token{number}", SELECTION, later(3600), DeadlineBasis.BUDGET, 100, later(60 * number)
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def launch(number: int = 1, **changes: object) -> events.LaunchRequested:
    """The intent to launch."""
    return events.LaunchRequested(
        at=later(60 * number),
        lease=lease(number, **changes),
        data_url="s3://bucket/data.tar",
        data_sha256=None,
        data_files=None,
    )


def entry(number: int = 1, seconds: float = 600, ended_by: EndedBy = EndedBy.US) -> LedgerEntry:
    """What a lease cost."""
    interval = LeaseInterval(f"{RUN_ID}-{number}", RUN_ID, later(100), later(100 + seconds), ended_by)
    return ledger_entry(OFFER, interval, 100, RATES, estimate_usd=ESTIMATE.usd)


def checkpoint(epoch: int, task: str = "job") -> SyncedCheckpoint:
    """A checkpoint in the storage."""
    key = f"s3://bucket/runs/{RUN_ID}/tasks/{task}/checkpoints/{epoch:010d}-abcdef01.pt"
    return SyncedCheckpoint(task, epoch, epoch * 10, key, "ab" * 32, 1000)


SAMPLES: dict[type[Event], Event] = {
    type(event): event
    for event in (
        opened(),
        launch(),
        events.InstanceCreated(at=later(70), instance_id="i-1"),
        events.Claimed(at=later(65), launcher="laptop/4242"),
        events.LimitsChanged(at=later(66), budget_usd=Decimal(7), ends_by=later(90_000)),
        events.CloudStopArmed(at=later(71), until=later(3660), message=""),
        events.PriceChanged(at=later(250), change=PriceChange(later(250), Decimal("0.25"))),
        events.Abandoned(at=later(90), message="there is no key to this machine here"),
        events.InstanceReady(at=later(100), address="198.51.100.1", host_key="ssh-ed25519 K", running_since=later(80)),
        events.DataStaged(at=later(130)),
        events.CheckpointSynced(at=later(200), checkpoint=checkpoint(1)),
        events.TrainingExited(at=later(400), reason="completed", exit_code=None, message=""),
        events.ArtifactsSynced(at=later(410), files=3),
        events.CapacityRefused(at=later(75), message="none left"),
        events.Preempted(at=later(300), message="taken back"),
        events.StepFailed(at=later(300), message="it broke", hint="mend it", outcome=Outcome.FAILED),
        events.Cancelled(at=later(300), message="interrupted (SIGINT)"),
        events.LeaseClosed(at=later(500), entry=entry()),
        events.Replanned(at=later(501), selection=ELSEWHERE, message="taken back"),
        events.Settled(at=later(502), outcome=Outcome.DONE, message=""),
        events.Reopened(at=later(900), budget_usd=Decimal(9), ends_by=None, selection=ELSEWHERE),
    )
}

STRAIGHT: tuple[Event, ...] = tuple(
    SAMPLES[kind]
    for kind in (
        events.RunOpened,
        events.LaunchRequested,
        events.InstanceCreated,
        events.InstanceReady,
        events.DataStaged,
        events.TrainingExited,
        events.ArtifactsSynced,
        events.LeaseClosed,
        events.Settled,
    )
)
_LINES_TO = {
    State.PLANNED: 1,
    State.PROVISIONING: 2,
    State.STAGING: 4,
    State.TRAINING: 5,
    State.SYNCING: 6,
    State.STOPPING: 7,
    State.SETTLED: 9,
}


def fold(history: Iterable[Event]) -> Run:
    """The run after a history."""
    first, *others = history
    assert isinstance(first, events.RunOpened)
    run = table.opened(first)
    for event in others:
        run = table.advance(run, event)
    return run


def run_in(state: State, **changes: object) -> Run:
    """A run in this state, by the straight way; an open lease wherever one may be open."""
    return fold([opened(**changes), *STRAIGHT[1 : _LINES_TO[state]]])
