"""A real OpenSSH server on loopback for tests, whose login folder is a folder of the test."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher.ssh import SshTarget, make_key_pair

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/sshd.pid
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PermitRootLogin yes
Subsystem sftp {sftp}
ForceCommand {folder}/login
"""
LOGIN = """#!/bin/sh
cd {home} || exit 1
if [ "$SSH_ORIGINAL_COMMAND" = "{sftp}" ]; then exec {sftp}; fi
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


def programs() -> tuple[str, str] | None:
    """The server and its SFTP part, or None where they are not installed."""
    server = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    places = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/libexec/sftp-server")
    sftp = next((place for place in places if Path(place).exists()), None)
    return (server, sftp) if server and sftp else None


@dataclass(frozen=True)
class LoopbackSshd:
    """A running server."""

    target: SshTarget
    home: Path
    """Where sessions start."""
    process: subprocess.Popen[bytes]


@contextmanager
def running(folder: Path) -> Iterator[LoopbackSshd]:
    """Start it in `folder`, with a host key and a user key of its own."""
    found = programs()
    assert found is not None
    server, sftp = found
    home = folder / "home"
    home.mkdir(parents=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    host_key = make_key_pair(folder / "host_key")
    (folder / "authorized_keys").write_text(make_key_pair(folder / "user_key") + "\n")
    (folder / "login").write_text(LOGIN.format(home=home, sftp=sftp))
    (folder / "login").chmod(0o755)
    port = _free_port()
    (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder, sftp=sftp))
    argv = [server, "-D", "-e", "-f", str(folder / "sshd_config")]
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        _await(port, process, folder / "sshd.log")
        target = SshTarget("127.0.0.1", port, getpass.getuser(), host_key.rsplit(" ", 1)[0], folder / "user_key")
        yield LoopbackSshd(target, home, process)
    finally:
        process.terminate()
        process.wait(10)


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + 10
    while time.monotonic() < limit and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"sshd does not start: {log.read_text()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
