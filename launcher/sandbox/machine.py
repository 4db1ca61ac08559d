"""The first process of an instance: `python -m launcher.sandbox.machine SPEC`. Boots, answers SSH, runs units.

Runs as the instance's user, in a session of its own. It knows its root directory and nothing of the cloud around it;
it ends, with everything below it, when its standard input closes (the hypervisor is gone) or on SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import asyncssh

from launcher.sandbox import processes, state
from launcher.sandbox.machinespec import MachineSpec
from launcher.sandbox.rootfs import Root
from launcher.sandbox.services import Services
from launcher.sandbox.sshd import serve

TICK_SECONDS = 0.2
KEYS_BEGIN = "-----BEGIN SSH HOST KEY KEYS-----"
KEYS_END = "-----END SSH HOST KEY KEYS-----"


class Children:
    """Starts programs in the instance and collects whatever ends below it, orphans included."""

    def __init__(self, root: Root, environment: dict[str, str], console: IO[bytes]) -> None:
        self._root = root
        self._environment = environment
        self._console = console
        self._waiting: dict[int, asyncio.Future[int]] = {}

    def start(self, argv: list[str], *, piped: bool = False) -> tuple[subprocess.Popen[bytes], asyncio.Future[int]]:
        """Start a program in a session of its own; its output goes to pipes or to the console. Gives its end too."""
        child = subprocess.Popen(
            argv,
            cwd=self._root.home,
            env=self._environment,
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else self._console,
            stderr=subprocess.PIPE if piped else self._console,
            start_new_session=True,
        )
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        end.add_done_callback(lambda done: setattr(child, "returncode", done.result()))
        self._waiting[child.pid] = end
        return child, end

    def collect(self) -> None:
        """Reap all that ended. Called on SIGCHLD."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            end = self._waiting.pop(pid, None)
            if end is not None:
                end.set_result(os.waitstatus_to_exitcode(status))


class Machine:
    """One life of an instance between power-on and power-off."""

    def __init__(self, spec: MachineSpec) -> None:
        self._spec = spec
        self._root = Root(Path(spec.root))
        self._console = Path(spec.console).open("ab", buffering=0)  # noqa: SIM115 - open as long as the machine is
        environment = self._root.environment(mark=spec.mark, metadata=spec.metadata, host_path=spec.host_path)
        self._children = Children(self._root, environment, self._console)
        self._services = Services(self._root, self._children.start, self._say)

    def _say(self, text: str) -> None:
        self._console.write(f"{text}\n".encode())

    async def run(self) -> None:
        """Boot and serve until standard input closes."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._children.collect)
        self._root.make()
        os.chdir(self._root.home)
        key = self._host_key()
        async with serve(self._spec, key, self._children.start):
            self._say(f"[sandbox] {self._spec.instance_id} answers SSH on {self._spec.address}:{self._spec.ssh_port}")
            self._services.boot()
            work = asyncio.ensure_future(asyncio.gather(self._boot(key), self._tick()))
            closed = asyncio.ensure_future(self._lifeline())
            both: set[asyncio.Future[tuple[None, None]] | asyncio.Future[None]] = {work, closed}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            closed.cancel()
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work  # raises where the machine itself failed: the hypervisor then sees it end

    async def _lifeline(self) -> None:
        closed = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(0, closed.set)
        await closed.wait()
        loop.remove_reader(0)

    def _host_key(self) -> asyncssh.SSHKey:
        path = self._root.host_key
        if not path.exists():
            key = asyncssh.generate_private_key("ssh-ed25519", comment=f"root@{self._spec.instance_id}")
            key.write_public_key(f"{path}.pub")
            state.write_text(path, key.export_private_key().decode())
        return asyncssh.read_private_key(path)

    async def _boot(self, key: asyncssh.SSHKey) -> None:
        """User-data once in the life of the instance, then the host keys: the order in which cloud-init does it."""
        if self._root.user_data.exists() and not self._root.user_data_done.exists():
            self._root.user_data_done.touch()
            await self._user_data()
        self._say(KEYS_BEGIN)
        self._say(key.export_public_key().decode().strip())
        self._say(KEYS_END)
        self._say(f"[sandbox] boot finished at {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}")

    async def _user_data(self) -> None:
        if not self._root.user_data.read_bytes().startswith(b"#!"):
            self._say("[sandbox] user-data does not start with #!: only scripts are run in the sandbox")
            return
        self._root.user_data.chmod(0o700)
        try:
            _, end = self._children.start([str(self._root.user_data)])
        except OSError as error:
            self._say(f"[sandbox] user-data cannot be started: {error}")
            return
        code = await end
        self._say(f"[sandbox] user-data ended with exit code {code}")

    async def _tick(self) -> None:
        while True:
            self._services.tick(time.time())
            await asyncio.sleep(TICK_SECONDS)


def _end_everything(spec: MachineSpec) -> None:
    """The hypervisor is gone: nothing of this instance may outlive it."""
    limit = time.monotonic() + 5
    while (left := processes.descendants(os.getpid())) and time.monotonic() < limit:
        processes.send(left, signal.SIGKILL)
        processes.reap(left)
        time.sleep(0.02)
    processes.end_marked(spec.mark, limit_seconds=5)
    shutil.rmtree(Path(spec.root).parent, ignore_errors=True)


def main() -> None:
    """Run the machine that the specification file describes."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    spec = state.decode(text, MachineSpec, sys.argv[1])
    processes.become_subreaper()
    try:
        asyncio.run(Machine(spec).run())
    finally:
        os.chdir("/")
        _end_everything(spec)


if __name__ == "__main__":
    main()
