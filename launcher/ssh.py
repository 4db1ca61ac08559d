"""SSH to one machine: commands and small files, with a pinned host key and time-outs of our own.

Knows nothing of runs or providers. Keys are pinned to a machine by the caller, never to an address; nothing of the
user's SSH configuration, agent or known hosts is read.
"""

from __future__ import annotations

import base64
import io
import posixpath
import socket
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fabric import Config, Connection

CONNECT_SECONDS = 10
KEEPALIVE_SECONDS = 15
CHANNEL_SECONDS = 20


class SshError(Exception):
    """The machine did not answer as expected; the message says what was tried. Trying again may help."""


class HostKeyMismatch(Exception):
    """Another machine answers at this address. Never retried."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Where and as whom to log in, and who must answer there."""

    address: str
    port: int
    user: str
    host_key: str
    """`ssh-ed25519 AAAA...`"""
    private_key: Path


class SshSession(Protocol):
    """An open connection. Every method raises SshError."""

    def run(self, command: str, *, timeout: float) -> CommandResult:
        """Run a shell command to its end."""

    def put(self, content: bytes, path: str, *, mode: int = 0o644) -> None:
        """Write a file that appears whole. `path` is relative to the login folder."""

    def get(self, path: str) -> bytes | None:
        """A small file; None where there is none."""

    def close(self) -> None:
        """Hang up."""


class SshConnector(Protocol):
    """Opens sessions."""

    def __call__(self, target: SshTarget) -> SshSession:
        """Raises SshError and HostKeyMismatch."""


class FabricSession:
    """An `SshSession` over fabric and paramiko."""

    def __init__(self, target: SshTarget) -> None:
        """Connect. Raises SshError, or HostKeyMismatch."""
        self._connection = _connect(target)
        self._sftp: paramiko.SFTPClient | None = None

    def __enter__(self) -> FabricSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, command: str, *, timeout: float) -> CommandResult:
        """See the port."""
        try:
            result = self._connection.run(command, warn=True, hide=True, timeout=timeout, in_stream=False)
        except _FAILURES as error:
            raise SshError(f"`{command.split()[0]}` on the machine: {_words(error)}") from error
        except Exception as error:
            # invoke's CommandTimedOut and UnexpectedExit share no public base with paramiko's errors.
            if type(error).__name__ == "CommandTimedOut":
                raise SshError(f"`{command.split()[0]}` on the machine did not end in {timeout:.0f} s") from error
            raise
        if result.exited < 0:  # no exit status came: killed, cut off, or a time-out that invoke took for an end
            raise SshError(f"`{command.split()[0]}` on the machine did not end by itself")
        return CommandResult(int(result.exited), str(result.stdout), str(result.stderr))

    def put(self, content: bytes, path: str, *, mode: int = 0o644) -> None:
        """See the port."""
        temporary = posixpath.join(posixpath.dirname(path), f".{posixpath.basename(path)}.tmp")
        try:
            files = self._files()
            with files.open(temporary, "wb") as out:
                out.set_pipelined(pipelined=True)
                files.chmod(temporary, mode)
                out.write(content)
            files.posix_rename(temporary, path)
        except _FAILURES as error:
            raise SshError(f"writing {path} on the machine: {_words(error)}") from error

    def get(self, path: str) -> bytes | None:
        """See the port."""
        try:
            buffer = io.BytesIO()
            self._files().getfo(path, buffer)
        except FileNotFoundError:
            return None
        except _FAILURES as error:
            raise SshError(f"reading {path} on the machine: {_words(error)}") from error
        return buffer.getvalue()

    def close(self) -> None:
        """See the port."""
        self._connection.close()

    def _files(self) -> paramiko.SFTPClient:
        if self._sftp is None:
            self._sftp = self._connection.sftp()
            channel = self._sftp.get_channel()
            if channel is not None:
                channel.settimeout(CHANNEL_SECONDS)
        return self._sftp


_FAILURES = (paramiko.SSHException, OSError, EOFError)


def _connect(target: SshTarget) -> Connection:
    sock = _tcp(target)
    config = Config(overrides={"load_ssh_configs": False, "run": {"in_stream": False, "hide": True}})
    connection = Connection(
        target.address,
        user=target.user,
        port=target.port,
        config=config,
        connect_timeout=CONNECT_SECONDS,
        connect_kwargs={
            "sock": sock,
            "key_filename": str(target.private_key),
            "allow_agent": False,
            "look_for_keys": False,
            "banner_timeout": CONNECT_SECONDS,
            "auth_timeout": CONNECT_SECONDS,
            "channel_timeout": CHANNEL_SECONDS,
        },
    )
    kind, material = target.host_key.split()[:2]
    connection.client.get_host_keys().add(_known_name(target), kind, _public_key(kind, material))
    connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        connection.open()
    except paramiko.BadHostKeyException as error:
        sock.close()
        raise HostKeyMismatch(
            f"{target.address} answers with another host key than the machine's console shows"
        ) from error
    except _FAILURES as error:
        sock.close()
        raise SshError(f"{target.user}@{target.address}:{target.port}: {_words(error)}") from error
    _keep_alive(connection)
    return connection


def _tcp(target: SshTarget) -> socket.socket:
    try:
        sock = socket.create_connection((target.address, target.port), timeout=CONNECT_SECONDS)
    except OSError as error:
        raise SshError(f"{target.address}:{target.port}: {_words(error)}") from error
    # paramiko leaves Nagle's algorithm on, which makes small files fifty times slower.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _keep_alive(connection: Connection) -> None:
    transport = connection.client.get_transport()
    if transport is not None:
        transport.set_keepalive(KEEPALIVE_SECONDS)


def _known_name(target: SshTarget) -> str:
    return target.address if target.port == 22 else f"[{target.address}]:{target.port}"


def _public_key(kind: str, material: str) -> paramiko.PKey:
    return paramiko.PKey.from_type_string(kind, base64.b64decode(material))


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def make_key_pair(path: Path) -> str:
    """Write a new ed25519 private key to `path` (0600) unless there is a good one; the public key in OpenSSH form."""
    key = _read_key(path)
    if key is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pem = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        temporary = path.with_suffix(".tmp")
        temporary.touch(mode=0o600)
        temporary.write_bytes(pem)
        temporary.replace(path)
        key = paramiko.Ed25519Key.from_private_key_file(str(path))
    return f"{key.get_name()} {key.get_base64()} gpucost"


def drop_unusable_key(path: Path) -> bool:
    """Remove a key file that holds no key, an empty one for example; whether there was one.

    Without a key a machine is heard through the storage; with a file that is none, nothing would be tried.
    """
    if not path.exists() or _read_key(path) is not None:
        return False
    path.unlink()
    return True


def _read_key(path: Path) -> paramiko.Ed25519Key | None:
    try:
        return paramiko.Ed25519Key.from_private_key_file(str(path))
    except (OSError, ValueError, IndexError, AssertionError, paramiko.SSHException):  # what paramiko makes of damage
        return None
