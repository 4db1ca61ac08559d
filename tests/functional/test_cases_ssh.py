"""Cases from the field: SSH and connectivity, as whole runs on fakes, and a connection that falls silent for real."""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from threading import Event, Thread, Timer

import loopback_sshd
import pytest
from launcher_world import SPOT_EAST, Killed, World

from launcher import ssh
from launcher.events import DataStaged, Outcome, PriceChanged
from launcher.ssh import FabricSession, HostKeyMismatch, SshError, make_key_pair

needs_sshd = pytest.mark.skipif(
    loopback_sshd.programs() is None, reason="needs OpenSSH's server: apt-get install openssh-server"
)


class Network:
    """The network, on which addresses can come to belong to somebody else, or lead nowhere."""

    def __init__(self, world):
        self.addresses = set()
        self.nowhere = {}
        """What is answered at an address."""
        self.tries = []
        self._clock = world.clock
        self._connect, world.connector = world.connector, self

    def __call__(self, target):
        self.tries.append(self._clock.elapsed)
        if target.address in self.nowhere:
            raise SshError(f"{target.user}@{target.address}:22: {self.nowhere[target.address]}")
        if target.address in self.addresses:
            raise HostKeyMismatch(f"{target.address} answers with another host key")
        return self._connect(target)

    def take(self, machine):
        """Its address is a stranger's."""
        self.addresses.add(machine.address)


def test_an_address_that_a_second_machine_gets_again_is_no_matter(tmp_path):
    """S05: keys are pinned to the machine, by its own console, and never to an address."""
    world = World(tmp_path)
    run_id = world.open()
    world.provider.on_boot = lambda machine: setattr(machine, "address", "198.51.100.1")
    world.preempt_at(150)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 2)
    assert len({machine.host_key for machine in world.provider.machines}) == 2


def test_a_stranger_at_the_address_of_a_machine_that_is_gone_is_no_fault_of_the_run(tmp_path):
    """S05: the address of a spot machine that was taken back is somebody else's within the minute."""
    world = World(tmp_path)
    network = Network(world)
    run_id = world.open()

    def lost():
        network.take(world.machine())
        world.machine().begin_end()
        world.clock.after(40, lambda: world.provider.lose(world.machine()))

    world.clock.at(200, lost)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt, run.preemptions) == (Outcome.DONE, 2, 1)


def test_a_stranger_at_the_address_of_a_machine_that_runs_is_told_nothing_and_ends_the_run(tmp_path):
    world = World(tmp_path)
    network = Network(world)
    run_id = world.open()

    def between():
        network.take(world.machine())
        world.machine().reachable = False  # the connection that is open breaks

    run = world.drive(run_id, report=world.on(DataStaged, between))
    world.check(run_id)
    assert run.outcome is Outcome.FAILED
    assert "answers with another host key" in run.message
    assert f"{world.machine().folder}/command.json" not in world.machine().files


def test_a_stranger_while_the_provider_does_not_answer_proves_nothing(tmp_path):
    world = World(tmp_path)
    network = Network(world)
    run_id = world.open()

    def lost():
        network.take(world.machine())
        world.provider.lose(world.machine())
        world.provider.down = True
        world.clock.after(120, lambda: setattr(world.provider, "down", False))

    world.clock.at(200, lost)
    run = world.drive(run_id)
    world.check(run_id, late_seconds=180)
    assert (run.outcome, run.preemptions) == (Outcome.DONE, 1)


def test_a_launcher_that_comes_back_after_the_address_was_given_away_goes_on_elsewhere(tmp_path):
    """The first thing that it has to say is a new price; there is nobody to say it to."""
    world = World(tmp_path)
    world.script.epoch, world.images_per_second = 600, 2
    network = Network(world)
    run_id = world.open()
    world.clock.at(700, lambda: world.prices.set(SPOT_EAST.key, Decimal("0.21")))

    def gone():
        network.take(world.machine())
        world.provider.lose(world.machine())
        raise Killed

    with pytest.raises(Killed):
        world.drive(run_id, report=world.on(PriceChanged, gone))
    run = world.drive(run_id)
    assert (run.outcome, run.preemptions) == (Outcome.DONE, 1)


FIRST = "198.51.100.1"
"""The address of the first machine."""


def is_the_first(machine):
    return machine.number == 1


def never_runs(world, network):
    world.provider.boot_seconds = 5000


def has_no_address(world, network):
    world.provider.on_boot = lambda machine: is_the_first(machine) and setattr(machine, "address", None)


def shows_no_key(world, network):
    world.provider.console_seconds = 5000


def out_of_reach(world, network):
    network.nowhere[FIRST] = "timed out"


def nothing_listens(world, network):
    network.nowhere[FIRST] = "[Errno 111] Connection refused"


def wrong_user(world, network):
    network.nowhere[FIRST] = "Authentication failed."


