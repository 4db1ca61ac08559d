"""A machine in memory as SSH shows it: files, and the few commands of `launcher.machine`. Runs a `FakeAgent`.

Owns what survives a lost connection and what does not survive the machine. A command that it does not know is noted:
the functional tests fail for it, so that this file and `launcher/machine.py` stay of one mind.
"""

from __future__ import annotations

import io
import re
import shlex
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path

from fake_agent import AgentScript, FakeAgent
from launcher_clock import FakeClock
from memory_object_store import FakeStore

from launcher.providers.interface import EndCause, InstanceRef, InstanceState, LaunchRequest
from launcher.ssh import CommandResult, HostKeyMismatch, SshError, SshSession, SshTarget, make_key_pair
from remote import protocol
from remote.protocol import AgentJob, Budget, StopCommand

_START = re.compile(
    r'PYTHONPATH="\$PWD/"(?P<bundle>\S+) nohup setsid python3 -m remote\.agent (?P<folder>\S+) '
    r">>(?P<log>\S+) 2>&1 </dev/null &"
)
_SURROUNDINGS = 'printf "%s\\n%s\\n" "${GPUCOST_ROOT:-}" "${AWS_EC2_METADATA_SERVICE_ENDPOINT:-}"'


@dataclass
class FakeMachine:
    """One machine. The provider moves its state; the session below is how the launcher sees it."""

    clock: FakeClock
    request: LaunchRequest
    ref: InstanceRef
    number: int
    state: InstanceState = InstanceState.PENDING
    lets_in: bool = False
    """The SSH server is up, and the console shows its key."""
    reachable: bool = True
    """False: the network between the launcher and this machine is cut."""
    python_works: bool = True
    powers_off: bool = True
    """False: a power-off from inside does nothing."""
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    agent: FakeAgent | None = None
    unknown_commands: list[str] = field(default_factory=list)
    ended_at: datetime | None = None
    ended_elapsed: float | None = None
    ended_by: EndCause = EndCause.UNKNOWN
    reason: str = ""
    tells_time: bool = True
    """Whether the provider says when it ended."""
    gone_at: float | None = None
    """Announced end, in seconds of the clock."""
    clock_ahead: float = 0
    """How far its clock is ahead of the true time; negative: it is slow."""
    stopping_at: datetime | None = None
    """When it began to go down, where somebody outside ended it: EC2 bills nothing from then on."""

    def __post_init__(self) -> None:
        self.made_at = self.clock.elapsed
        self.launched_at = self.clock.now()
        self.address = f"198.51.100.{self.number}"
        self.host_key = f"ssh-ed25519 KEY{self.number}"
        self.answers_with = self.host_key
        """What its SSH server shows; the console shows `host_key`."""

    @property
    def alive(self) -> bool:
        """It may be billed."""
        return self.state is not InstanceState.GONE

    @property
    def folder(self) -> str:
        """The lease folder, relative to the login folder."""
        return f"gpucost/{self.request.lease_id}"

    def let_in(self) -> None:
        """The SSH server comes up."""
        self.lets_in = self.state in {InstanceState.PENDING, InstanceState.RUNNING}

    def give_notice(self, gone_at: float) -> None:
        """The metadata service says that the machine will be taken back."""
        self.gone_at = gone_at
        if self.agent is not None:
            self.agent.notice(gone_at)

    def stop_from_outside(self) -> None:
        """Somebody stopped it at the provider: nothing runs, and its disk is billed on."""
        self.state, self.ended_by, self.reason = InstanceState.STOPPED, EndCause.USER, "Client.UserInitiatedShutdown"
        self._stop_all()

    def begin_end(self) -> None:
        """The system goes down: nothing on it runs any more, and it is still billed."""
        self.state = InstanceState.STOPPING
        self.stopping_at = self.clock.now()
        self._stop_all()

    def end(self, by: EndCause, reason: str, *, tells_time: bool = True) -> None:
        """Gone; what was on it is lost."""
        if not self.alive:
            return
        self.state = InstanceState.GONE
        self.ended_at, self.ended_elapsed = self.clock.now(), self.clock.elapsed
        self.ended_by, self.reason, self.tells_time = by, reason, tells_time
        self._stop_all()

    def power_off(self) -> None:
        """From inside: EC2 then gives no time of the end."""
        if self.powers_off and self.state in {InstanceState.PENDING, InstanceState.RUNNING}:
            self.end(EndCause.INSIDE, "Client.InstanceInitiatedShutdown: Instance initiated shutdown", tells_time=False)

    def _stop_all(self) -> None:
        self.lets_in = False
        if self.agent is not None:
            self.agent.die()

    def kill_agent(self) -> None:
        """The agent's process dies; its last status stays."""
        assert self.agent is not None
        self.agent.die(killed=True)


@dataclass
class FakeConnector:
    """An `SshConnector` to the machines of a fake cloud."""

    clock: FakeClock
    store: FakeStore
    machines: list[FakeMachine]
    script: AgentScript
    connect_seconds: float = 10
    """What a try costs that is not answered."""
    down: bool = False
    """The launcher's own network is cut."""
    after_call: Callable[[str], None] = lambda _name: None

    def __call__(self, target: SshTarget) -> SshSession:
        if not target.private_key.exists():
            raise SshError(f"{target.user}@{target.address}:{target.port}: there is no key {target.private_key}")
        assert target.private_key.stat().st_mode & 0o777 == 0o600
        machine = next((one for one in self.machines if one.address == target.address and one.lets_in), None)
        if machine is None or not self.answers(machine):
            self.clock.sleep(self.connect_seconds)
            raise SshError(f"{target.user}@{target.address}:{target.port}: timed out")
        if machine.answers_with != target.host_key:
            raise HostKeyMismatch(f"{target.address} answers with another host key than the machine's console shows")
        if _public_key(target.private_key, target.private_key.stat().st_mtime_ns) != machine.request.ssh_public_key:
            raise SshError(f"{target.user}@{target.address}:{target.port}: Authentication failed.")
        self.after_call("ssh.connect")
        return FakeSession(self, machine)

    def answers(self, machine: FakeMachine) -> bool:
        """Whether a packet comes back."""
        return machine.lets_in and machine.reachable and not self.down


