"""An account in memory behind the sweep port: machines that take their time to go, things that hold each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from launcher_clock import FakeClock

from launcher.providers.interface import RefusedError, UnreachableError
from launcher.providers.sweep import ENDING, Found, Gap, InUseError, Kind, Listing

HELD = frozenset({Kind.VOLUME, Kind.INTERFACE, Kind.SECURITY_GROUP})
"""Cannot be removed while a machine of their run is there."""


@dataclass
class FakeSweep:
    """A `ResourceSweep`. Times are seconds of the clock."""

    clock: FakeClock
    things: list[Found] = field(default_factory=list)
    enabled: list[str] = field(default_factory=lambda: ["eu-west-1", "us-east-1"])
    end_seconds: float = 40
    """From the first call that ends a machine until it is gone."""
    with_machines: set[str] = field(default_factory=set)
    """Ids of disks and interfaces that go with the machines of their run."""
    stuck: set[str] = field(default_factory=set)
    """Asked for, and never gone."""
    refused: set[str] = field(default_factory=set)
    dark: dict[str, str] = field(default_factory=dict)
    """Regions and prefixes of which nothing can be listed, with the reason."""
    lost_answers: int = 0
    """So many removals take effect, and their answer is lost."""
    asked: list[str] = field(default_factory=list)
    """Ids in the order of the removals asked for, each time."""
    before_call: Callable[[str], None] = lambda _name: None
    _ends: dict[str, float] = field(default_factory=dict)

    def add(self, *found: Found) -> None:
        """More things."""
        self.things += found

    def ids(self) -> set[str]:
        """What is there."""
        return {one.id for one in self._there()}

    # -- the port -----------------------------------------------------------------------------------------------------

    def regions(self) -> list[str]:
        self.before_call("regions")
        return list(self.enabled)

    def find(self, region: str, run_id: str | None = None) -> Listing:
        self.before_call("find")
        if region in self.dark:
            return Listing((), (Gap(region, "instances", self.dark[region]),))
        return self._listing(lambda one: one.region == region, run_id)

    def uploads(self, output: str, run_id: str | None = None) -> Listing:
        self.before_call("uploads")
        if output in self.dark:
            return Listing((), (Gap(output, "unfinished uploads", self.dark[output]),))
        return self._listing(lambda one: one.kind is Kind.UPLOAD and one.output == output, run_id)

    def remove(self, found: Found) -> bool:
        self.before_call("remove")
        self.asked.append(found.id)
        if found.kind is Kind.BUCKET or found.id in self.refused:
            raise RefusedError(f"{found.id} may not be removed", hint="grant it")
        if found.id not in self.ids():
            return True
        self._refuse_if_held(found)
        gone = self._remove(found)
        if self.lost_answers:
            self.lost_answers -= 1
            raise UnreachableError("connection reset")
        return gone

    # -- behaviour ----------------------------------------------------------------------------------------------------

    def _listing(self, wanted: Callable[[Found], bool], run_id: str | None) -> Listing:
        found = [one for one in self._there() if wanted(one) and run_id in {None, one.run_id}]
        return Listing(tuple(found))

    def _there(self) -> list[Found]:
        """What is there by now; what is on its way out says so."""
        gone = {id_ for id_, end in self._ends.items() if end <= self.clock.elapsed and id_ not in self.stuck}
        machines = {one.run_id for one in self.things if one.kind is Kind.INSTANCE and one.id not in gone}
        self.things = [
            one
            for one in self.things
            if one.id not in gone and not (one.id in self.with_machines and one.run_id not in machines)
        ]
        return [replace(one, state=ENDING) if one.id in self._ends else one for one in self.things]

    def _refuse_if_held(self, found: Found) -> None:
        holders = [one.id for one in self._there() if one.kind is Kind.INSTANCE and one.run_id == found.run_id]
        if found.kind in HELD and holders:
            raise InUseError(f"{found.id} is held by {holders[0]}")

    def _remove(self, found: Found) -> bool:
        delay = self.end_seconds if found.kind is Kind.INSTANCE else 0
        self._ends.setdefault(found.id, self.clock.elapsed + delay)
        return found.id not in self.ids()
