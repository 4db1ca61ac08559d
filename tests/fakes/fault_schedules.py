"""Seeded schedules of everything that goes wrong, several at a time, played on the launcher's real code.

`python tests/fakes/fault_schedules.py SEED [COUNT]` plays one again, or so many from there on, and says what happens.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from random import Random
from unittest import mock

import cloud_truth as truth
from cut_journal import Killed
from fake_agent import AgentScript
from pricing_cases import FULL_RATES, RATES
from schedule_faults import FAULTS, Schedule
from schedule_world import ScheduleWorld

from launcher.claim import HeldElsewhere
from launcher.clouds import AWS
from launcher.errors import BadInput, NoPlan, StopUnconfirmed
from launcher.events import Event, LimitsChanged, Outcome
from launcher.mirror import Fenced
from launcher.run import Run, State
from launcher.storage.interface import StorageError

EPOCHS = 4
MINUTE = 60
DEAREST_USD_PER_SECOND = 0.27 / 3600
"""Of the dearer spot machine with its disk and address."""
MOST_FAULTS = 7
LAUNCHERS = 25
"""So many come one after the other before a schedule is given up."""
GAPS = (0, 5, 60, 600, 20_000)
"""Seconds from the death of a launcher to the next one."""
KNOWN_ENDS = (Killed, HeldElsewhere, Fenced, StopUnconfirmed)
"""How a launcher beside the first one may end."""
CHUNK = 25
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Played:
    """How a schedule went."""

    seed: int
    faults: tuple[str, ...] = ()
    outcome: str = ""
    machines: int = 0
    launchers: int = 0
    without_stops: int = 0
    """Machines that none of the three stops without a launcher would have ended."""
    intervals_lost: float = 0.0
    """The most work that was lost at once, in checkpoint intervals."""
    over_usd: dict[str, Decimal] = field(default_factory=dict)
    """By how much the budget was exceeded, and why that is excused."""
    failure: str = ""
    """The traceback of a schedule in which something did not hold."""

    def __str__(self) -> str:
        told = f"seed {self.seed}: {self.outcome or 'no end'}, {self.machines} machines, {self.launchers} launchers"
        lines = [told, *(f"  - {fault}" for fault in self.faults)]
        if self.failure:
            lines += [self.failure.rstrip(), f"  again: python tests/fakes/fault_schedules.py {self.seed}"]
        return "\n".join(lines)


def play(seed: int, folder: Path) -> Played:
    """Play one schedule and check everything."""
    schedule = made(seed, folder)
    try:
        played = _checked(schedule, seed)
    except Exception:  # noqa: BLE001 - whatever it is, the seed is told with it
        played = Played(seed, failure=traceback.format_exc())
    finally:
        for other in schedule.others:
            other.kill()
    return replace(played, faults=tuple(schedule.faults), launchers=len(schedule.world.truth.lives))


def made(seed: int, folder: Path) -> Schedule:
    """The world, the run and its faults."""
    random = Random(seed)  # noqa: S311 - seeded on purpose
    script = AgentScript(epoch=random.choice([20, 60, 60, 150, 400]), checkpoint_epochs=random.choice([1, 1, 2]))
    facts = replace(AWS, poll_seconds=random.choice([5, 15, 25, 25]) if script.epoch <= MINUTE else 40)
    promised = script.epoch / random.choice([1, 1, 3])
    world = ScheduleWorld(
        folder, facts, script=script, images_per_second=1000 / promised, rates=random.choice([RATES, FULL_RATES])
    )
    world.connector.connect_seconds = random.choice([1, 10])
    schedule = Schedule(world, random, horizon=150 + EPOCHS * script.epoch)
    limits = _limits(random, (300 + EPOCHS * promised) * DEAREST_USD_PER_SECOND)
    schedule.run_id = _opened(world, limits)
    schedule.faults.append(f"{limits}, epochs of {script.epoch} s, saved each {script.checkpoint_epochs}")
    schedule.drawn = random.sample(FAULTS, random.randint(1, MOST_FAULTS))
    for fault in schedule.drawn:
        schedule.faults.append(fault(schedule))
    return schedule


def _limits(random: Random, usd: float) -> dict[str, str | None]:
    """A budget around what is needed, or none; seldom a deadline."""
    factor = random.choice([1.0, 1.3, 2.0, 20, None])
    budget = None if factor is None else f"{factor * usd:.4f}"
    return {"budget": budget, "deadline": random.choice([None, None, None, "1h", "20m"])}


def _opened(world: ScheduleWorld, limits: dict[str, str | None]) -> str:
    try:
        return world.open(**limits, epochs=EPOCHS)
    except NoPlan:
        return world.open(budget="1", deadline=None, epochs=EPOCHS)


# -- playing -----------------------------------------------------------------------------------------------------------


def _checked(schedule: Schedule, seed: int) -> Played:
    world = schedule.world
    last = _to_the_end(schedule)
    world.clock.sleep(48 * 3600)
    for other in schedule.others:
        _require_known_end(other.error)
    if last is not None:
        truth.check_mirror(last, schedule.run_id)
    world.store.heal()
    if last is not world or schedule.others:
        with suppress(BadInput):  # nothing was launched, and nothing is in the storage
            world.adopt(schedule.run_id)
    run = world.run(schedule.run_id)
    told = truth.stories(world.home.run(schedule.run_id).journal.events())
    if run.state is State.SETTLED:
        truth.check_nothing_is_left(world)
    truth.check_leases(world, run)
    world.check_timers(schedule.run_id)
    world.check_commands()
    without_stops = truth.check_ends(world, told)
    if run.outcome is Outcome.DONE:
        assert {epoch for _, _, epoch in world.script.trained} == set(range(1, EPOCHS + 1))
    return Played(
        seed,
        outcome=run.outcome.value if run.outcome is not None else "",
        machines=len(world.provider.machines),
        without_stops=without_stops,
        intervals_lost=truth.check_work(world),
        over_usd=truth.check_money(world, run, told),
    )


def _to_the_end(schedule: Schedule) -> ScheduleWorld | None:
    """New launchers come until the run is settled: the machine of the last one. None: nobody came any more."""
    world = schedule.world
    for number in range(LAUNCHERS):
        world.set_clock(schedule.random.choice(schedule.clocks))
        try:
            world.live(lambda here=world: _one_life(schedule, here))
        except Killed:
            if schedule.leaves_it:
                return None
            world.clock.sleep(schedule.random.choice(GAPS))
        except StopUnconfirmed:
            assert world.run(schedule.run_id).state is State.STOPPING
            world.clock.sleep(600)
        except (HeldElsewhere, Fenced):
            world.clock.sleep(300)
        else:
            return world
        world = _next_machine(schedule, world, number)
    raise AssertionError(f"still {world.run(schedule.run_id).state} after {LAUNCHERS} launchers")


def _one_life(schedule: Schedule, world: ScheduleWorld) -> Run:
    cut = schedule.cuts.pop(0) if schedule.cuts else None
    more = schedule.more_usd if cut is None else None

    def first(run: Run) -> Event | None:
        if more is None or run.budget_usd is None or run.state is State.SETTLED:
            return None
        schedule.more_usd = None
        return LimitsChanged(at=world.time.now(), budget_usd=run.budget_usd + more, ends_by=run.ends_by)

    return world.drive(schedule.run_id, cut=cut, first=first)


def _next_machine(schedule: Schedule, world: ScheduleWorld, number: int) -> ScheduleWorld:
    """Where the next launcher is: on the same machine, or on a fresh one that knows the prefix only."""
    if not schedule.moves:
        return world
    fresh = schedule.world.elsewhere(f"next{number}")
    try:
        fresh.adopt(schedule.run_id)
    except (BadInput, StorageError):  # nothing of the run is in the storage, or it does not answer
        return world
    return fresh


def _require_known_end(error: BaseException | None) -> None:
    if error is not None and not isinstance(error, KNOWN_ENDS):
        raise error


# -- many of them ------------------------------------------------------------------------------------------------------


@contextmanager
def _quick_folder() -> Iterator[Path]:
    """In memory where that can be: what a killed process wrote is not lost, so no fsync is needed either."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder, mock.patch.object(os, "fsync"):
        yield Path(folder)


