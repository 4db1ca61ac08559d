"""The SSH server of one instance: commands, SFTP and keep-alive for one user with one key. No clouds, no files.

Behaves like OpenSSH where a client can tell: a lost connection ends no command, a channel stays open as long as
something holds its output. There is no terminal emulation: a shell without a command reads standard input.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import IO, Protocol, cast

import asyncssh

from launcher.sandbox.state import SSH_USER

KEEPALIVE_SECONDS = 15
_BLOCK = 65536


class Access(Protocol):
    """Where to listen and whom to let in."""

    @property
    def address(self) -> str:
        """A loopback address."""

    @property
    def ssh_port(self) -> int:
        """The port."""

    @property
    def authorized_key(self) -> str:
        """In OpenSSH form; empty: nobody gets in."""


class Start(Protocol):
    """Starts a program of the instance."""

    def __call__(self, argv: list[str], *, piped: bool = False) -> tuple[subprocess.Popen[bytes], asyncio.Future[int]]:
        """The process, and its exit code when it has ended."""


class _Login(asyncssh.SSHServer):
    """Public-key login of the one user."""

    def __init__(self, authorized: asyncssh.SSHKey | None) -> None:
        self._authorized = authorized

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002 - the base class's
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == SSH_USER and self._authorized is not None and key == self._authorized


@asynccontextmanager
async def serve(access: Access, host_key: asyncssh.SSHKey, start: Start) -> AsyncIterator[None]:
    """Answer SSH for as long as the context is open. Raises OSError where the address cannot be had."""
    authorized = asyncssh.import_public_key(access.authorized_key) if access.authorized_key else None

    async def session(process: asyncssh.SSHServerProcess[bytes]) -> None:
        await _session(process, start)

    server = await asyncssh.listen(
        access.address,
        access.ssh_port,
        server_factory=lambda: _Login(authorized),
        server_host_keys=[host_key],
        process_factory=session,
        sftp_factory=True,
        allow_scp=True,
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
        keepalive_interval=KEEPALIVE_SECONDS,
    )
    async with server:
        yield


async def _session(process: asyncssh.SSHServerProcess[bytes], start: Start) -> None:
    """One exec or shell request, from start to exit status."""
    argv = ["/bin/bash", "-c", process.command] if process.command is not None else ["/bin/bash"]
    try:
        child, end = start(argv, piped=True)
    except OSError as error:
        process.stderr.write(f"{error}\n".encode())
        process.exit(127)
        return
    await process.redirect(stdout=child.stdout, stderr=child.stderr)
    feeding = asyncio.ensure_future(_feed(process.stdin, cast(IO[bytes], child.stdin)))
    code = await end
    feeding.cancel()
    await process.stdout.drain()
    await process.stderr.drain()
    if code >= 0:
        process.exit(code)
    else:
        process.exit_with_signal(_signal_name(-code))


async def _feed(source: asyncssh.SSHReader[bytes], pipe: IO[bytes]) -> None:
    """Give a program its standard input, until that ends, the client goes, or the program reads no more.

    Not by `redirect`: where the end of the input comes while a pipe is full, asyncio closes the pipe too early (its
    transport resumes the protocol, which ends the pipe, before it looks at what is still to be written).
    """
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        with suppress(OSError, asyncssh.Error):
            while block := await _read(source):
                writer.write(block)
                await writer.drain()
    finally:
        writer.close()


async def _read(source: asyncssh.SSHReader[bytes]) -> bytes:
    """The next part of the input; empty at its end. Signals and window sizes go nowhere: there is no terminal."""
    while True:
        with suppress(asyncssh.BreakReceived, asyncssh.SignalReceived, asyncssh.TerminalSizeChanged):
            return await source.read(_BLOCK)


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return "KILL"
