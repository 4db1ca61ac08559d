"""Each of the four stops of a paid machine with the three others disabled; which are armed; prices that rise."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from cut_journal import Killed
from fake_compute import power_off_at
from launcher_world import SPOT_EAST, Cut, World
from pricing_cases import RATES

from launcher.events import (
    CheckpointSynced,
    CloudStopArmed,
    DataStaged,
    InstanceReady,
    LimitsChanged,
    Outcome,
    PriceChanged,
)
from launcher.limits import owed_usd
from launcher.live import describe
from launcher.providers.interface import EndCause, RefusedError, UnreachableError
from launcher.report import Happened
from launcher.run import State
from remote.protocol import Budget, decode


def trains_past_its_deadline(world):
    """A plan that promises far too much, so that the deadline comes while training goes on."""
    world.images_per_second, world.script.epoch = 2000, 600
    return world.open(budget=None)


def without(world, *stops):
    """Disable stops: `launcher` by killing it, the others where they are."""
    world.provider.timers = "timer" not in stops
    world.timer.works = "cloud" not in stops
    if "agent" in stops:
        world.clock.at(200, lambda: [m.kill_agent() for m in world.provider.alive() if m.agent])
    if "launcher" in stops:
        world.kill_at(200)


@pytest.mark.parametrize("left", ["launcher", "agent", "timer", "cloud"])
def test_each_of_the_four_stops_ends_the_machine_without_the_others(tmp_path, left):
    world = World(tmp_path)
    run_id = trains_past_its_deadline(world)
    without(world, *({"launcher", "agent", "timer", "cloud"} - {left}))
    run = world.drive_until_killed(run_id)
    lease = run.lease
    world.clock.sleep(48 * 3600)
    (machine,) = world.provider.machines
    assert not machine.alive
    if lease is not None:
        late = (machine.ended_at - lease.deadline).total_seconds()
        allowed = {"agent": 0, "timer": 1, "cloud": world.facts.power_off_seconds}
        assert late <= allowed[left]
    assert (machine.ended_by is EndCause.INSIDE) == (left in {"agent", "timer"})
    settled = world.run(run_id) if left == "launcher" else world.drive(run_id)
    assert settled.state is State.SETTLED


def test_all_four_have_one_and_the_same_deadline(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    seen = {}

    def look():
        lease = world.run(run_id).lease
        machine = world.machine()
        seen["lease"] = lease.deadline
        seen["agent"] = machine.agent.job.deadline
        seen["timer"] = power_off_at(machine.request)
        seen["cloud"] = world.timer.armed[lease.lease_id].fires

    world.drive(run_id, report=world.on(DataStaged, look))
    deadline = seen["lease"]
    assert seen["agent"] == deadline.timestamp()
    assert seen["timer"] == deadline.replace(microsecond=0)
    assert seen["cloud"] == deadline
    assert world.timer.armed == {}, "taken back once the machine is gone"


def test_which_stops_are_armed_and_until_when_is_told(tmp_path):
    world = World(tmp_path)
    told = []

    def report(update):
        if isinstance(update, Happened) and isinstance(update.event, CloudStopArmed):
            told.append(describe(update.event, update.run))

    world.drive(world.open(), report=report)
    (line,) = told
    assert "3 of 4 stops armed: launcher, machine timer, cloud schedule; off by" in line
    assert "NOT armed: agent (not heard of yet)" in line


@pytest.mark.parametrize(
    "error",
    [RefusedError("AccessDeniedException: not authorized", hint="grant it"), UnreachableError("no answer")],
    ids=["refused", "unreachable"],
)
def test_a_cloud_that_holds_no_stop_is_told_and_the_run_goes_on(tmp_path, error):
    world = World(tmp_path)
    world.timer.fail("arm", error, times=1 if isinstance(error, RefusedError) else 9)
    told = []

    def report(update):
        if isinstance(update, Happened) and isinstance(update.event, CloudStopArmed):
            told.append(describe(update.event, update.run))

    run_id = world.open()
    run = world.drive(run_id, report=report)
    assert run.outcome is Outcome.DONE
    assert "2 of 4 stops armed" in told[0]
    assert f"cloud schedule ({error}" in told[0]
    world.check(run_id)


def test_a_cloud_that_answers_late_still_holds_the_stop(tmp_path):
    world = World(tmp_path)
    world.timer.fail("arm", UnreachableError("ThrottlingException"), times=2)
    run_id = world.open()
    armed = []
    world.drive(run_id, report=world.on(InstanceReady, lambda: armed.append(world.run(run_id).lease.cloud_stop_at)))
    assert armed[0] is not None


def test_a_stop_whose_answer_was_lost_is_taken_back_too(tmp_path):
    world = World(tmp_path)
    world.timer.fail("arm", UnreachableError("InternalServerException"), times=4, effect=True)
    world.drive(world.open())
    assert world.timer.armed == {}


def test_a_stop_that_nobody_wrote_down_is_taken_back_too(tmp_path):
    """The launcher died once the cloud held the stop, and the next one ends the run."""
    world = World(tmp_path)
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(4, before=True))
    assert len(world.timer.armed) == 1
    assert world.stop(run_id).lease is None
    assert world.timer.armed == {}


def test_a_machine_that_the_cloud_ended_at_its_deadline_ended_by_its_deadline(tmp_path):
    """To the provider the schedule is a user of the account: that is not somebody's wish to cancel."""
    world = World(tmp_path)
    run_id = trains_past_its_deadline(world)
    without(world, "launcher", "agent", "timer")
    world.drive_until_killed(run_id)
    world.clock.sleep(3 * 3600)
    run = world.drive(run_id)
    assert run.outcome is Outcome.DEADLINE
    assert run.entries[0].ended_at - run.entries[0].started_at < timedelta(hours=1)


