"""Fake VMs as the ground of a drill: what can be done to one, and what must be gone after it."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from drills.ground import USER_HOME, Ground
from drills.vm import network
from drills.vm.guest import CGROUPS, members
from drills.vm.network import Namespace
from launcher.sandbox import processes
from launcher.sandbox.state import InstanceStatus, SandboxSettings

PROGRAMS = ("ip", "nft", "tc", "unshare", "nsenter", "mount", "sudo", "ssh-keygen", "/usr/sbin/sshd")
INSTALL = "apt-get install -y --no-install-recommends openssh-server nftables iproute2 sudo systemd libpam-systemd dbus"


class Vms(Ground):
    """Instances are VMs on a private bridge."""

    module = "drills.vm.daemon"
    settings = SandboxSettings(boot_seconds=0.5, shutdown_grace_seconds=20.0)

    def user_home(self, instance_id: str) -> Path:
        """See `Ground`: the upper layer of the overlay, which is only read from here."""
        return self.paths.instances / instance_id / "disk/up" / USER_HOME

    def pids(self, instance: InstanceStatus) -> set[int]:
        """See `Ground`."""
        return members(CGROUPS / self.network(instance).name)

    def network(self, instance: InstanceStatus) -> Namespace:
        """The network of a VM that is on."""
        assert instance.address is not None, f"{instance.instance_id} has no address"
        return network.of(instance.address)

    def inside(self, instance: InstanceStatus, *argv: str) -> str:
        """Run a command as root in the VM; its output. Raises RuntimeError."""
        return network.run("nsenter", "-t", str(self._first(instance)), "-a", "-r", "-w", *argv)

    def _power(self, instance: InstanceStatus) -> int:
        return int((self.paths.instances / instance.instance_id / "pid").read_text())

    def _first(self, instance: InstanceStatus) -> int:
        """The VM's init."""
        return next(one.pid for one in processes.table().values() if one.parent == self._power(instance))

    def cut_power(self, instance: InstanceStatus) -> None:
        """No FIN, no RST, no SIGTERM: every process of the VM is gone."""
        self.network(instance).unplug()
        os.kill(self._power(instance), signal.SIGKILL)

    def _ended(self) -> list[str]:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        mine = [mount for mount in mounts if mount.startswith(f"{self.home}/")]
        for mount in reversed(mine):
            with suppress(RuntimeError):
                network.run("umount", "-l", mount)
        left = [*mine, *network.left(), *map(str, CGROUPS.glob(f"{network.PREFIX}-*"))]
        for group in CGROUPS.glob(f"{network.PREFIX}-*"):
            processes.send(members(group), signal.SIGKILL)
        return left


def missing() -> str | None:
    """Why no fake VM can be made here; None where one can."""
    if os.geteuid() != 0:
        return "the fake VMs need root"
    if not os.access("/lib/systemd/systemd", os.X_OK) or not CGROUPS.is_dir():
        return "the fake VMs need systemd installed and its cgroup-v1 hierarchy mounted at /sys/fs/cgroup/systemd"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"the fake VMs need {', '.join(absent)}: {INSTALL}" if absent else None