@pytest.mark.parametrize(
    ("trouble", "cause", "seen"),
    [
        (never_runs, "still being started", "booting"),
        (has_no_address, "no public address, since its subnet gives none", "booting"),
        (shows_no_key, "console shows no host key: a slow or broken boot", "booting"),
        (out_of_reach, "a security group, a route, or this computer's address has changed", "timed out"),
        (nothing_listens, "nothing answers on its SSH port", "Connection refused"),
        (wrong_user, "does not take the key for user ubuntu", "Authentication failed."),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_machine_that_lets_nobody_in_is_given_up_in_time_with_the_likely_cause(tmp_path, trouble, cause, seen):
    """S07, S09: retried for ever, and no reason shown. The wait is the user's, the console is shown, another place
    follows.
    """
    world = World(tmp_path)
    network = Network(world)
    trouble(world, network)
    world.clock.at(245, lambda: [setattr(world.provider, f"{name}_seconds", 20) for name in ("boot", "console")])
    run_id = world.open(boot_limit="4m")
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, [entry.region for entry in run.entries]) == (Outcome.DONE, ["us-east-1", "us-west-2"])
    (refusal,) = run.refusals
    assert "no login after 240 s" in refusal.reason
    assert cause in refusal.reason
    assert seen in refusal.reason.partition("last seen: ")[2]
    assert 240 <= (refusal.at - world.clock.start).total_seconds() < 260
    assert world.notes().count(f"no login yet: {refusal.reason.removeprefix('no login after 240 s: ')}") == 1
    tries = [moment for moment in network.tries if moment < 240]
    assert all(after - before >= world.facts.poll_seconds for before, after in pairwise(tries))


def test_a_wait_that_is_longer_than_the_clouds_is_honoured(tmp_path):
    """S07: 600 s were too short for some machines."""
    world = World(tmp_path)
    world.provider.console_seconds, world.images_per_second = 900, 2
    run_id = world.open(boot_limit="20m")
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)
    assert world.facts.boot_limit_seconds < 900


def test_a_provider_that_does_not_answer_while_a_machine_starts_is_the_cause_that_is_named(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.clock.at(1, lambda: setattr(world.provider, "down", True))
    world.clock.at(602, lambda: setattr(world.provider, "down", False))
    run = world.drive(run_id)
    world.check(run_id)
    assert [refusal.reason for refusal in run.refusals] == [
        "no login after 600 s: the provider does not answer; last seen: no route to the provider"
    ]


class Wire:
    """A way to a server on loopback that can fall silent: nothing is refused, and nothing comes back."""

    def __init__(self, port):
        self.silent = False
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._over = Event()
        Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._over.set()
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client):
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._server_port)) as server:
            while not self._over.is_set():
                for ready in select.select([client, server], [], [], 0.02)[0]:
                    if self.silent:
                        self._over.wait(0.02)
                        continue
                    content = ready.recv(65536)
                    if not content:
                        return
                    (server if ready is client else client).sendall(content)


@needs_sshd
@pytest.mark.parametrize("call", ["a new command", "a command under way", "get", "put"])
def test_a_connection_that_falls_silent_ends_each_call_in_time_and_another_one_is_opened(tmp_path, monkeypatch, call):
    """S02, S03: `run` hung for an hour, since the channel's own time-out is 3600 s and nobody counts keepalives. Here
    each call has a limit of its own, and the launcher looks every few seconds.
    """
    assert ssh.CHANNEL_SECONDS <= 20
    monkeypatch.setattr(ssh, "CHANNEL_SECONDS", 1)
    with loopback_sshd.running(tmp_path) as server, Wire(server.target.port) as wire:
        target = replace(server.target, port=wire.port)
        with FabricSession(target) as session:
            session.put(b"x", "file")
            if call == "a command under way":
                Timer(0.3, lambda: setattr(wire, "silent", True)).start()
            else:
                wire.silent = True
            began = time.monotonic()
            with pytest.raises(SshError):
                {
                    "a new command": lambda: session.run("true", timeout=1),
                    "a command under way": lambda: session.run("sleep 30", timeout=1),
                    "get": lambda: session.get("file"),
                    "put": lambda: session.put(b"y", "file"),
                }[call]()
        assert time.monotonic() - began < 5, "closing it does not wait either"
        wire.silent = False
        with FabricSession(target) as again:
            assert again.run("true", timeout=10).exit_code == 0


@needs_sshd
def test_the_words_of_a_real_connection_tell_the_causes_apart(tmp_path):
    with loopback_sshd.running(tmp_path) as server:
        make_key_pair(tmp_path / "stranger")
        with pytest.raises(SshError, match="Authentication failed"):
            FabricSession(replace(server.target, private_key=tmp_path / "stranger"))
    with pytest.raises(SshError, match="Connection refused"):
        FabricSession(server.target)
