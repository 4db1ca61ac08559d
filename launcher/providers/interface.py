"""The provider port: paid machines in our words. Vendor types and vendor errors stop at the adapters.

Every call may be made twice. `launch` with the same token makes one machine; `terminate` of what is gone succeeds;
an empty `find` proves nothing until the grace period of the provider is over, since clouds answer late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from pricing.cost import PriceChange
from pricing.offers import Offer


class InstanceState(StrEnum):
    """What the provider says of a machine."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    """On its way out; may still be billed."""
    STOPPED = "stopped"
    """Off, but its disk is billed: not gone."""
    GONE = "gone"
    """Terminated, or unknown to the provider after the grace period."""


class EndCause(StrEnum):
    """Who ended a machine, as far as the provider says."""

    UNKNOWN = "unknown"
    PROVIDER = "provider"
    """Preempted, or lost by the provider."""
    INSIDE = "inside"
    """It powered itself off."""
    USER = "user"
    """Somebody with access to the account, us included."""


@dataclass(frozen=True, slots=True)
class InstanceRef:
    """One machine's name at its provider."""

    region: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything a launch needs."""

    run_id: str
    lease_id: str
    token: str
    offer: Offer
    disk_gib: int
    user_data: str
    deadline: datetime
    """When the machine must be off. A cloud that takes such a time in its create call is given it."""
    ssh_public_key: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One answer about one machine."""

    ref: InstanceRef
    state: InstanceState
    lease_id: str | None
    """From its tag."""
    address: str | None = None
    host_key: str | None = None
    """`ssh-ed25519 AAAA...`, as the machine printed it on its console; None until it has."""
    launched_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str = ""
    """Why it ended, in the provider's words."""
    ended_by: EndCause = EndCause.UNKNOWN
    console_tail: str = ""
    """Last lines of the console while the machine is not reachable yet."""


class CapacityError(Exception):
    """No such machine for us now, here: no capacity, or the quota is used up. Another offer may do."""


class QuotaError(CapacityError):
    """A quota of the account: the same family of machines, in this region and market, will not do either."""


class RefusedError(Exception):
    """The provider refuses whatever the offer: permission, credentials, account. `hint` says what to change."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class CredentialsError(RefusedError):
    """The credentials do not work, or no longer: they may end while a machine runs, and its other stops hold."""


class AskedBefore(RefusedError):
    """The token of a launch was used with another request: that one makes, or has made, the machine. Look for it."""


class UnreachableError(Exception):
    """The provider cannot be reached or fails by itself; nothing is known. Ask again."""


class ComputeProvider(Protocol):
    """Launch, look, end. All methods may raise RefusedError and UnreachableError."""

    def launch(self, request: LaunchRequest) -> InstanceRef:
        """Make the machine, tagged in the same call, ended by its own power-off.

        Also raises CapacityError, AskedBefore.
        """

    def describe(self, ref: InstanceRef) -> InstanceStatus:
        """What the provider says now; GONE for a machine that it does not know."""

    def find(self, run_id: str, region: str) -> list[InstanceStatus]:
        """All machines of a run that may cost something."""

    def terminate(self, ref: InstanceRef) -> None:
        """Ask for the end; returns at once."""

    def clean_up(self, run_id: str, region: str) -> None:
        """Delete what was made beside the machines: key pairs, security group. What is still in use is left."""


class CloudTimer(Protocol):
    """The stop that the cloud itself holds: it ends a machine at a time, whatever became of everybody else.

    Both methods may raise RefusedError (not permitted: the run goes on without this stop) and UnreachableError.
    """

    @property
    def name(self) -> str:
        """What holds the stop, in the cloud's words."""

    def arm(self, ref: InstanceRef, lease_id: str, deadline: datetime) -> datetime:
        """End the machine at `deadline`; when it will happen at the latest. Twice for one lease is once."""

    def disarm(self, lease_id: str, region: str) -> None:
        """The machine is gone: take the stop back. What is not there any more is no error."""


class PriceFeed(Protocol):
    """What a machine costs, where that changes while it runs."""

    def changes(self, offer: Offer, since: datetime) -> tuple[PriceChange, ...]:
        """The price in force at `since`, as a change of that moment, and each later one, by time.

        Empty where it cannot change or nobody knows. Raises RefusedError, UnreachableError.
        """
