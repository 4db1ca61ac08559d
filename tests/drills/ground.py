"""Where the instances of a drill live: processes on loopback, or fake VMs. What both can be asked.

Everything a drill does to an instance from outside goes through here; the launcher knows nothing of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from launcher.sandbox import processes, state
from launcher.sandbox.runner import import_path
from launcher.sandbox.state import InstanceStatus, SandboxPaths, SandboxSettings

TESTS = Path(__file__).resolve().parents[1]
USER_HOME = Path("home", state.SSH_USER)


class Ground(ABC):
    """The embedded cloud of one home, started by the drill and not by the launcher."""

    module = "drills.noting"
    settings = SandboxSettings()

    def __init__(self, home: Path) -> None:
        self.home = home
        self.paths = SandboxPaths(home)

    def start(self) -> None:
        """Start the daemon, in this process's care. Raises RuntimeError with the end of its log."""
        self.paths.root.mkdir(parents=True, mode=0o711)
        state.write_text(self.paths.settings, state.encode(self.settings))
        with self.paths.log.open("ab") as log:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", self.module, str(self.home)],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._daemon.stdout is not None
        if self._daemon.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the embedded cloud does not start: {self.paths.log.read_text()[-2000:]}")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_", "BOTO_"))}
        return {**kept, processes.MARK: f"{self.paths.mark}/daemon", "PYTHONPATH": f"{import_path()}:{TESTS}"}

    def end(self) -> list[str]:
        """After the launcher took the cloud down: what is still there. Ends it."""
        left = self._ended()
        if self._daemon.poll() is None:
            left.append("the embedded cloud's daemon")
            self._daemon.kill()
        self._daemon.wait()
        for folder in (self.paths.root, self.paths.kept):
            if folder.exists():
                left.append(f"the folder {folder.name}")
        return left

    @abstractmethod
    def _ended(self) -> list[str]:
        """What is left of instances; takes it away."""

    @contextmanager
    def silent(self) -> Iterator[None]:
        """API and object store take requests and answer none, as long as the context is open; machines go on."""
        store = [one.pid for one in processes.table().values() if one.parent == self._daemon.pid and _is_store(one.pid)]
        both = [self._daemon.pid, *store]
        processes.send(both, signal.SIGSTOP)
        try:
            yield
        finally:
            processes.send(both, signal.SIGCONT)

    def leases(self, instance_id: str) -> list[Path]:
        """The lease folders of an instance, as this host sees them."""
        return sorted((self.user_home(instance_id) / "gpucost").glob("*"))

    @abstractmethod
    def user_home(self, instance_id: str) -> Path:
        """The home of the instance's user, as this host sees it."""

    @abstractmethod
    def pids(self, instance: InstanceStatus) -> set[int]:
        """All processes of an instance, as this host numbers them."""

    def programs(self, instance: InstanceStatus) -> Mapping[int, str]:
        """Their command lines."""
        found = {}
        for pid in self.pids(instance):
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return found

    def kill(self, instance: InstanceStatus, words: str, *, seconds: float = 30) -> int:
        """SIGKILL for every process whose command line has these words; waits for one to appear. Says how many."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            victims = [pid for pid, command in self.programs(instance).items() if words in command]
            if victims:
                processes.send(victims, signal.SIGKILL)
                return len(victims)
            time.sleep(0.02)
        raise AssertionError(f"no process with {words!r} in {seconds:g} s")


class Loopback(Ground):
    """Instances are processes on this host, as in the product."""

    def user_home(self, instance_id: str) -> Path:
        """See `Ground`."""
        return self.paths.instances / instance_id / "root" / USER_HOME

    def pids(self, instance: InstanceStatus) -> set[int]:
        """See `Ground`."""
        return processes.marked(f"{self.paths.mark}/{instance.instance_id}")

    def _ended(self) -> list[str]:
        left = processes.marked(self.paths.mark)
        processes.end_marked(self.paths.mark)
        return [f"{len(left)} processes of the embedded cloud"] if left else []


def _is_store(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").resolve().name == "weed"


class OpenStore(Loopback):
    """The same, and faults reach the object store too."""

    settings = SandboxSettings(s3_faults=True)
