"""The root directory of an instance: its layout, its commands, and the environment of everything that runs in it.

Everything on an instance is named relative to `GPUCOST_ROOT`; nothing outside that directory is written.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from launcher.sandbox import shims
from launcher.sandbox.processes import MARK
from launcher.sandbox.state import SSH_USER

_FOLDERS = (
    "etc/ssh",
    "etc/systemd/system",
    f"home/{SSH_USER}",
    "opt/pytorch/bin",
    "opt/dlami/nvme",
    "run/sandbox/units",
    "sbin",
    "tmp",
    "usr/local/sbin",
    "var/lib/cloud/instance",
    "var/lib/systemd/timers",
    "var/log",
)


class Root:
    """Every name inside one instance's root directory that the sandbox itself uses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = path / "home" / SSH_USER
        self.commands = path / "usr/local/sbin"
        self.host_key = path / "etc/ssh/ssh_host_ed25519_key"
        self.units = path / "etc/systemd/system"
        self.wishes = path / "run/sandbox/units"
        self.shutdown = path / "run/sandbox/shutdown"
        self.stamps = path / "var/lib/systemd/timers"
        self.user_data = path / "var/lib/cloud/instance/user-data.txt"
        self.user_data_done = path / "var/lib/cloud/instance/user-data.done"

    def make(self) -> None:
        """Lay the directory out. Does no harm to one that has been used."""
        for folder in _FOLDERS:
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        self._command("sudo", shims.SUDO)
        self._command("shutdown", shims.SHUTDOWN)
        self._command("poweroff", shims.POWEROFF)
        self._command("systemctl", shims.SYSTEMCTL)
        # The machine's own interpreter has no training packages; the image's training environment has.
        base = getattr(sys, "_base_executable", None) or sys.executable
        self._command("python3", shims.EXEC.format(program=shlex.quote(base)))
        _script(self.path / "opt/pytorch/bin/python", shims.EXEC.format(program=shlex.quote(sys.executable)))

    def _command(self, name: str, text: str) -> None:
        _script(self.commands / name, text)

    def environment(self, *, mark: str, metadata: str, host_path: str) -> dict[str, str]:
        """What user-data and SSH commands see. Nothing of the caller's own environment but the search path."""
        return {
            "GPUCOST_ROOT": str(self.path),
            "HOME": str(self.home),
            "PATH": f"{self.commands}:{host_path}",
            "TMPDIR": str(self.path / "tmp"),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata,
            "USER": SSH_USER,
            "LOGNAME": SSH_USER,
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            MARK: mark,
        }

    def command(self, argv: list[str]) -> list[str]:
        """`argv` with its program taken from this root where this root has it: `/sbin/shutdown` must be the shim's."""
        name = argv[0]
        shim = self.commands / Path(name).name
        inside = self.path / name.lstrip("/") if name.startswith("/") else None
        if inside is not None and os.access(inside, os.X_OK):
            return [str(inside), *argv[1:]]
        return [str(shim), *argv[1:]] if shim.exists() else argv


def _script(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o755)
    temporary.replace(path)
