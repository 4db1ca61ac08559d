"""One instance on this host: its folder, its first process, its metadata service, and how it is ended.

Owns everything that an instance occupies. Knows nothing of EC2's records; the hypervisor says when.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.sandbox import processes, state
from launcher.sandbox.imds import Identity, Metadata, MetadataServer
from launcher.sandbox.machinespec import MachineSpec
from launcher.sandbox.rootfs import Root
from launcher.sandbox.runner import Runner, import_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.sandbox.objectstore import RoleCredentials

KILL_SECONDS = 5.0
CONSOLE_BYTES = 65536
"""GetConsoleOutput gives the last 64 KiB, for a while also of an instance that is gone."""


class Guest:
    """One instance, on or off."""

    def __init__(self, folder: Path, mark: str, runner: Runner) -> None:
        self.mark = mark
        self._folder = folder
        self._runner = runner
        self._root = Root(folder / "root")
        self._spec = folder / "machine.json"
        self._console = folder / "console.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._server: MetadataServer | None = None
        self._metadata: Metadata | None = None
        self._seen: set[int] = set()
        self._last_words = b""
        self.address: str | None = None

    def create(self, user_data: bytes) -> None:
        """Make the folder, with the user-data in its place."""
        self._root.user_data.parent.mkdir(parents=True)
        self._root.path.chmod(0o700)
        if user_data:
            self._root.user_data.write_bytes(user_data)
        self._console.touch(mode=0o600)
        if self._runner.uid is not None and self._runner.gid is not None:
            for path in (self._folder, *self._folder.rglob("*")):
                os.chown(path, self._runner.uid, self._runner.gid)

    def power_on(self, identity: Identity, ssh_port: int, mint: Callable[[str], RoleCredentials]) -> None:
        """Start the metadata service and the machine at `identity.address`."""
        self._metadata = Metadata(identity, mint)
        self._server = MetadataServer(identity.address, self._metadata)
        self.address = identity.address
        self._console.write_bytes(b"")  # the console shows the boot that is going on
        spec = MachineSpec(
            instance_id=identity.instance_id,
            root=str(self._root.path),
            console=str(self._console),
            address=identity.address,
            ssh_port=ssh_port,
            authorized_key=identity.public_key,
            metadata=self._server.base,
            mark=self.mark,
            host_path=os.environ.get("PATH", os.defpath),
        )
        state.write_text(self._spec, state.encode(spec))
        if self._runner.uid is not None and self._runner.gid is not None:
            os.chown(self._spec, self._runner.uid, self._runner.gid)
        self._process = self._start()

    def restart(self) -> None:
        """Boot anew: same files, address and metadata service. What still runs is killed; the console goes on."""
        self._halt()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        privileged = self._runner.uid is not None
        with self._console.open("ab") as console:
            return subprocess.Popen(
                [sys.executable, "-m", "launcher.sandbox.machine", str(self._spec)],
                cwd="/",
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "LANG": "C.UTF-8",
                    "PYTHONPATH": import_path(),
                    processes.MARK: self.mark,
                },
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=console,
                start_new_session=True,
                umask=0o022,
                user=self._runner.uid if privileged else None,
                group=self._runner.gid if privileged else None,
                extra_groups=[] if privileged else None,
            )

    def crashed(self) -> bool:
        """Whether the machine program ended although nobody ended it."""
        return self._process is not None and self._process.poll() is not None

    def console(self) -> bytes:
        """Everything on the console so far."""
        return self._console.read_bytes() if self._console.exists() else self._last_words

    def notify(self, when: datetime) -> None:
        """Let the metadata service announce the interruption."""
        if self._metadata is not None:
            self._metadata.notify(when)

    def shutdown_due(self, now: float) -> bool:
        """Whether somebody inside asked for a power-off at or before `now` (Unix seconds)."""
        try:
            return float(self._root.shutdown.read_text(encoding="utf-8")) <= now
        except (OSError, ValueError):
            return False

    def living(self) -> set[int]:
        """All processes of the instance but its first one."""
        everything = processes.table()
        first = self._process.pid if self._process is not None else -1
        found = processes.descendants(first, everything) | processes.marked(self.mark, everything)
        found.discard(first)
        self._seen |= found
        return found

    def ask_to_end(self) -> None:
        """SIGTERM to everything, as at the shutdown of a machine."""
        processes.send(self.living(), signal.SIGTERM)

    def power_off(self) -> None:
        """End every process and close every port. Returns when nothing is left; bounded."""
        self._halt()
        if self._server is not None:
            self._server.close()
            self._server = None
        self._metadata = None
        self.address = None

    def _halt(self) -> None:
        """Kill every process."""
        if self._process is None:
            return
        first = self._process
        # Frozen, it starts nothing new; its dead children stay zombies until it goes itself.
        processes.send([first.pid], signal.SIGSTOP)
        limit = time.monotonic() + KILL_SECONDS
        while (left := self.living()) and time.monotonic() < limit:
            processes.send(left, signal.SIGKILL)
            time.sleep(0.01)
        first.kill()
        first.wait()
        if first.stdin is not None:
            with suppress(OSError):
                first.stdin.close()
        self._process = None
        processes.reap(self._seen)
        self._seen.clear()

    def remove(self) -> None:
        """Remove the folder; what was on the console can still be asked for."""
        self._last_words = self.console()[-CONSOLE_BYTES:]
        remove_tree(self._folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder, also where somebody inside took rights away from its parts."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)
