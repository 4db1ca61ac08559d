"""How EC2 describes a machine, in the words of the port. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from launcher.providers.aws.tags import LEASE_TAG
from launcher.providers.interface import EndCause, InstanceRef, InstanceState, InstanceStatus

_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "shutting-down": InstanceState.STOPPING,
    "stopping": InstanceState.STOPPING,
    "stopped": InstanceState.STOPPED,
    "terminated": InstanceState.GONE,
}
_ENDED_BY = {
    "Client.UserInitiatedShutdown": EndCause.USER,
    "Client.InstanceInitiatedShutdown": EndCause.INSIDE,
    "Client.InstanceTerminated": EndCause.USER,
}
_HOST_KEYS = re.compile(r"-----BEGIN SSH HOST KEY KEYS-----(.*?)-----END SSH HOST KEY KEYS-----", re.DOTALL)
_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) GMT\)")


def status_of(region: str, instance: Mapping[str, Any]) -> InstanceStatus:
    """One machine of DescribeInstances; without its console."""
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
    why = instance.get("StateReason") or {}
    transition = str(instance.get("StateTransitionReason", ""))
    ended = _ENDED_AT.search(transition)
    return InstanceStatus(
        ref=InstanceRef(region, instance["InstanceId"]),
        state=_STATES.get(instance["State"]["Name"], InstanceState.PENDING),
        lease_id=tags.get(LEASE_TAG),
        address=instance.get("PublicIpAddress") or None,
        launched_at=instance["LaunchTime"],
        ended_at=datetime.strptime(ended[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if ended else None,
        reason=str(why.get("Message") or transition),
        ended_by=_ended_by(str(why.get("Code", ""))),
    )


def unknown(ref: InstanceRef) -> InstanceStatus:
    """A machine that EC2 does not know."""
    return InstanceStatus(ref, InstanceState.GONE, lease_id=None, reason="unknown to EC2")


def host_key_in(console: str) -> str | None:
    """The machine's ed25519 public key, as cloud-init prints it between its markers; None until it is there."""
    block = _HOST_KEYS.findall(console)
    if not block:
        return None
    for line in block[-1].splitlines():
        words = line.split()
        if "ssh-ed25519" in words:
            at = words.index("ssh-ed25519")
            return " ".join(words[at : at + 2]) if len(words) > at + 1 else None
    return None


def _ended_by(code: str) -> EndCause:
    if code.startswith("Server."):
        return EndCause.PROVIDER
    return _ENDED_BY.get(code, EndCause.UNKNOWN)
