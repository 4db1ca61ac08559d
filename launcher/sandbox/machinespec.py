"""What the hypervisor tells the first process of an instance. A record, nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """What a machine program is told. Written to a file that only the instance's user reads."""

    instance_id: str
    root: str
    console: str
    address: str
    ssh_port: int
    authorized_key: str
    """In OpenSSH form; empty: nobody gets in."""
    metadata: str
    mark: str
    host_path: str
