"""One leased machine as the launcher sees it: the agent's files over SSH.

Owns the connection (opened when needed, dropped on failure) and the lease folder's place on the machine. Decides
nothing: a failure is an `SshError`, and who calls asks the provider what it means.
"""

from __future__ import annotations

import shlex
from pathlib import Path, PurePosixPath

from launcher.bundle import Bundle
from launcher.clouds import CloudFacts
from launcher.errors import GpucostError
from launcher.events import Lease
from launcher.ssh import SshConnector, SshError, SshSession, SshTarget
from remote import protocol
from remote.protocol import AgentStatus, LeasePaths, ProtocolError, StopCommand

_LOG_TAIL_LINES = 200


def shown_log(text: str) -> str:
    """A log as a terminal may have it: a progress bar that goes over its own line becomes lines."""
    return protocol.printable(text.replace("\r", "\n"))


class EnvironmentBroken(GpucostError):
    """The machine's image lacks what training needs, and it could not be added."""


class Machine:
    """The SSH side of one lease."""

    def __init__(self, lease: Lease, facts: CloudFacts, private_key: Path, connect: SshConnector) -> None:
        """`lease` must have an address and a host key. Nothing is opened yet."""
        if lease.address is None or lease.host_key is None:
            raise SshError("the machine has no address or host key yet")
        self._target = SshTarget(lease.address, facts.ssh_port, facts.user, lease.host_key, private_key)
        self._facts = facts
        self._connect = connect
        self._session: SshSession | None = None
        self.folder = PurePosixPath("gpucost") / lease.lease_id
        self._paths = LeasePaths(Path(self.folder))

    def close(self) -> None:
        """Hang up; the next call connects again."""
        if self._session is not None:
            session, self._session = self._session, None
            session.close()

    def hello(self) -> None:
        """Log in and run nothing much. Raises SshError."""
        self._run("true")

    def surroundings(self) -> tuple[str, str]:
        """The machine's root (empty on a real one) and the base URL of its metadata service."""
        answer = self._run('printf "%s\\n%s\\n" "${GPUCOST_ROOT:-}" "${AWS_EC2_METADATA_SERVICE_ENDPOINT:-}"')
        root, metadata = answer.split("\n")[:2]
        return root, metadata or self._facts.metadata_base

    def install(self, bundle: Bundle) -> None:
        """Put the `remote` package into the lease folder."""
        folder = shlex.quote(str(self._paths.bundle))
        self._run(f"umask 077; mkdir -p {folder}")
        archive = f"{self.folder}/bundle-{bundle.digest}.tar"
        self._put(bundle.content, archive)
        self._run(f"tar -xf {shlex.quote(archive)} -C {folder}", timeout=60)

    def ensure_packages(self, python: str) -> None:
        """Add the few packages that an image with PyTorch may lack. Raises EnvironmentBroken."""
        quoted = shlex.quote(python)
        check = f"{quoted} -c 'import torch, numpy, PIL, yaml, boto3'"
        if self._session_now().run(check, timeout=180).exit_code == 0:
            return
        added = self._session_now().run(f"sudo -n {quoted} -m pip install -q numpy pillow pyyaml boto3", timeout=600)
        again = self._session_now().run(check, timeout=180)
        if again.exit_code != 0:
            last = (again.stderr.strip() or added.stderr.strip()).splitlines()[-1:]
            raise EnvironmentBroken(
                f"the image's Python {python} cannot train: {' '.join(last)}", hint="choose another image or region"
            )

    def start_agent(self, job: protocol.AgentJob, credentials: bytes | None) -> None:
        """Write the job and start the agent, detached; one that already runs keeps the lease to itself."""
        if credentials is not None:
            self._put(credentials, str(self._paths.credentials), mode=0o600)
        self._put(protocol.encode(job).encode(), str(self._paths.job), mode=0o600)
        folder, log = shlex.quote(str(self.folder)), shlex.quote(str(self._paths.agent_log))
        bundle = shlex.quote(str(self._paths.bundle))
        self._run(
            f'PYTHONPATH="$PWD/"{bundle} nohup setsid python3 -m remote.agent {folder} >>{log} 2>&1 </dev/null &',
        )

    def status(self) -> AgentStatus | None:
        """What the agent last wrote; None before its first beat. Also tells the agent that a launcher watches."""
        beat, folder = shlex.quote(str(self._paths.launcher_beat)), shlex.quote(str(self.folder))
        self._run(f"test ! -d {folder} || touch {beat}")
        content = self._get(str(self._paths.status))
        if content is None:
            return None
        try:
            return protocol.decode(content.decode(), AgentStatus, str(self._paths.status))
        except (ProtocolError, UnicodeDecodeError) as error:
            raise SshError(str(error)) from error

    def ask_to_stop(self, command: StopCommand) -> None:
        """Have the agent end training with a checkpoint and a sync."""
        self._put(protocol.encode(command).encode(), str(self._paths.command))

    def set_budget(self, budget: protocol.Budget) -> None:
        """Give the agent another budget than the one in its job."""
        self._put(protocol.encode(budget).encode(), str(self._paths.budget))

    def log_tail(self, task: str) -> str:
        """The last lines of a task's log, the agent's own log where the task has none."""
        log = shlex.quote(str(self._paths.task(task).log))
        agent = shlex.quote(str(self._paths.agent_log))
        return shown_log(self._run(f"tail -n {_LOG_TAIL_LINES} {log} 2>/dev/null || tail -n {_LOG_TAIL_LINES} {agent}"))

    def _session_now(self) -> SshSession:
        if self._session is None:
            if not self._target.private_key.exists():
                raise SshError("the key to it is on the machine that launched it")
            self._session = self._connect(self._target)
        return self._session

    def _run(self, command: str, timeout: float = 20) -> str:
        try:
            result = self._session_now().run(command, timeout=timeout)
        except SshError:
            self.close()
            raise
        if result.exit_code != 0:
            said = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.exit_code}"]
            raise SshError(f"`{command.split()[0]}` on the machine: {said[0]}")
        return result.stdout

    def _put(self, content: bytes, path: str, *, mode: int = 0o644) -> None:
        try:
            self._session_now().put(content, path, mode=mode)
        except SshError:
            self.close()
            raise

    def _get(self, path: str) -> bytes | None:
        try:
            return self._session_now().get(path)
        except SshError:
            self.close()
            raise
