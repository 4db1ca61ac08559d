"""Whatever a run has been through, it can be brought to its end: no path leads around the stop, and money adds up."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launcher_world import World
from run_cases import SELECTION, checkpoint, entry, fold, later, opened

from launcher import events
from launcher import run as table
from launcher.events import Event, Lease, Outcome
from launcher.journal import decode, encode, replay
from launcher.run import TRANSITIONS, Run, State
from pricing.cost import PriceChange
from remote.protocol import Reason

STEPS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 900)), max_size=25)
"""A choice among what is legal, and the seconds until then."""


def possible(run: Run) -> list[type[Event]]:
    """What the table and the lease allow next; what leads on is in it more often than what stops a lease."""
    found = []
    for (state, kind), _ in sorted(TRANSITIONS.items(), key=str):
        needs_none = kind in {events.LaunchRequested, events.Replanned, events.Settled}
        blocked = (needs_none and run.lease is not None) or (kind is events.LeaseClosed and run.lease is None)
        unmade = kind in {events.InstanceReady, events.CloudStopArmed} and (
            run.lease is None or run.lease.instance_id is None
        )
        if state is run.state and not blocked and not unmade:
            found += [kind] * (1 if kind in table.STOPS_A_LEASE else 4)
    return [kind for kind in found if run.lease is not None or kind is not events.InstanceCreated]


def make(kind: type[Event], run: Run, choice: int, elapsed: float) -> Event:
    """One event of this kind that could have happened."""
    at = later(elapsed)
    makers: dict[type[Event], Callable[[], Event]] = {
        events.LaunchRequested: lambda: events.LaunchRequested(
            at=at, lease=next_lease(run, elapsed), data_url=str(run.opened.data_url), data_sha256=None, data_files=None
        ),
        events.InstanceCreated: lambda: events.InstanceCreated(at=at, instance_id=f"i-{run.attempt:04d}"),
        events.InstanceReady: lambda: events.InstanceReady(
            at=at,
            address=f"198.51.100.{run.attempt}",
            host_key=f"ssh-ed25519 KEY{run.attempt}",
            running_since=at,
        ),
        events.Claimed: lambda: events.Claimed(at=at, launcher=f"host/{choice % 3}"),
        events.LimitsChanged: lambda: events.LimitsChanged(at=at, budget_usd=Decimal(choice % 9), ends_by=None),
        events.CloudStopArmed: lambda: events.CloudStopArmed(
            at=at, until=None if choice % 2 else later(elapsed + 3600), message="not permitted" if choice % 2 else ""
        ),
        events.PriceChanged: lambda: events.PriceChanged(
            at=at, change=PriceChange(at, Decimal(1 + choice % 9) / Decimal(10))
        ),
        events.Abandoned: lambda: events.Abandoned(at=at, message="of no use"),
        events.DataStaged: lambda: events.DataStaged(at=at),
        events.CheckpointSynced: lambda: events.CheckpointSynced(at=at, checkpoint=checkpoint(1 + choice % 4)),
        events.TrainingExited: lambda: events.TrainingExited(
            at=at, reason=list(Reason)[choice % len(Reason)].value, exit_code=choice % 3, message="ended"
        ),
        events.ArtifactsSynced: lambda: events.ArtifactsSynced(at=at, files=choice % 4),
        events.CapacityRefused: lambda: events.CapacityRefused(at=at, message="none left"),
        events.Preempted: lambda: events.Preempted(at=at, message="taken back"),
        events.StepFailed: lambda: events.StepFailed(
            at=at, message="it broke", hint="", outcome=list(Outcome)[choice % len(Outcome)]
        ),
        events.Cancelled: lambda: events.Cancelled(at=at, message="interrupted"),
        events.LeaseClosed: lambda: events.LeaseClosed(
            at=at, entry=None if choice % 3 == 0 else entry(run.attempt, choice % 500)
        ),
        events.Replanned: lambda: events.Replanned(at=at, selection=run.selection, message="again"),
        events.Settled: lambda: events.Settled(at=at, outcome=list(Outcome)[choice % len(Outcome)], message=""),
        events.Reopened: lambda: events.Reopened(at=at, budget_usd=Decimal(50), ends_by=None, selection=run.selection),
    }
    return makers[kind]()


def next_lease(run: Run, elapsed: float) -> Lease:
    """A lease for an hour, as `prepare` numbers them."""
    number = run.attempt + 1
    basis = events.DeadlineBasis.BUDGET
    return Lease(
        f"{run.run_id}-{number}", f"token{number}", run.selection, later(elapsed + 3600), basis, 100, later(elapsed)
    )


def walk(first: events.RunOpened, steps: list[tuple[int, int]]) -> tuple[list[Event], Run, float]:
    """A legal history, the run that it leads to, and when it ends."""
    history: list[Event] = [first]
    run, elapsed = table.opened(first), 0.0
    for choice, seconds in steps:
        kinds = possible(run)
        elapsed += seconds
        event = make(kinds[choice % len(kinds)], run, choice, elapsed)
        run = table.advance(run, event)
        history.append(event)
    return history, run, elapsed


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_no_lease_is_left_or_doubled_on_any_path(steps):
    history, run, _ = walk(opened(), steps)
    open_leases = 0
    for event in history:
        if isinstance(event, events.Replanned | events.Settled | events.Reopened):
            assert open_leases == 0, "a lease was left"
        open_leases += isinstance(event, events.LaunchRequested)
        open_leases -= isinstance(event, events.LeaseClosed)
        assert open_leases in {0, 1}
    assert (run.lease is not None) == (open_leases == 1)
    paid = [event.entry for event in history if isinstance(event, events.LeaseClosed) and event.entry is not None]
    assert run.entries == tuple(paid)
    assert run.spent_usd == sum((one.usd for one in paid), Decimal(0))


@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_a_history_comes_back_from_its_lines_as_the_same_run(steps):
    history, run, _ = walk(opened(), steps)
    lines = [encode(number, event) for number, event in enumerate(history, 1)]
    assert replay([decode(line, "line") for line in lines], "journal") == run


@given(STEPS, st.data())
@settings(max_examples=100, deadline=None)
def test_every_beginning_of_a_history_is_a_run(steps, data):
    history, _, _ = walk(opened(), steps)
    cut = data.draw(st.integers(1, len(history)))
    assert replay(history[:cut], "journal") == fold(history[:cut])


@contextmanager
def world_after(steps: list[tuple[int, int]], *, machine_lives: bool) -> Iterator[tuple[World, str, Run]]:
    """A world in which a run has this history; the machine of its open lease may still be there."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(os, "fsync"):
        world = World(Path(folder))
        run_id = world.open()
        journal = world.home.run(run_id).journal
        first = journal.events()[0]
        assert isinstance(first, events.RunOpened)
        history, run, elapsed = walk(first, steps)
        for event in history[1:]:
            journal.append(event)
        if machine_lives and run.lease is not None:
            world.place_machine(run)
        world.clock.sleep(elapsed)
        yield world, run_id, run


