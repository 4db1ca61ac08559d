"""Where the sandbox is root's and its interpreter is open to all, its instances run as an unprivileged user.

That wants an interpreter outside of root's home: the host's own of the same version, in an environment that sees the
packages of this one.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from sandbox_client import NEEDED, Cloud, argv, instance_folder, marked_processes

from launcher import sandbox
from launcher.sandbox.runner import import_path
from launcher.sandbox.weed import weed_program
from launcher.templating import user_data

USER = "nobody"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
HOST_PYTHON = shutil.which(VERSION, path="/usr/local/bin:/usr/bin")
PACKAGES = sysconfig.get_path("purelib")
START = """
import sys
from pathlib import Path
from launcher import sandbox
settings = sandbox.SandboxSettings(boot_seconds=0.1, shutdown_grace_seconds=0.5)
sandbox.up(Path(sys.argv[1]), settings)
"""


def open_to_others(path):
    """Whether everybody may enter a folder."""
    return all(one.stat().st_mode & stat.S_IXOTH for one in (path, *path.parents))


pytestmark = [
    *NEEDED,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run instances as somebody else"),
    pytest.mark.skipif(HOST_PYTHON is None, reason=f"no {VERSION} outside of this environment"),
    pytest.mark.skipif(
        not all(open_to_others(Path(folder)) for folder in (PACKAGES, import_path(), tempfile.gettempdir())),
        reason="the packages or the temporary folder are closed to other users",
    ),
]


@pytest.fixture(name="open_home")
def home_open_to_all():
    """A home that everybody can enter, with a sandbox whose interpreter everybody can run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = subprocess.run(
            [HOST_PYTHON, "-m", "venv", "--without-pip", folder / "venv"], capture_output=True, text=True
        )
        if made.returncode != 0:
            pytest.skip(f"no environment of {HOST_PYTHON}: {made.stderr[-200:]}")
        (folder / "venv/lib" / VERSION / "site-packages/this.pth").write_text(f"{PACKAGES}\n{import_path()}\n")
        (folder / "venv/bin/weed").symlink_to(weed_program())
        home = folder / "home"
        subprocess.run([folder / "venv/bin/python", "-c", START, home], check=True, timeout=120)
        yield home
        sandbox.down(home)
        assert list(home.iterdir()) == []


def owner(path):
    return pwd.getpwuid(path.stat(follow_symlinks=False).st_uid).pw_name


def test_user_data_ssh_and_the_deadline_run_as_nobody_and_nothing_stays(open_home):
    status = sandbox.status(open_home)
    assert (status.runs_as, status.reason) == (USER, "the sandbox runs as root, its instances do not")
    cloud = Cloud(status.info)
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=8)
    machine = cloud.launch(user_data=user_data(due) + "\nid -un >$HOME/who\n")
    machine.connect()
    assert machine.run("id -un; cat who; systemctl is-active gpucost-deadline.timer")[1].split() == [
        USER,
        USER,
        "active",
    ]
    assert machine.run("cat /proc/self/status | grep ^Groups:")[1].split() == ["Groups:"]
    assert machine.run(f"echo x > {open_home}/sandbox/intruder")[0] != 0
    folder = instance_folder(open_home, machine)
    assert {owner(path) for path in folder.rglob("*")} == {USER}
    inside = [pid for pid in marked_processes(open_home) if "launcher.sandbox.machine" in argv(pid)]
    assert [owner(Path(f"/proc/{pid}")) for pid in inside] == [USER]
    with machine.connection.open_sftp() as files:
        files.file("copied", "w").write("x")
    assert owner(folder / "root/home/ubuntu/copied") == USER
    machine.close()
    assert machine.wait("terminated")["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert not folder.exists()
    cloud.close()
