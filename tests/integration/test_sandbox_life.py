"""The life of the embedded cloud itself: start, crash, idle, end; nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from sandbox_client import NEEDED, SETTINGS, Cloud, is_open, marked_processes, until

from launcher import sandbox
from launcher.errors import BadInput
from launcher.sandbox import SandboxSettings

pytestmark = NEEDED


def test_two_ups_at_once_make_one_sandbox_and_down_leaves_nothing(tmp_path):
    found = []
    threads = [threading.Thread(target=lambda: found.append(sandbox.up(tmp_path, SETTINGS))) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found[0] == found[1]
    assert Path(found[0].credentials_file).stat().st_mode & 0o777 == 0o600
    info = found[0]
    cloud = Cloud(info)
    machine = cloud.launch()
    address = machine.wait("running")["PublicIpAddress"]
    cloud.close()
    sockets = set(Path("/tmp").glob("seaweedfs-*.sock"))
    assert sandbox.down(tmp_path) is True
    assert list(tmp_path.iterdir()) == []
    assert marked_processes(tmp_path) == set()
    assert not is_open(address, info.ssh_port)
    for url in (info.ec2_endpoint, info.s3_endpoint):
        assert not is_open("127.0.0.1", int(url.rpartition(":")[2]))
    assert len(sockets - set(Path("/tmp").glob("seaweedfs-*.sock"))) >= 5
    assert sandbox.down(tmp_path) is False
    assert sandbox.status(tmp_path) is None
    with pytest.raises(BadInput, match="no sandbox is running"):
        sandbox.interrupt(tmp_path, None, 1.0)


def test_a_killed_daemon_takes_its_instances_along_and_the_next_up_starts_clean(tmp_path):
    info = sandbox.up(tmp_path, SETTINGS)
    cloud = Cloud(info)
    machine = cloud.launch()
    machine.connect()
    machine.run("setsid sleep 1000 >/dev/null 2>&1 </dev/null &")
    os.kill(info.pid, signal.SIGKILL)
    until("everything to end", lambda: not marked_processes(tmp_path))
    machine.close()
    cloud.close()
    assert sandbox.status(tmp_path) is None
    again = sandbox.up(tmp_path, SETTINGS)
    assert again.pid != info.pid
    assert sandbox.status(tmp_path).instances == ()
    sandbox.down(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_sandbox_nobody_uses_ends_by_itself_and_two_homes_do_not_meet(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    brief = sandbox.up(first, SandboxSettings(idle_seconds=1.0))
    other = sandbox.up(second, SETTINGS)
    assert brief.ec2_endpoint != other.ec2_endpoint
    until("the idle one to end", lambda: not (first / "sandbox").exists())
    assert sandbox.status(first) is None
    assert sandbox.status(second) is not None
    subprocess.run(["kill", "-TERM", str(other.pid)], check=True)
    until("SIGTERM to end the other", lambda: not (second / "sandbox").exists())
    until("its processes to end", lambda: not marked_processes(second))


def test_the_bucket_outlives_an_end_that_nobody_asked_for_and_down_removes_it(tmp_path):
    cloud = Cloud(sandbox.up(tmp_path, SETTINGS))
    cloud.client("s3", cloud.info.s3_endpoint).put_object(
        Bucket=cloud.info.bucket, Key="a/checkpoint", Body=b"x" * 100_000
    )
    cloud.close()
    subprocess.run(["kill", "-KILL", str(cloud.info.pid)], check=True)
    again = Cloud(sandbox.up(tmp_path, SETTINGS))
    assert again.info.pid != cloud.info.pid
    kept = again.client("s3", again.info.s3_endpoint).head_object(Bucket=again.info.bucket, Key="a/checkpoint")
    assert kept["ContentLength"] == 100_000
    again.close()
    sandbox.suspend(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["sandbox-data"]
    assert not marked_processes(tmp_path)
    assert sandbox.down(tmp_path)
    assert list(tmp_path.iterdir()) == []
