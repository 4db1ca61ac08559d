"""The stops of a machine in words: which of the four are armed, which not and why, and until when. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from launcher.events import Lease
from launcher.units import show_duration
from remote.protocol import AgentStatus, Phase

FRESH_SECONDS = 600
"""An agent speaks once a minute at least; one that was silent for so long is not counted on."""


@dataclass(frozen=True, slots=True)
class Stop:
    """One of the four ways by which a machine ends."""

    name: str
    armed: bool
    why: str = ""
    """Why it is not armed."""
    until: datetime | None = None
    """When it ends the machine by itself; the launcher does so when it is told, or the run is over."""


def stops_of(
    lease: Lease, status: AgentStatus | None, now: datetime, *, driven: bool, cloud_said: str = ""
) -> tuple[Stop, ...]:
    """The four stops of a lease's machine, as far as is known. `cloud_said`: why the cloud holds none."""
    return _stops(lease, "" if driven else "nobody drives the run", _agent_missing(lease, status, now), cloud_said)


def stops_while_training(lease: Lease) -> tuple[Stop, ...]:
    """The same for whoever drives the run, once its agent has begun to train."""
    return _stops(lease, "", "", "")


def _stops(lease: Lease, launcher: str, agent: str, cloud_said: str) -> tuple[Stop, ...]:
    """Each with the reason why it is not armed, or none."""
    timer = "" if lease.instance_id is not None else "no machine yet"
    cloud = cloud_said or ("the cloud refused" if lease.cloud_stop_asked else "not asked yet")
    return (
        Stop("launcher", not launcher, launcher),
        Stop("agent", not agent, agent, lease.deadline),
        Stop("machine timer", not timer, timer, lease.deadline),
        Stop("cloud schedule", bool(lease.cloud_stop_at), "" if lease.cloud_stop_at else cloud, lease.cloud_stop_at),
    )


def _agent_missing(lease: Lease, status: AgentStatus | None, now: datetime) -> str:
    if status is None or status.lease_id != lease.lease_id:
        return "not heard of yet"
    if status.phase is Phase.ENDED:
        return "it has ended"
    silent = now.timestamp() - status.at
    return f"not heard for {show_duration(silent)}" if silent > FRESH_SECONDS else ""


def show_stops(stops: Sequence[Stop], off_by: datetime) -> str:
    """`3 of 4 stops armed: launcher, agent, machine timer; off by ... UTC; NOT armed: cloud schedule (no role)`."""
    armed = [stop.name for stop in stops if stop.armed]
    missing = [f"{stop.name} ({stop.why})" for stop in stops if not stop.armed]
    named = f": {', '.join(armed)}" if armed else ""
    unarmed = f"; NOT armed: {', '.join(missing)}" if missing else ""
    return f"{len(armed)} of {len(stops)} stops armed{named}; off by {off_by:%F %T} UTC{unarmed}"
