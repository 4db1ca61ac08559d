"""What every `SshSession` does: the fake of the functional tests, and fabric against a real OpenSSH server.

The commands of `launcher.machine` go through both: what the fake understands is what a shell understands.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import loopback_sshd
import pytest
from fake_agent import AgentScript
from fake_compute import FakeProvider
from fake_machine import FakeConnector
from launcher_clock import FakeClock
from launcher_world import SPOT_EAST, bundle
from memory_object_store import FakeStore
from run_cases import lease

from launcher.clouds import AWS
from launcher.machine import Machine
from launcher.providers.interface import InstanceState, LaunchRequest
from launcher.ssh import (
    CONNECT_SECONDS,
    FabricSession,
    HostKeyMismatch,
    SshConnector,
    SshError,
    SshSession,
    SshTarget,
    make_key_pair,
)
from remote import protocol
from remote.protocol import AgentStatus, Phase, Reason, StopCommand

ALL_BYTES = bytes(range(256)) * 8192
FOLDER = f"gpucost/{lease().lease_id}"
needs_sshd = pytest.mark.skipif(
    loopback_sshd.programs() is None, reason="needs OpenSSH's server: apt-get install openssh-server"
)


class Rig:
    """A way to connect, and where to."""

    def __init__(self, connect: SshConnector, target: SshTarget) -> None:
        self.connect = connect
        self.target = target

    def machine(self) -> Machine:
        """The launcher's view of it."""
        facts = replace(AWS, ssh_port=self.target.port, user=self.target.user)
        leased = lease(address=self.target.address, host_key=self.target.host_key)
        return Machine(leased, facts, self.target.private_key, self.connect)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[loopback_sshd.LoopbackSshd]:
    with loopback_sshd.running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


def fake_rig(folder: Path) -> Rig:
    """One machine of the fake cloud, up and running."""
    clock = FakeClock()
    provider = FakeProvider(clock)
    request = LaunchRequest(
        run_id="r",
        lease_id=lease().lease_id,
        token="t",
        offer=SPOT_EAST,
        disk_gib=1,
        user_data="",
        deadline=clock.now(),
        ssh_public_key=make_key_pair(folder / "key"),
        tags={},
    )
    provider.launch(request)
    clock.sleep(60)
    machine = provider.newest()
    assert machine.state is InstanceState.RUNNING
    make_key_pair(folder / "key")
    connector = FakeConnector(clock, FakeStore(), provider.machines, AgentScript())
    return Rig(connector, SshTarget(machine.address, 22, "ubuntu", machine.host_key, folder / "key"))


@pytest.fixture(params=["fake", pytest.param("fabric", marks=needs_sshd)])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    if request.param == "fake":
        return fake_rig(tmp_path)
    return Rig(FabricSession, request.getfixturevalue("sshd").target)


@pytest.fixture
def session(rig: Rig) -> Iterator[SshSession]:
    opened = rig.connect(rig.target)
    opened.run(f"umask 077; mkdir -p {FOLDER}/bundle", timeout=10)
    yield opened
    opened.close()


@pytest.fixture
def fabric(sshd: loopback_sshd.LoopbackSshd) -> Iterator[FabricSession]:
    with FabricSession(sshd.target) as opened:
        yield opened


def test_a_command_that_works_says_so(session):
    result = session.run("true", timeout=10)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_a_command_that_does_not_exist_is_an_exit_code_and_no_exception(session):
    result = session.run("no-such-command-anywhere", timeout=10)
    assert result.exit_code == 127
    assert "not found" in result.stderr


def test_a_binary_file_arrives_whole_and_comes_back(session):
    session.put(ALL_BYTES, f"{FOLDER}/blob")
    assert session.get(f"{FOLDER}/blob") == ALL_BYTES


def test_a_file_replaces_the_older_one_and_an_empty_one_is_a_file(session):
    session.put(b"older and longer", f"{FOLDER}/a")
    session.put(b"new", f"{FOLDER}/a")
    session.put(b"", f"{FOLDER}/empty")
    assert (session.get(f"{FOLDER}/a"), session.get(f"{FOLDER}/empty")) == (b"new", b"")


def test_a_file_that_is_not_there_is_none(session):
    assert session.get(f"{FOLDER}/nothing") is None
    assert session.get("no-such-folder/nothing") is None


def test_a_file_in_a_folder_that_is_not_there_is_an_error_with_its_name(session):
    with pytest.raises(SshError, match="no-such-folder/a"):
        session.put(b"x", "no-such-folder/a")