def test_a_price_that_rises_while_training_ends_it_under_the_cap(tmp_path):
    world = World(tmp_path)
    world.offers = (SPOT_EAST,)
    world.script.epoch, world.images_per_second = 600, 2
    run_id = world.open(budget="0.30", epochs=5)
    world.clock.at(1500, lambda: world.prices.set(SPOT_EAST.key, Decimal("0.50")))
    run = world.drive(run_id)
    changes = [e for e in world.home.run(run_id).journal.events() if isinstance(e, PriceChanged)]
    assert [e.change.usd_per_hour for e in changes] == [Decimal("0.50")]
    assert run.outcome is Outcome.BUDGET
    assert run.spent_usd <= Decimal("0.30")
    assert run.checkpoints
    (entry,) = run.entries
    assert entry.usd > entry.usd_per_hour * entry.billed_seconds / 3600, "the dearer time is in the ledger"


def test_a_price_that_is_not_given_is_asked_for_again_within_a_minute_or_so(tmp_path):
    world = World(tmp_path)
    world.offers = (SPOT_EAST,)
    world.script.epoch, world.images_per_second = 600, 2
    run_id = world.open(budget="0.30", epochs=5)
    world.clock.at(1500, lambda: world.prices.set(SPOT_EAST.key, Decimal("0.50")))
    world.clock.at(1500, lambda: world.prices.fail(UnreachableError("RequestLimitExceeded"), times=2))
    world.drive(run_id)
    (changed,) = [e for e in world.home.run(run_id).journal.events() if isinstance(e, PriceChanged)]
    assert changed.at - world.clock.start < timedelta(seconds=1500 + 600 + 2 * 60 + 3 * world.facts.poll_seconds)


def test_the_agent_is_told_of_the_new_price(tmp_path):
    world = World(tmp_path)
    world.offers = (SPOT_EAST,)
    world.script.epoch, world.images_per_second = 600, 2
    run_id = world.open(budget="4")
    world.clock.at(700, lambda: world.prices.set(SPOT_EAST.key, Decimal("0.25")))
    told = []

    def report(update):
        if isinstance(update, Happened) and isinstance(update.event, CheckpointSynced):
            told.append([round(point.usd_per_hour, 3) for point in told_budget(world).points])

    world.drive(run_id, report=report)
    (beside,) = {round(prices[0] - 0.20, 3) for prices in told}
    worst = round(0.526 + beside, 3)
    assert told[0] == [round(0.20 + beside, 3), worst]
    assert told[-1] == [round(0.20 + beside, 3), round(0.25 + beside, 3), worst]


def told_budget(world):
    """The newest budget that the agent was given."""
    return decode(world.machine().files[f"{world.machine().folder}/budget.json"].decode(), Budget, "budget.json")


def test_an_agent_that_hears_no_price_any_more_reckons_with_the_on_demand_price(tmp_path):
    """The spot price rises with nobody there to tell it: the cap holds, and the work is saved."""
    world = World(tmp_path)
    world.offers = (SPOT_EAST,)
    world.script.epoch, world.images_per_second = 600, 2
    run_id = world.open(budget="0.30", epochs=5)
    world.clock.at(1000, lambda: world.prices.set(SPOT_EAST.key, Decimal("0.52")))
    world.kill_at(950)
    world.drive_until_killed(run_id)
    world.clock.sleep(6 * 3600)
    assert not world.machine().alive
    run = world.drive(run_id)
    assert run.outcome is Outcome.BUDGET
    assert run.checkpoints
    (entry,) = run.entries
    assert [line.usd_per_unit for line in entry.lines[:2]] == [Decimal("0.20"), Decimal("0.52")], "what was missed"
    assert Decimal("0.2") < run.spent_usd <= Decimal("0.30")


@pytest.mark.parametrize("cap", ["0.10", "9"], ids=["lowered", "raised"])
def test_the_agent_is_told_of_another_budget_and_holds_it_when_the_launcher_dies(tmp_path, cap):
    world = World(tmp_path)
    world.offers = (SPOT_EAST,)
    world.script.epoch, world.images_per_second = 600, 2
    run_id = world.open(budget="4")
    world.kill_at(700)
    world.drive_until_killed(run_id)
    limits = LimitsChanged(at=world.time.now(), budget_usd=Decimal(cap), ends_by=None)
    world.kill_at(world.clock.elapsed + 60)
    with pytest.raises(Killed):
        world.drive(run_id, first=lambda _run: limits)
    assert told_budget(world).cap_usd == pytest.approx(float(cap))
    world.clock.sleep(1200)
    assert world.machine().alive is (cap == "9")
    run = world.drive(run_id)
    assert run.outcome is (Outcome.BUDGET if cap == "0.10" else Outcome.DONE)
    lived = world.machine().ended_at - world.machine().launched_at
    assert lived <= timedelta(hours=float(cap) / float(SPOT_EAST.usd_per_hour))


def test_what_is_owed_never_passes_the_cap_at_any_beat(tmp_path):
    world = World(tmp_path)
    world.script.epoch, world.images_per_second = 300, 200
    run_id = world.open(budget="0.06", epochs=20)
    owed = []

    def report(update):
        run = getattr(update, "run", None)
        if run is not None:
            owed.append(owed_usd(run, world.clock.now(), RATES))

    run = world.drive(run_id, report=report)
    assert run.outcome in {Outcome.BUDGET, Outcome.DEADLINE}
    assert max(owed) <= Decimal("0.06")