@given(STEPS, st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_run_is_driven_to_its_end_with_nothing_left(steps, machine_lives):
    with world_after(steps, machine_lives=machine_lives) as (world, run_id, before):
        run = world.drive(run_id)
        assert run.state is State.SETTLED
        assert run == world.run(run_id)
        assert world.provider.alive() == []
        assert world.provider.most_alive <= 1
        assert run.entries[: len(before.entries)] == before.entries
        assert run.spent_usd == sum((one.usd for one in run.entries), Decimal(0))
        leases = [one.lease_id for one in run.entries]
        assert len(set(leases)) == len(leases)
        world.check_commands()


@given(STEPS, st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_run_can_be_stopped_from_outside_without_a_new_machine(steps, machine_lives):
    with world_after(steps, machine_lives=machine_lives) as (world, run_id, before):
        made = len(world.provider.machines)
        run = world.stop(run_id)
        assert run.state is State.SETTLED
        assert world.provider.alive() == []
        if before.state is not State.STOPPING:
            assert len(world.provider.machines) == made


def test_the_walk_reaches_every_state_and_every_event():
    """The tests above mean nothing where their histories are all alike."""
    kinds, states = set(), set()
    random = Random(1)  # noqa: S311 - a fixed seed is the point
    for _ in range(400):
        steps = [(random.randrange(10**6), 30) for _ in range(25)]
        history, _, _ = walk(replace(opened(), selection=SELECTION), steps)
        kinds |= {type(event) for event in history}
        states |= {fold(history[:n]).state for n in range(1, len(history) + 1)}
    assert states == set(State)
    assert kinds == {kind for _, kind in TRANSITIONS} | {events.RunOpened}