def test_a_machine_with_another_host_key_is_told_apart_and_gets_nothing(rig, tmp_path):
    other = make_key_pair(tmp_path / "other").rsplit(" ", 1)[0]
    with pytest.raises(HostKeyMismatch, match=rig.target.address):
        rig.connect(replace(rig.target, host_key=other))


def test_nobody_at_the_address_is_an_error_with_the_address(rig):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        nowhere = replace(rig.target, address="127.0.0.1", port=reserved.getsockname()[1])
        with pytest.raises(SshError, match=f"127.0.0.1:{nowhere.port}"):
            rig.connect(nowhere)


def test_a_key_that_is_not_there_is_an_error(rig, tmp_path):
    with pytest.raises(SshError):
        rig.connect(replace(rig.target, private_key=tmp_path / "no-key"))


def test_a_closed_connection_is_opened_again_by_the_machine(rig):
    machine = rig.machine()
    machine.hello()
    machine.close()
    machine.close()
    machine.hello()
    machine.close()


def test_a_real_machine_has_no_root_of_its_own_and_the_metadata_service_of_its_cloud(rig):
    machine = rig.machine()
    assert machine.surroundings() == ("", AWS.metadata_base)
    machine.close()


def test_the_bundle_is_installed_as_often_as_one_likes(rig):
    machine = rig.machine()
    machine.install(bundle())
    machine.install(bundle())
    machine.close()
    opened = rig.connect(rig.target)
    assert opened.get(f"{FOLDER}/bundle/remote/agent/__main__.py") is not None
    opened.close()


def test_before_the_agent_wrote_anything_there_is_no_status(rig):
    machine = rig.machine()
    assert machine.status() is None
    machine.install(bundle())
    assert machine.status() is None
    machine.close()


def test_a_stop_is_handed_over_as_a_file(rig):
    machine = rig.machine()
    machine.install(bundle())
    machine.ask_to_stop(StopCommand(Reason.CANCELLED, 5.0))
    machine.close()
    opened = rig.connect(rig.target)
    content = opened.get(f"{FOLDER}/command.json")
    opened.close()
    assert protocol.decode(content.decode(), StopCommand, "command.json") == StopCommand(Reason.CANCELLED, 5.0)


