"""Things that a run left, its heartbeat in a storage, and a sweeper over both."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

from fake_sweep import FakeSweep
from launcher_clock import START, FakeClock
from memory_object_store import FakeStore

from launcher.clouds import AWS
from launcher.interrupts import Interrupts
from launcher.providers.sweep import Found, Kind
from launcher.report import Update
from launcher.storage.interface import ObjectStore, StorageError
from launcher.sweep.looking import LocalRun, Scope, Sweep, Sweeper, look
from launcher.sweep.removing import Done, Result, remove_orphans
from pricing.sources.tables import load_offers, load_rates
from pricing.standing import StandingPrices
from remote.protocol import StoredRun

RUN = "20261201T040000-ab12-job"
"""Begun five hours before the clock of the tests starts."""
OTHER = "20261201T050000-cd34-other"
OUTPUT = "s3://bucket/runs"
REGION = "us-east-1"
_PREFIXES = {Kind.INSTANCE: "i", Kind.VOLUME: "vol", Kind.INTERFACE: "eni", Kind.SECURITY_GROUP: "sg"}
_USD = {Kind.INSTANCE: Decimal("4.80"), Kind.VOLUME: Decimal("0.26"), Kind.UPLOAD: Decimal("0.01")}


def hours(count: float) -> datetime:
    """So many hours after the start of the tests' clock; negative: before."""
    return START + timedelta(hours=count)


def thing(
    kind: Kind, run: str | None = RUN, *, deadline: datetime | None = None, number: int = 1, **more: object
) -> Found:
    """Something of a run, fully tagged but for the deadline."""
    found = Found(
        kind,
        f"{_PREFIXES.get(kind, kind.value.replace(' ', '-'))}-{run}-{number}",
        "" if kind in {Kind.UPLOAD, Kind.BUCKET} else REGION,
        run_id=run,
        lease_id=f"{run}-{number}",
        deadline=deadline,
        output=OUTPUT,
        usd_per_day=_USD.get(kind, Decimal(0)),
    )
    return replace(found, **more)  # type: ignore[arg-type]


def post(store: FakeStore, at: datetime, run: str = RUN, lease: int = 1) -> None:
    """The agent of a lease was heard."""
    key = StoredRun(run).posted_status(f"{run}-{lease}")
    store.objects[key] = json.dumps({"schema": 1, "at": at.timestamp(), "phase": "training"}).encode()


def beat(store: FakeStore, at: datetime, run: str = RUN, *, ended: bool = False) -> None:
    """The launcher of a run was heard."""
    said = {"schema": 1, "launcher": "laptop/4242", "place": "x", "at": at.timestamp(), "ended": ended}
    store.objects[StoredRun(run).launcher_beat] = json.dumps(said).encode()


@dataclass
class World:
    """An account, its storage, a clock, and a machine without any state of its own."""

    clock: FakeClock = field(default_factory=FakeClock)
    stores: dict[str, FakeStore] = field(default_factory=lambda: {OUTPUT: FakeStore(OUTPUT)})
    journals: dict[str, LocalRun] = field(default_factory=dict)
    told: list[Update] = field(default_factory=list)
    interrupts: Interrupts = field(default_factory=Interrupts)

    def __post_init__(self) -> None:
        self.cloud = FakeSweep(self.clock)

    @property
    def store(self) -> FakeStore:
        """The one at the usual place."""
        return self.stores[OUTPUT]

    @property
    def sweeper(self) -> Sweeper:
        """Everything behind its port."""
        prices = StandingPrices("aws", load_offers(), load_rates())
        local = self.journals
        return Sweeper(
            self.cloud,
            AWS,
            prices,
            self._store_for,
            lambda run: local.get(run, LocalRun()),
            self.clock,
            self.told.append,
        )

    def _store_for(self, url: str) -> ObjectStore:
        if url not in self.stores:
            raise StorageError(f"access to {url} is denied", hint="check the policy")
        return self.stores[url]

    def look(self, scope: Scope | None = None) -> Sweep:
        """What a dry run shows."""
        return look(self.sweeper, scope or Scope())

    def clean(self, sweep: Sweep | None = None) -> tuple[Done, ...]:
        """Remove the orphans of a sweep that is made now, or was made earlier."""
        return remove_orphans(sweep or self.look(), self.sweeper, self.interrupts)


def reasons(sweep: Sweep) -> dict[str, str]:
    """What becomes of each thing, by id: `remove: ...` or `keep: ...`."""
    return {one.found.id: f"{one.verdict.action}: {one.verdict.reason}" for one in sweep.items}


def orphans(sweep: Sweep) -> set[str]:
    """Ids of what would be removed."""
    return {one.found.id for one in sweep.orphans}


def results(done: tuple[Done, ...]) -> dict[str, Result]:
    """What became of each orphan, by id."""
    assert len({one.found.id for one in done}) == len(done), "one result for each"
    return {one.found.id: one.result for one in done}
