"""Where SeaweedFS is, which ports it takes, and what it leaves behind. No SDK: the control side needs this too."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from launcher.sandbox import state

DATA = "data"
"""Folder of the server's data."""
SERVICES = ("master", "volume", "filer", "s3", "admin")


@dataclass(frozen=True, slots=True)
class StorePorts:
    """The port of each part and of its gRPC twin. Written down, because the twins leave sockets behind in /tmp."""

    master: int
    volume: int
    filer: int
    s3: int
    admin: int
    master_grpc: int
    volume_grpc: int
    filer_grpc: int
    s3_grpc: int
    admin_grpc: int


def weed_program() -> str | None:
    """Path of the `weed` program, or None: the wheel puts it beside the interpreter."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("weed")


def lay_aside(folder: Path, kept: Path) -> None:
    """Move the data to `kept`, for the next life, and remove the rest.

    That includes the sockets that SeaweedFS leaves in /tmp under the numbers of its gRPC ports.
    """
    record = folder / "ports.json"
    if record.exists():
        ports = state.decode(record.read_text(encoding="utf-8"), StorePorts, str(record))
        for service in SERVICES:
            number = getattr(ports, f"{service}_grpc")
            Path(f"/tmp/seaweedfs-{service}-grpc-{number}.sock").unlink(missing_ok=True)  # noqa: S108 - its fixed place
    if (folder / DATA).is_dir():
        shutil.rmtree(kept, ignore_errors=True)
        (folder / DATA).replace(kept)
    shutil.rmtree(folder, ignore_errors=True)


def free_ports() -> StorePorts:
    """Ports that nobody listens on right now."""
    sockets = [socket.socket() for _ in range(2 * len(SERVICES))]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        numbers = [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
    return StorePorts(*numbers)
