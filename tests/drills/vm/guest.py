"""An instance of the embedded cloud that is a fake VM: its namespaces, its disk, its first process, its end.

The hypervisor drives it as it drives a `Guest`. A power-off and a reboot are told by how the first process ends, as the
kernel reports them for a PID namespace; everything else is a power cut.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from drills.vm.network import METADATA, Namespace, run
from launcher.sandbox import processes
from launcher.sandbox.guest import KILL_SECONDS, Guest
from launcher.sandbox.imds import Identity, Metadata, MetadataServer
from launcher.sandbox.objectstore import RoleCredentials
from launcher.sandbox.runner import Runner

CGROUPS = Path("/sys/fs/cgroup/systemd")
DISK_SIZE = "1g"
_BOOT = Path(__file__).with_name("boot.sh")
_UNSHARE = ("unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child")
_START = 'echo $$ >"$CGROUP/cgroup.procs" && exec ip netns exec "$NAME" "$@"'
_POWERED_OFF = -signal.SIGINT
_REBOOTED = -signal.SIGHUP
_ASK_SYSTEMD_TO_POWER_OFF = signal.SIGRTMIN + 4
_CLONE_NEWNET = 0x40000000

Made = TypeVar("Made")


class VmGuest(Guest):
    """One fake VM, on or off."""

    _numbers = itertools.count(1)

    def __init__(self, folder: Path, mark: str, runner: Runner) -> None:
        super().__init__(folder, mark, runner)
        self.network = Namespace(next(self._numbers))
        self._cgroup = CGROUPS / self.network.name
        self._disk = folder / "disk"
        self._user_data = folder / "user-data"
        self._environment: dict[str, str] = {}

    def create(self, user_data: bytes) -> None:
        """Make the folder and an empty disk."""
        for folder in (self._root.path, self._disk):
            folder.mkdir(parents=True)
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", str(self._disk))
        self._user_data.write_bytes(user_data)
        self._console.touch()

    def power_on(self, identity: Identity, ssh_port: int, mint: Callable[[str], RoleCredentials]) -> None:
        """Plug the network in, start the metadata service inside of it, and boot."""
        self.network.add()
        self.address = self.network.address
        metadata = Metadata(replace(identity, address=self.address), mint)
        self._metadata = metadata
        self._server = _inside(self.network, lambda: MetadataServer(METADATA, metadata, 80))
        self._environment = self._describe(identity, ssh_port)
        self._cgroup.mkdir(exist_ok=True)
        self._console.write_bytes(b"")
        self._boot()

    def _describe(self, identity: Identity, ssh_port: int) -> dict[str, str]:
        python = Path(sys.executable)
        base = Path(sys.base_prefix, "bin", "python3")
        hidden = {str(folder) for folder in (sys.prefix, sys.base_prefix) if folder.startswith("/tmp/")}
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "CGROUP": str(self._cgroup),
            "ROOT": str(self._root.path),
            "DISK": str(self._disk),
            "CONSOLE": str(self._console),
            "NAME": self.network.name,
            "ADDRESS": self.network.address,
            "SSH_PORT": str(ssh_port),
            "AUTHORIZED_KEY": identity.public_key,
            "INSTANCE_ID": identity.instance_id,
            "USER_DATA": str(self._user_data),
            "PYTHON": str(python),
            "BASE_PYTHON": str(base),
            "BINDS": " ".join(sorted(hidden)),
            processes.MARK: self.mark,
        }

    def _boot(self) -> None:
        with (self._folder / "boot.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", _START, "start", *_UNSHARE, "bash", str(_BOOT)],
                cwd="/",
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self._folder / "pid").write_text(str(self._process.pid))

    def _end(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def shutdown_due(self, now: float) -> bool:
        """Whether it powered itself off. A reboot is carried out here: the provider does not notice one."""
        if self._end() == _REBOOTED:
            self._boot()
        return self._end() == _POWERED_OFF

    def crashed(self) -> bool:
        """Whether its power was cut."""
        return self._end() not in (None, _POWERED_OFF, _REBOOTED)

    def living(self) -> set[int]:
        """All processes of the VM, its first one too."""
        return members(self._cgroup) - ({self._process.pid} if self._process is not None else set())

    def ask_to_end(self) -> None:
        """The power button: systemd shuts down in order."""
        if self._process is not None:
            table = processes.table()
            first = [one.pid for one in table.values() if one.parent == self._process.pid]
            for pid in first:
                with suppress(ProcessLookupError):
                    os.kill(pid, _ASK_SYSTEMD_TO_POWER_OFF)

    def power_off(self) -> None:
        """Cut the power and unplug; the disk stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            limit = time.monotonic() + KILL_SECONDS
            while self.living() and time.monotonic() < limit:
                time.sleep(0.01)
            self._process = None
        if self._server is not None:
            self._server.close()
            self._server = None
        self.network.remove()
        for folder, _, _ in os.walk(self._cgroup, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        self._metadata = None
        self.address = None

    def remove(self) -> None:
        """Throw the disk away."""
        with suppress(RuntimeError):
            run("umount", str(self._disk))
        super().remove()


def members(cgroup: Path) -> set[int]:
    """All processes of a control group and of those below it, which may vanish meanwhile."""
    found: set[int] = set()
    for folder, _, _ in os.walk(cgroup):
        with suppress(OSError):
            found.update(map(int, Path(folder, "cgroup.procs").read_text().split()))
    return found


def _inside(network: Namespace, make: Callable[[], Made]) -> Made:
    """What `make` makes on a thread in the VM's network: its sockets belong there."""
    made: list[Made] = []

    def work() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/run/netns/{network.name}").open("rb") as handle:
            if libc.setns(handle.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {network.name}")
        made.append(make())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if not made:
        raise RuntimeError(f"no metadata service in {network.name}")
    return made[0]
