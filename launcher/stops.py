"""The stops of a machine in words: which of the four are armed, which not and why, and until when. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from launcher.events import Lease
from remote.protocol import AgentStatus, Phase


@dataclass(frozen=True, slots=True)
class Stop:
    """One of the four ways by which a machine ends."""

    name: str
    armed: bool
    why: str = ""
    """Why it is not armed."""
    until: datetime | None = None
    """When it ends the machine by itself; the launcher does so when it is told, or the run is over."""


def stops_of(lease: Lease, status: AgentStatus | None, *, driven: bool, cloud_said: str = "") -> tuple[Stop, ...]:
    """The four stops of a lease's machine, as far as is known. `cloud_said`: why the cloud holds none."""
    deadline = lease.deadline
    heard = status is not None and status.lease_id == lease.lease_id
    ended = heard and status is not None and status.phase is Phase.ENDED
    launched = lease.instance_id is not None
    agent = "it has ended" if ended else "not heard of yet"
    cloud = cloud_said or ("not armed" if lease.cloud_stop_asked else "not asked yet")
    return (
        Stop("launcher", driven, "" if driven else "nobody drives the run"),
        Stop("agent", heard and not ended, "" if heard and not ended else agent, deadline),
        Stop("machine timer", launched, "" if launched else "no machine yet", deadline),
        Stop(
            "cloud schedule", lease.cloud_stop_at is not None, "" if lease.cloud_stop_at else cloud, lease.cloud_stop_at
        ),
    )


def show_stops(stops: Sequence[Stop], off_by: datetime) -> str:
    """`3 of 4 stops armed: launcher, agent, machine timer; off by 21:40 UTC; NOT the cloud schedule: no such role`."""
    armed = [stop.name for stop in stops if stop.armed]
    missing = "".join(f"; NOT the {stop.name}: {stop.why}" for stop in stops if not stop.armed)
    named = f": {', '.join(armed)}" if armed else ""
    return f"{len(armed)} of {len(stops)} stops armed{named}; off by {off_by:%F %T} UTC{missing}"
