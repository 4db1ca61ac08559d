"""The words for an instance that the hypervisor and EC2's records share: states, causes of an end, a launch. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol


class State(Enum):
    """The states of an instance, with their codes in the API."""

    PENDING = 0
    RUNNING = 16
    SHUTTING_DOWN = 32
    TERMINATED = 48
    STOPPING = 64
    STOPPED = 80

    @property
    def label(self) -> str:
        """As the API writes it."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an instance ends, as the API writes it. Source of the codes: the API model of StateReason."""

    code: str
    text: str
    transition: str
    spot_status: str

    def transition_at(self, moment: datetime) -> str:
        """`StateTransitionReason`."""
        return self.transition.format(time=moment.strftime("%Y-%m-%d %H:%M:%S GMT"))


BY_USER = Cause(
    "Client.UserInitiatedShutdown", "User initiated shutdown", "User initiated ({time})", "instance-terminated-by-user"
)
FROM_INSIDE = Cause(
    "Client.InstanceInitiatedShutdown", "Instance initiated shutdown", "", "instance-terminated-by-user"
)
INTERRUPTED = Cause(
    "Server.SpotInstanceTermination",
    "Spot instance termination",
    "Server.SpotInstanceTermination",
    "instance-terminated-no-capacity",
)
LOST = Cause("Server.InternalError", "Internal error on launch or host failure", "Server.InternalError", "system-error")


@dataclass(frozen=True, slots=True)
class Launch:
    """What the hypervisor has to know of an instance."""

    instance_id: str
    instance_type: str
    image_id: str
    region: str
    zone: str
    market: str
    private_address: str
    public_key: str
    role: str | None
    user_data: bytes


class Guests(Protocol):
    """Who is told of every change that a caller of the API brings about."""

    def launched(self, launch: Launch) -> None:
        """A new instance: pending."""

    def started(self, instance_id: str) -> None:
        """A stopped one shall boot again."""

    def rebooted(self, instance_id: str) -> None:
        """A running one shall shut down and boot at once, as itself."""

    def ended(self, instance_id: str, final: State) -> None:
        """A caller stopped or terminated it; `final` is STOPPED or TERMINATED."""