def play_some(seeds: range) -> list[Played]:
    """In this process."""
    gc.freeze()
    gc.disable()  # it takes a tenth of the time; what is left of some schedules does not fill the memory
    with _quick_folder() as folder:
        played = [play(seed, folder / str(seed)) for seed in seeds]
    gc.enable()
    gc.collect()
    return played


def play_all(count: int, first: int = 0) -> list[Played]:
    """In a process for each core."""
    end = first + count
    chunks = [range(begin, min(begin + CHUNK, end)) for begin in range(first, end, CHUNK)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return [played for some in pool.map(play_some, chunks) for played in some]


def summary(all_played: Iterable[Played], seconds: float) -> str:
    """What it came to, in a few lines."""
    listed = list(all_played)
    ends: dict[str, int] = {}
    for played in listed:
        ends[played.outcome] = ends.get(played.outcome, 0) + 1
    counts = ", ".join(f"{name or 'no end'} {count}" for name, count in sorted(ends.items()))
    machines, bare = sum(one.machines for one in listed), sum(one.without_stops for one in listed)
    lines = (
        f"{len(listed)} schedules in {seconds:.0f} s, {sum(bool(one.failure) for one in listed)} failed",
        f"outcomes: {counts}",
        f"launchers: {sum(one.launchers for one in listed)}",
        f"machines: {machines}, of which {bare} had no stop but the launcher's",
        f"most work lost at once: {max(one.intervals_lost for one in listed):.2f} checkpoint intervals",
        *(f"most over budget, excused since {why}: {usd:.4f} USD" for why, usd in _most_over(listed)),
    )
    return "\n".join(lines)


def _most_over(all_played: list[Played]) -> list[tuple[str, Decimal]]:
    found: dict[str, Decimal] = {}
    for played in all_played:
        for why, usd in played.over_usd.items():
            found[why] = max(usd, found.get(why, usd))
    return sorted(found.items())


def main(arguments: list[str]) -> int:
    """See the module."""
    first, count = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    begun = time.monotonic()
    played = play_some(range(first, first + 1)) if count == 1 else play_all(count, first)
    shown = played if count == 1 else [one for one in played if one.failure]
    sys.stdout.write("\n".join([*map(str, shown), summary(played, time.monotonic() - begun), ""]))
    return int(any(one.failure for one in played))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
