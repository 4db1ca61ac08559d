"""Cases from the field: SSH and connectivity, as whole runs on fakes, and a connection that falls silent for real."""

from __future__ import annotations

from decimal import Decimal

import pytest
from launcher_world import SPOT_EAST, Killed, World

from launcher.events import DataStaged, Outcome, PriceChanged
from launcher.ssh import HostKeyMismatch


class Strangers:
    """The network, on which addresses can come to belong to somebody else."""

    def __init__(self, world):
        self.addresses = set()
        self._connect, world.connector = world.connector, self

    def __call__(self, target):
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
    strangers = Strangers(world)
    run_id = world.open()

    def lost():
        strangers.take(world.machine())
        world.machine().begin_end()
        world.clock.after(40, lambda: world.provider.lose(world.machine()))

    world.clock.at(200, lost)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt, run.preemptions) == (Outcome.DONE, 2, 1)


def test_a_stranger_at_the_address_of_a_machine_that_runs_is_told_nothing_and_ends_the_run(tmp_path):
    world = World(tmp_path)
    strangers = Strangers(world)
    run_id = world.open()

    def between():
        strangers.take(world.machine())
        world.machine().reachable = False  # the connection that is open breaks

    run = world.drive(run_id, report=world.on(DataStaged, between))
    world.check(run_id)
    assert run.outcome is Outcome.FAILED
    assert "answers with another host key" in run.message
    assert f"{world.machine().folder}/command.json" not in world.machine().files


def test_a_stranger_while_the_provider_does_not_answer_proves_nothing(tmp_path):
    world = World(tmp_path)
    strangers = Strangers(world)
    run_id = world.open()

    def lost():
        strangers.take(world.machine())
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
    strangers = Strangers(world)
    run_id = world.open()
    world.clock.at(700, lambda: world.prices.prices.update({SPOT_EAST.key: Decimal("0.21")}))

    def gone():
        strangers.take(world.machine())
        world.provider.lose(world.machine())
        raise Killed

    with pytest.raises(Killed):
        world.drive(run_id, report=world.on(PriceChanged, gone))
    run = world.drive(run_id)
    assert (run.outcome, run.preemptions) == (Outcome.DONE, 1)
