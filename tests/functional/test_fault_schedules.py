"""Seeded schedules of everything that goes wrong, several at a time; the failing seed is in the test's name.

`GPUCOST_SCHEDULES=5000 pytest tests/functional/test_fault_schedules.py` runs more of them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from decimal import Decimal
from random import Random

import pytest
from launcher_world import SPOT_EAST, Killed, World
from pricing_cases import RATES

from launcher.errors import StopUnconfirmed
from launcher.providers.interface import CapacityError, EndCause, UnreachableError
from launcher.run import Event, InstanceCreated, LaunchRequested, Outcome, Run, State
from pricing.cost import cost_lines, refund_lines, total

SCHEDULES = int(os.environ.get("GPUCOST_SCHEDULES", "80"))
HORIZON = 900
"""Seconds in which things go wrong; an undisturbed run takes 385."""


def outage(world: World, random: Random, name: str, target: object, *, works: bool) -> None:
    """Something is out for a while."""
    start, length = random.uniform(0, HORIZON), random.choice([3, 20, 90, 400])
    world.clock.at(start, lambda: setattr(target, name, not works))
    world.clock.at(start + length, lambda: setattr(target, name, works))


def lost_answer(world: World, random: Random) -> None:
    """A launch is carried out and not answered, or neither."""
    error: Exception = UnreachableError("read timed out")
    if random.random() < 0.3:
        error = CapacityError("InsufficientInstanceCapacity")
    world.provider.fail("launch", error, times=random.randint(1, 5), effect=random.random() < 0.7)


def throttled(world: World, random: Random) -> None:
    """Some calls of the provider fail."""
    call = random.choice(["find", "describe", "terminate", "clean_up"])
    world.provider.fail(call, UnreachableError("RequestLimitExceeded"), times=random.randint(1, 6))


def slow_cloud(world: World, random: Random) -> None:
    """Late visibility, slow boots, slow ends, short memory."""
    world.provider.visible_seconds = random.choice([0, 10, 50])
    world.provider.boot_seconds = random.choice([5, 20, 120])
    world.provider.console_seconds = world.provider.boot_seconds + random.choice([1, 10, 100])
    world.provider.end_seconds = random.choice([1, 10, 120])


def failing_trainer(world: World, random: Random) -> None:
    """The trainer ends with a code of its own."""
    world.script.fails_at_epoch = random.randint(1, 6)


def slow_agent(world: World, random: Random) -> None:
    """Saving and uploading take long."""
    world.script.saving = random.choice([1, 30, 90])
    world.script.syncing = random.choice([1, 30, 90])
    world.script.epoch = random.choice([20, 60, 150])
    world.script.checkpoint_epochs = random.choice([1, 2])


FAULTS: list[Callable[[World, Random], None]] = [
    lambda w, r: outage(w, r, "down", w.provider, works=False),
    lambda w, r: outage(w, r, "down", w.connector, works=False),
    lambda w, r: outage(w, r, "down", w.store, works=False),
    lambda w, r: outage(w, r, "terminates", w.provider, works=True),
    lambda w, r: w.preempt_at(r.uniform(0, HORIZON), r.choice([5, 30, 120])),
    lambda w, r: w.lose_at(r.uniform(0, HORIZON)),
    lambda w, r: w.kill_at(r.uniform(0, HORIZON)),
    lambda w, r: w.kill_at(r.uniform(0, HORIZON)),
    lambda w, r: w.signal_at(r.uniform(0, HORIZON), r.choice([signal.SIGINT, signal.SIGTERM])),
    lambda w, r: w.provider.refuse(SPOT_EAST.key, times=r.randint(1, 3)),
    lambda w, r: w.clock.at(r.uniform(0, HORIZON), lambda: [m.kill_agent() for m in w.provider.alive() if m.agent]),
    lost_answer,
    throttled,
    slow_cloud,
    failing_trainer,
    slow_agent,
]


def drive_to_the_end(world: World, run_id: str, random: Random) -> Run:
    """New launchers come until the run is settled, each a while after the one before has died."""
    for _ in range(12):
        try:
            return world.drive(run_id)
        except Killed:
            world.clock.sleep(random.choice([0, 5, 60, 600, 20_000]))
        except StopUnconfirmed:
            assert world.run(run_id).state is State.STOPPING
            world.clock.sleep(600)
    raise AssertionError(f"still {world.run(run_id).state}")


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_whatever_goes_wrong_the_run_ends_and_nothing_is_left(tmp_path, seed):
    random = Random(seed)  # noqa: S311 - seeded on purpose
    world = World(tmp_path)
    for fault in random.sample(FAULTS, random.randint(1, 5)):
        fault(world, random)
    world.connector.connect_seconds = random.choice([1, 10])
    run_id = world.open(budget=random.choice(["5", "0.05", None]), deadline=random.choice([None, "1h"]))
    world.clock.at(20_000 + HORIZON, lambda: setattr(world.provider, "terminates", True))
    run = drive_to_the_end(world, run_id, random)
    assert run.state is State.SETTLED
    assert run.outcome in set(Outcome)
    assert world.provider.alive() == []
    assert world.provider.most_alive <= 1
    leases = [machine.request.lease_id for machine in world.provider.machines]
    assert len(set(leases)) == len(leases)
    world.check_timers(run_id)
    world.check_commands()
    check_money(world, run)
    check_progress(world)
    if run.outcome is Outcome.DONE:
        assert {epoch for _, _, epoch in world.script.trained} == set(range(1, 6))


def check_money(world: World, run: Run) -> None:
    """What the machines really cost is within the budget; every machine that the journal names is in the ledger."""
    truth = Decimal(0)
    for machine in world.provider.machines:
        lived = (machine.ended_at - machine.launched_at).total_seconds()
        offer = machine.request.offer
        truth += total(cost_lines(offer, lived, machine.request.disk_gib, RATES))
        if machine.ended_by is EndCause.PROVIDER:
            truth += total(refund_lines(offer, lived, RATES))
    if run.budget_usd is not None:
        assert truth <= run.budget_usd, "the machines cost more than was allowed"
        assert run.spent_usd <= run.budget_usd, "the ledger says more than was allowed"
    history = world.home.run(run.run_id).journal.events()
    launched = [e.lease.lease_id for e in history if isinstance(e, LaunchRequested)]
    made = {launched[n] for n, answered in enumerate(answers(history)) if answered}
    assert made <= {entry.lease_id for entry in run.entries}


def answers(history: list[Event]) -> list[bool]:
    """For each launch, whether the journal knows a machine of it."""
    found: list[bool] = []
    for event in history:
        if isinstance(event, LaunchRequested):
            found.append(False)
        elif isinstance(event, InstanceCreated):
            found[-1] = True
    return found


def check_progress(world: World) -> None:
    """No more than one checkpoint interval is trained twice at each change of the machine."""
    interval = world.script.checkpoint_epochs
    reached = 0
    lease = ""
    for leased, _, epoch in world.script.trained:
        if leased != lease:
            assert epoch >= reached - interval + 1, "more than one interval was lost"
            lease = leased
        reached = max(reached, epoch)