class FakeSession:
    """An `SshSession` to one machine."""

    def __init__(self, connector: FakeConnector, machine: FakeMachine) -> None:
        self._connector = connector
        self._machine = machine
        self._open = True

    def run(self, command: str, *, timeout: float) -> CommandResult:
        self._require_answer(command, timeout)
        result = self._run(command)
        self._connector.after_call("ssh.run")
        return result

    def put(self, content: bytes, path: str, *, mode: int = 0o644) -> None:
        self._require_answer(path, 20)
        if not any(folder == path.rsplit("/", 1)[0] for folder in self._machine.folders):
            raise SshError(f"writing {path} on the machine: No such file")
        self._machine.files[path], self._machine.modes[path] = content, mode
        if path == f"{self._machine.folder}/command.json" and self._machine.agent is not None:
            command = protocol.decode(content.decode(), StopCommand, path)
            self._machine.agent.command(command.reason)
        if path == f"{self._machine.folder}/budget.json" and self._machine.agent is not None:
            self._machine.agent.take_budget(protocol.decode(content.decode(), Budget, path))
        self._connector.after_call("ssh.put")

    def get(self, path: str) -> bytes | None:
        self._require_answer(path, 20)
        machine = self._machine
        content = machine.files.get(path)
        if path == f"{machine.folder}/status.json" and machine.agent is not None and machine.agent.script.starts:
            content = machine.agent.status_text().encode()
        self._connector.after_call("ssh.get")
        return content

    def close(self) -> None:
        self._open = False

    def _require_answer(self, what: str, timeout: float) -> None:
        assert self._open, "a closed session is used"
        if not self._connector.answers(self._machine):
            self._connector.clock.sleep(min(timeout, 20))
            raise SshError(f"`{what.split()[0]}` on the machine: timed out")

    def _run(self, command: str) -> CommandResult:  # noqa: C901 - one flat case for each command
        machine = self._machine
        started = _START.fullmatch(command)
        if started is not None:
            return self._start_agent(started["bundle"], started["folder"])
        if command == _SURROUNDINGS:
            return CommandResult(0, "\n\n", "")
        match _words(command):
            case ["true"]:
                return CommandResult(0, "", "")
            case ["umask", "077", ";", "mkdir", "-p", folder]:
                parts = folder.split("/")
                machine.folders |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
                return CommandResult(0, "", "")
            case ["tar", "-xf", archive, "-C", folder]:
                return self._unpack(archive, folder)
            case ["test", "!", "-d", folder, "||", "touch", beat]:
                if folder in machine.folders:
                    machine.files[beat] = b""
                    if machine.agent is not None:
                        machine.agent.beat = machine.clock.elapsed
                return CommandResult(0, "", "")
            case ["tail", "-n", _, log, *_]:
                return CommandResult(0, machine.files.get(log, b"the agent's log\n").decode(), "")
            case [python, "-c", check] if python.endswith("/python") and check.startswith("import torch"):
                return self._python(machine.python_works)
            case ["sudo", "-n", python, "-m", "pip", "install", "-q", *_] if python.endswith("/python"):
                return self._python(machine.python_works)
        machine.unknown_commands.append(command)
        return CommandResult(127, "", f"sh: 1: {command.split()[0]}: not found")

    @staticmethod
    def _python(works: bool) -> CommandResult:
        return (
            CommandResult(0, "", "") if works else CommandResult(1, "", "ModuleNotFoundError: No module named 'torch'")
        )

    def _unpack(self, archive: str, folder: str) -> CommandResult:
        content = self._machine.files.get(archive)
        if content is None or folder not in self._machine.folders:
            return CommandResult(2, "", f"tar: {archive}: Cannot open: No such file or directory")
        self._machine.files |= {f"{folder}/{name}": b"" for name in _names_in(content)}
        return CommandResult(0, "", "")

    def _start_agent(self, bundle: str, folder: str) -> CommandResult:
        """In the background: whatever becomes of it, the shell says 0."""
        machine = self._machine
        runnable = f"{bundle}/remote/agent/__main__.py" in machine.files and f"{folder}/job.json" in machine.files
        taken = machine.agent is not None and (machine.agent.alive or machine.agent.has_ended)
        if runnable and not taken:
            job = protocol.decode(machine.files[f"{folder}/job.json"].decode(), AgentJob, "job.json")
            machine.agent = FakeAgent(
                self._connector.clock,
                self._connector.store,
                job,
                self._connector.script,
                machine.power_off,
                machine.clock_ahead,
            )
            machine.agent.beat = machine.clock.elapsed
            if machine.gone_at is not None:
                machine.agent.notice(machine.gone_at)
        return CommandResult(0, "", "")


@cache
def _words(command: str) -> list[str]:
    return shlex.split(command.replace(";", " ; ").replace("||", " || "))


@cache
def _names_in(archive: bytes) -> tuple[str, ...]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return tuple(tar.getnames())


@lru_cache(maxsize=100)
def _public_key(private_key: Path, _changed: int) -> str:
    return make_key_pair(private_key)
