"""Cases from the field: cost surprises and orphans, as whole runs on fakes."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace

import pytest
from fake_compute import power_off_at
from launcher_world import DATA, SPOT_EAST, SPOT_WEST, Cut, World
from pricing_cases import FULL_RATES, RATES

from launcher import app
from launcher.cli.runs import stop_command
from launcher.context import Context
from launcher.errors import StopUnconfirmed
from launcher.events import (
    CheckpointSynced,
    DataStaged,
    InstanceCreated,
    InstanceReady,
    LaunchRequested,
    Outcome,
    TrainingExited,
)
from launcher.limits import owed_usd
from launcher.mirror import Fenced
from launcher.planning import first_plan
from launcher.providers.interface import CapacityError, UnreachableError
from launcher.render import show_plan, show_runs
from launcher.report import Beat
from launcher.run import State
from remote.protocol import StoredRun

ARMED = 4
"""The journal line of a process after which the cloud holds the stop: claimed, asked for, created, armed."""


# -- armed in the create call ------------------------------------------------------------------------------------------


def test_twenty_machines_that_are_asked_for_at_once_are_all_armed_and_end_without_anybody(tmp_path):
    """C11: of many clusters that were started at once some had no autodown, which was set after the launch."""
    world = World(tmp_path)
    waiting = [world.open(name=f"job-{number}") for number in range(20)]
    runs = list(waiting)
    launch = world.provider.launch

    def meanwhile_the_next(request):
        made = launch(request)
        if waiting:
            world.drive_until_killed(waiting.pop(), cut=Cut(ARMED, before=False))
        return made

    world.provider.launch = meanwhile_the_next
    world.drive_until_killed(waiting.pop(), cut=Cut(ARMED, before=False))
    leases = {run.lease.lease_id: run.lease for run in map(world.run, runs)}
    assert len(world.provider.alive()) == len(leases) == 20
    for machine in world.provider.machines:
        lease = leases[machine.request.lease_id]
        assert power_off_at(machine.request) == lease.deadline.replace(microsecond=0), "in the create call itself"
        assert world.timer.armed[lease.lease_id].ref == machine.ref
        assert world.timer.armed[lease.lease_id].fires == lease.deadline
    world.timer.works = False
    world.clock.sleep(24 * 3600)
    assert world.provider.alive() == []
    assert all(machine.ended_at <= leases[machine.request.lease_id].deadline for machine in world.provider.machines)


# -- a launch that fails, is cut, or meets an end ----------------------------------------------------------------------


def test_what_a_launch_made_before_it_failed_is_taken_back_and_the_run_goes_on(tmp_path):
    """C06: a creation that failed in the middle left what it had made until then."""
    world = World(tmp_path)
    launch = world.provider.launch

    def half_done(request):
        world.provider.resources |= {(request.offer.region, request.run_id, one) for one in ("group", "key")}
        if request.offer == SPOT_EAST:
            raise CapacityError("InsufficientInstanceCapacity")
        return launch(request)

    world.provider.launch = half_done
    run_id = world.open()
    run = world.drive(run_id)
    assert run == world.check(run_id), "which looks for what is left, in every region"
    assert (run.outcome, run.selection.offer) == (Outcome.DONE, SPOT_WEST)


@pytest.mark.parametrize(
    "phase", [LaunchRequested, InstanceCreated, InstanceReady, DataStaged, CheckpointSynced, TrainingExited]
)
def test_after_an_interrupt_in_any_phase_nobody_holds_the_run_and_another_computer_goes_on(tmp_path, phase):
    """C18: Ctrl-C left the instance "busy" for ever."""
    world = World(tmp_path)
    run_id = world.open()
    run = world.drive(run_id, report=world.on(phase, world.signal))
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert world.home.run(run_id).journal.writer() is None
    runner = world.elsewhere()
    runner.adopt(run_id)
    again = runner.reopen(run_id, budget="5")
    runner.check(run_id)
    assert again.outcome is Outcome.DONE
    trained = [epoch for _, _, epoch in world.script.trained]
    assert sorted(trained) == [1, 2, 3, 4, 5], "and what was trained is not trained again"


def test_a_launch_is_known_by_token_name_and_place_before_it_is_made(tmp_path):
    """C25: Ctrl-C in a create call of half a minute left a machine that no state knew."""
    world = World(tmp_path)
    run_id = world.open()
    launch, known = world.provider.launch, []

    def look(request):
        lease = world.run(run_id).lease
        known.append((lease.token, lease.lease_id, lease.selection.offer, lease.deadline))
        return launch(request)

    world.provider.launch = look
    world.drive_until_killed(run_id, cut=Cut(3, before=True))
    request = world.machine().request
    assert known == [(request.token, request.lease_id, request.offer, request.deadline)]
    run = world.stop(run_id)
    world.check(run_id)
    assert (run.outcome, len(run.entries)) == (Outcome.CANCELLED, 1), "found by them, ended and accounted for"


def test_the_users_limit_is_kept_to_the_minute_whoever_is_silent(tmp_path):
    """C20: the limit was set to an hour, and the machine was ended after five minutes."""
    world = World(tmp_path)
    world.script.epoch, world.images_per_second = 3000, 1
    run_id = world.open(budget=None, deadline="3h", epochs=5)
    world.kill_at(300)
    run = world.drive_until_killed(run_id)
    assert timedelta(0) <= world.clock.start + timedelta(hours=3) - run.lease.deadline < timedelta(minutes=1)
    world.clock.sleep(5 * 3600)
    left = run.lease.deadline - world.machine().ended_at
    assert timedelta(0) <= left < timedelta(seconds=world.facts.save_reserve_seconds), "all of it was for training"
    assert [epoch for _, _, epoch in world.script.trained] == [1, 2, 3]


# -- which end it is ---------------------------------------------------------------------------------------------------


def test_a_machine_that_a_provider_only_stops_is_never_called_gone(tmp_path):
    """C26, C40: `down` stopped the machine, and its disk was billed on."""
    world = World(tmp_path)
    world.provider.terminate = lambda ref: world.machine().stop_from_outside()
    run_id = world.open()
    with pytest.raises(StopUnconfirmed, match="IS NOT CONFIRMED GONE AND MAY STILL BE BILLED"):
        world.drive(run_id)
    run = world.run(run_id)
    assert (run.state, run.entries) == (State.STOPPING, ())
    assert "LeaseClosed" not in world.events(run_id)


def test_the_stop_command_says_that_it_terminates():
    """C26: which of the two ends it is, is said before it is chosen."""
    assert "terminate the machine, confirm that it is gone" in str(stop_command.help)


# -- what is shown of the money ----------------------------------------------------------------------------------------


def test_the_money_that_is_shown_is_that_of_every_machine_so_far(tmp_path):
    """C14: a table showed the 0.38 USD/h of the controller, and not the 12.80 USD/h of the job."""
    world = World(tmp_path)
    run_id = world.open()
    world.preempt_at(200)
    shown = []

    def report(update):
        if isinstance(update, Beat) and update.run.entries:
            now = world.clock.now()
            lived = (now - update.run.lease.running_since).total_seconds()
            shown.append((update.usd, lived, show_runs([(update.run, owed_usd(update.run, now, RATES))])))

    run = world.drive(run_id, report=report)
    ended, open_one = run.entries
    assert len(shown) > 10
    for usd, lived, listed in shown:
        assert usd > ended.usd + open_one.usd_per_hour * Decimal(lived) / 3600
        assert f"${usd:.4f}" in listed


def test_each_machine_is_charged_at_its_own_prices_with_its_disk_and_nothing_after_its_end(tmp_path):
    """C21: a dynamic price was miscalculated, finished jobs were still in it, and the cost of volumes was missing."""
    world = World(tmp_path)
    world.script.epoch, world.images_per_second = 900, 1.5
    run_id = world.open(budget=None)
    world.clock.at(1000, lambda: world.prices.set(SPOT_EAST.key, Decimal("0.40")))
    world.preempt_at(2500)
    world.clock.at(4000, lambda: world.prices.set(SPOT_EAST.key, Decimal(9)))
    run = world.drive(run_id)
    world.check(run_id)
    first, second = run.entries
    assert [line.usd_per_unit for line in first.lines[:2]] == [Decimal("0.20"), Decimal("0.40")], "from the launch on"
    assert sum(line.quantity for line in first.lines[:2]) == pytest.approx(Decimal(first.billed_seconds) / 3600)
    assert second.lines[0].usd == SPOT_WEST.usd_per_hour * second.lines[0].quantity
    assert all(any(line.what.startswith("disk") for line in entry.lines) for entry in run.entries)
    later = world.clock.now() + timedelta(days=30)
    assert owed_usd(run, later, RATES) == run.spent_usd == first.usd + second.usd


def test_a_bucket_in_another_region_is_warned_of_before_anything_is_started(tmp_path):
    """C32: reads across regions went from nothing to about 1,000 USD a month."""
    world = World(tmp_path, rates=FULL_RATES, bucket_region="eu-west-1")
    run = world.run(world.open())
    plan = first_plan(world.job(run), DATA, world.catalog(), world.clock.now())
    (warning,) = [line for line in show_plan(plan).splitlines() if "the bucket is in eu-west-1" in line]
    assert "a bucket in us-east-1 would save that" in warning
    assert world.provider.calls == []
    beside = World(tmp_path / "beside", rates=FULL_RATES, bucket_region="us-east-1")
    plan = first_plan(world.job(run), DATA, beside.catalog(), world.clock.now())
    assert "the bucket is in" not in show_plan(plan)


# -- two that act at one time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["find", "launch"])
def test_no_machine_is_launched_for_a_run_that_was_ended_elsewhere_meanwhile(tmp_path, call):
    """C17: an instance was added to a fleet that was being terminated. The launcher's computer slept, or its call was
    not answered; another one has ended the run since, and would not see the machine that is asked for now.
    """
    world = World(tmp_path)
    runner = world.elsewhere()
    run_id = world.open()
    real, ended = getattr(world.provider, call), []

    def slow(*arguments):
        if ended:
            return real(*arguments)
        runner.adopt(run_id)
        ended.append(None)
        ended[0] = runner.stop(run_id)
        if call == "launch":
            raise UnreachableError("read timed out")
        return real(*arguments)

    setattr(world.provider, call, slow)
    with pytest.raises(Fenced, match="taken over by runner/4242"):
        world.drive(run_id)
    assert ended[0].outcome is Outcome.CANCELLED
    assert world.provider.machines == []


def test_a_launch_waits_while_nobody_can_say_whether_the_run_is_still_its_own(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    out = world.on(LaunchRequested, lambda: world.store.fail("list", StoredRun(run_id).journal, times=2))
    run = world.drive(run_id, report=out)
    world.check(run_id)
    assert (run.outcome, world.provider.calls.count("launch")) == (Outcome.DONE, 1)
    assert world.notes().count("the launch has no answer (s3://bucket/runs cannot be reached") == 2


# -- going on ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "kept"),
    [
        pytest.param(lambda _keys: [], True, id="all-there"),
        pytest.param(lambda keys: keys[-2:], True, id="the-one-before"),
        pytest.param(lambda keys: keys, False, id="none"),
        pytest.param(lambda keys: [key for key in keys if key.endswith(".pt")], False, id="manifests-alone"),
        pytest.param(lambda keys: [key for key in keys if key.endswith(".json")], False, id="no-manifest"),
    ],
)
def test_a_run_that_is_taken_up_again_says_from_where_it_goes_on(tmp_path, gone, kept):
    """C08: a restart made a new machine, and the old data was lost without a word."""
    world = World(tmp_path)
    world.signal_at(200)
    run_id = world.open()
    run = world.drive(run_id)
    keys = sorted(key for key in world.store.objects if "/checkpoints/" in key)
    assert len(keys) >= 4
    for key in gone(keys):
        del world.store.objects[key]
    cloud = SimpleNamespace(store=world.store, catalog=lambda _job: world.catalog())
    context = Context(world.home, world.clock, world.updates.append, tmp_path)
    reopened = app._reopen(run, cloud, context, app.Limits())
    said = world.notes().splitlines()
    assert f"going on after epoch {2 if kept else 0} on {reopened.selection.offer.key}" in said[-1]
    lost = "the checkpoints of job are gone from the storage: training begins again"
    assert (lost in said) is not kept


@pytest.mark.parametrize("broken", ["before the agent", "while it trains"])
def test_a_place_whose_machines_fall_silent_is_left_alone_for_a_while(tmp_path, broken):
    """C19: machines were deleted and made again in a loop."""
    world = World(tmp_path, offers=(SPOT_EAST, SPOT_WEST))
    world.script.posts = False

    def boot(machine):
        if machine.ref.region == SPOT_EAST.region:
            world.clock.after(12 if broken == "before the agent" else 100, lambda: fall_silent(machine))

    def fall_silent(machine):
        machine.reachable = False
        if machine.agent is not None:
            machine.kill_agent()

    world.provider.on_boot = boot
    run_id = world.open(budget=None)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert [entry.region for entry in run.entries] == ["us-east-1", "us-west-2"]


def test_a_machine_that_only_the_first_launcher_could_enter_says_nothing_of_its_place(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(ARMED, before=False))
    runner = world.elsewhere()
    runner.adopt(run_id)
    run = runner.drive(run_id, by_force=True)
    runner.check(run_id)
    assert [entry.region for entry in run.entries] == ["us-east-1", "us-east-1"]
    assert run.refusals == ()
