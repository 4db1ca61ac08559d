"""Which user the processes of instances run as: an unprivileged one, if there is one that can."""

from __future__ import annotations

import getpass
import os
import pwd
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import launcher

UNPRIVILEGED = "nobody"
_PROBE = """\
import os, sys
os.chdir(sys.argv[1])
os.stat("/bin/bash")
import asyncssh, launcher.sandbox.machine
"""


@dataclass(frozen=True, slots=True)
class Runner:
    """The user of the instances, and why it is that one."""

    name: str
    reason: str
    uid: int | None = None
    """To change to; None: the sandbox's own."""
    gid: int | None = None


def import_path() -> str:
    """The folder that holds this package: what PYTHONPATH has to name."""
    return str(Path(launcher.__file__).resolve().parent.parent)


def choose(folder: Path) -> Runner:
    """`nobody`, if the sandbox is root's and `nobody` can run this interpreter and enter `folder`; else the caller."""
    own = getpass.getuser()
    if os.geteuid() != 0:
        return Runner(own, "the sandbox itself has no other rights")
    try:
        entry = pwd.getpwnam(UNPRIVILEGED)
    except KeyError:
        return Runner(own, f"this machine has no user {UNPRIVILEGED!r}")
    if not _can_run(entry, folder):
        return Runner(own, f"{UNPRIVILEGED!r} cannot run {sys.executable} or cannot enter {folder}")
    return Runner(UNPRIVILEGED, "the sandbox runs as root, its instances do not", entry.pw_uid, entry.pw_gid)


def _can_run(entry: pwd.struct_passwd, folder: Path) -> bool:
    if not all(_open_to_others(path) for path in (folder, Path(sys.executable).resolve().parent)):
        return False  # saves starting an interpreter
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE, str(folder)],
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": import_path()},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return probe.returncode == 0


def _open_to_others(folder: Path) -> bool:
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents))