@needs_sshd
class TestRealServer:
    """What only a real server shows."""

    def test_output_error_and_exit_code_come_apart(self, fabric):
        result = fabric.run("echo out; echo err >&2; exit 3", timeout=10)
        assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")

    def test_text_in_any_language_comes_back(self, fabric):
        assert fabric.run("printf 'détecteur 検出器'", timeout=10).stdout == "détecteur 検出器"

    def test_a_command_that_hangs_ends_with_its_time_out(self, fabric):
        start = time.monotonic()
        with pytest.raises(SshError, match="`sleep` on the machine did not end"):
            fabric.run("sleep 20", timeout=1)
        assert time.monotonic() - start < 15
        assert fabric.run("true", timeout=10).exit_code == 0

    def test_a_command_without_an_exit_status_is_no_result(self, fabric):
        with pytest.raises(SshError, match="`kill` on the machine did not end by itself"):
            fabric.run("kill -9 $$", timeout=10)

    def test_a_detached_program_does_not_hold_the_command(self, fabric, sshd):
        start = time.monotonic()
        fabric.run("nohup setsid sh -c 'sleep 5; echo done >late' >/dev/null 2>&1 </dev/null &", timeout=20)
        assert time.monotonic() - start < 4
        assert not (sshd.home / "late").exists()

    def test_a_secret_is_readable_by_its_user_alone_from_the_start(self, fabric, sshd):
        fabric.put(b"secret", "credentials", mode=0o600)
        fabric.put(b"public", "plain")
        assert stat.S_IMODE((sshd.home / "credentials").stat().st_mode) == 0o600
        assert stat.S_IMODE((sshd.home / "plain").stat().st_mode) == 0o644

    def test_no_temporary_file_stays(self, fabric, sshd):
        fabric.put(ALL_BYTES, "whole")
        assert list(sshd.home.glob("**/*.tmp")) == []

    def test_a_key_that_is_not_authorized_is_an_error_that_may_pass(self, sshd, tmp_path):
        make_key_pair(tmp_path / "stranger")
        with pytest.raises(SshError, match=f"{sshd.target.user}@127.0.0.1"):
            FabricSession(replace(sshd.target, private_key=tmp_path / "stranger"))

    def test_nothing_of_the_users_own_ssh_is_read(self, sshd, tmp_path, monkeypatch):
        """Neither configuration, known hosts nor agent: a stale entry for a reused address must not matter (S05)."""
        home = tmp_path / "user"
        (home / ".ssh").mkdir(parents=True)
        other = make_key_pair(tmp_path / "other").rsplit(" ", 1)[0]
        (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{sshd.target.port} {other}\n")
        (home / ".ssh" / "config").write_text("Host *\n  Port 1\n  User nobody\n  ProxyCommand false\n")
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "no-agent"))
        with FabricSession(sshd.target) as opened:
            assert opened.run("true", timeout=10).exit_code == 0

    def test_a_server_that_dies_under_a_session_is_an_error(self, tmp_path):
        with loopback_sshd.running(tmp_path) as server:
            opened = FabricSession(server.target)
            opened.run("mkdir f", timeout=10)
            of_the_session = int(opened.run("echo $PPID", timeout=10).stdout)
            server.process.kill()
            server.process.wait(10)
            os.kill(of_the_session, signal.SIGKILL)  # a listener that ends leaves its sessions
            with pytest.raises(SshError):
                opened.run("true", timeout=5)
            with pytest.raises(SshError):
                opened.put(b"x", "f/a")
            with pytest.raises(SshError):
                opened.get("f/a")
            opened.close()

    @pytest.mark.slow
    def test_a_server_that_accepts_and_says_nothing_is_given_up(self, sshd):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            target = replace(sshd.target, port=silent.getsockname()[1])
            start = time.monotonic()
            with pytest.raises(SshError, match=f"127.0.0.1:{target.port}"):
                FabricSession(target)
            assert time.monotonic() - start < 1.5 * CONNECT_SECONDS

    def test_small_packets_are_not_held_back(self, fabric):
        """Without TCP_NODELAY each small file takes 40 ms."""
        sock = fabric._connection.client.get_transport().sock
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    def test_a_status_with_a_torn_file_is_an_error_that_may_pass(self, sshd, fabric):
        status = AgentStatus("run", lease().lease_id, Phase.TRAINING, 5.0, 1.0, 42)
        machine = Rig(FabricSession, sshd.target).machine()
        machine.install(bundle())
        fabric.put(protocol.encode(status).encode(), f"{FOLDER}/status.json")
        assert machine.status() == status
        assert (sshd.home / FOLDER / "launcher.beat").exists(), "the agent sees that somebody watches"
        fabric.put(protocol.encode(status)[:50].encode(), f"{FOLDER}/status.json")
        with pytest.raises(SshError, match=r"status\.json"):
            machine.status()
        machine.close()

    def test_a_log_is_the_tasks_own_or_else_the_agents(self, sshd, fabric):
        machine = Rig(FabricSession, sshd.target).machine()
        machine.install(bundle())
        fabric.put(b"agent says\n", f"{FOLDER}/agent.log")
        assert machine.log_tail("job") == "agent says\n"
        fabric.run(f"mkdir -p {FOLDER}/tasks/job", timeout=10)
        fabric.put(b"".join(b"line %d\n" % n for n in range(500)), f"{FOLDER}/tasks/job/train.log")
        assert machine.log_tail("job").splitlines() == [f"line {n}" for n in range(300, 500)]
        machine.close()

    def test_the_agent_is_started_with_its_files_in_place(self, sshd, fabric):
        """It leaves at once, since its lock cannot be had: what counts is that a shell can start it."""
        machine = Rig(FabricSession, sshd.target).machine()
        machine.install(bundle())
        job = protocol.AgentJob(
            "run",
            lease().lease_id,
            1.0,
            ["python3"],
            protocol.StorageSpec("s3://b/p", "us-east-1"),
            protocol.DataSpec("s3://b/d.tar"),
            [],
            ["true"],
        )
        fabric.run(f"mkdir -p {FOLDER}/agent.lock", timeout=10)
        machine.start_agent(job, b"[default]\n")
        folder = sshd.home / FOLDER
        assert stat.S_IMODE((folder / "credentials").stat().st_mode) == 0o600
        assert stat.S_IMODE((folder / "job.json").stat().st_mode) == 0o600
        limit = time.monotonic() + 20
        while "IsADirectoryError" not in (folder / "agent.log").read_text():
            assert time.monotonic() < limit, (folder / "agent.log").read_text()
            time.sleep(0.05)
        machine.close()
