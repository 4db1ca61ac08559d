"""The sweep port: whatever carries gpucost's tags in an account, of any run and made by any launcher, and its removal.

Finds and removes; what is to be removed is decided by `launcher.sweep.verdicts`. Every call may be made twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol

ENDING = "ending"
"""State of what is on its way out already."""


class Kind(StrEnum):
    """What can be left behind, in the order in which it is removed."""

    INSTANCE = "instance"
    SPOT_REQUEST = "spot request"
    VOLUME = "volume"
    INTERFACE = "interface"
    SCHEDULE = "schedule"
    KEY_PAIR = "key pair"
    SECURITY_GROUP = "security group"
    LAUNCH_TEMPLATE = "launch template"
    UPLOAD = "upload"
    """Parts of an object that was never completed: billed like an object, and in no listing of objects."""
    BUCKET = "bucket"
    """A prefix that holds checkpoints and results."""


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that is there."""

    kind: Kind
    id: str
    region: str
    """Empty for what is in the object storage."""
    run_id: str | None = None
    """As the tag has it, whether or not it can be read as one."""
    lease_id: str | None = None
    deadline: datetime | None = None
    """From the tag; None where there is none that can be read."""
    output: str | None = None
    """Where the objects of its run are, `s3://bucket/prefix`."""
    state: str = ""
    """In the provider's words, or `ENDING`."""
    usd_per_day: Decimal | None = None
    """What it costs by itself; None: nobody knows, which is not 0."""
    made_at: datetime | None = None
    note: str = ""
    handle: str = ""
    """What the provider needs beside the id to remove it."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The same thing at another time has the same."""
        return (self.kind, self.region, self.id, self.handle)

    @property
    def may_bill(self) -> bool:
        """Whether something is paid for, or can be at any moment, as long as this is there."""
        starts = self.kind in {Kind.INSTANCE, Kind.SPOT_REQUEST}
        return starts or self.usd_per_day is None or self.usd_per_day > 0


@dataclass(frozen=True, slots=True)
class Gap:
    """What could not be looked at: the listing is not complete."""

    where: str
    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """An answer with what is missing from it."""

    found: tuple[Found, ...] = ()
    gaps: tuple[Gap, ...] = ()


def joined(listings: Iterable[Listing]) -> Listing:
    """Several answers as one."""
    known = list(listings)
    found = (one for listing in known for one in listing.found)
    return Listing(tuple(found), tuple(gap for listing in known for gap in listing.gaps))


class InUseError(Exception):
    """Something else still needs it, perhaps not for long: ask again."""


class ResourceSweep(Protocol):
    """Everything of one account."""

    def regions(self) -> list[str]:
        """The regions that are enabled. Raises RefusedError, UnreachableError."""

    def find(self, region: str, run_id: str | None = None) -> Listing:
        """Everything of this region that is tagged with a run (with this one, if named). Raises nothing: see `gaps`."""

    def uploads(self, output: str, run_id: str | None = None) -> Listing:
        """Unfinished uploads below a storage prefix (of this run alone, if named). Raises nothing: see `gaps`."""

    def remove(self, found: Found) -> bool:
        """Ask for the end; True once the provider says that it is gone, which it also says of what never was there.

        Raises InUseError, RefusedError, UnreachableError.
        """
