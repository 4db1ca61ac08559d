"""Cases from the field: capacity and quotas, as whole runs on fakes."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from launcher_world import DATA, DEMAND_EAST, SPOT_EAST, SPOT_WEST, World

from launcher.errors import StopUnconfirmed
from launcher.events import CapacityRefused, LaunchRequested, Outcome
from launcher.history import recent_refusals
from launcher.live import describe
from launcher.planning import first_plan
from launcher.providers.interface import CapacityError, QuotaError
from launcher.recovery import COOL_DOWN, QUOTA_REGIONS
from launcher.report import Happened
from pricing.hardware import InstanceType
from pricing.offers import CapacityType

A10G = InstanceType("aws", "g5.xlarge", "A10G", 1, 24.0, 4, 16.0, 250.0)
ZONES = tuple(
    replace(SPOT_EAST, zone=f"use1-az{number}", usd_per_hour=Decimal("0.20") + Decimal(number) / 1000)
    for number in range(1, 4)
)
OTHER_TYPE = tuple(replace(offer, instance=A10G, usd_per_hour=offer.usd_per_hour * 2) for offer in ZONES)
SPOT_QUOTA = QuotaError("MaxSpotInstanceCountExceeded: Max spot instance count exceeded")
DEMAND_QUOTA = QuotaError("VcpuLimitExceeded: You have requested more vCPU capacity than your limit of 0")
HINT = (
    "InsufficientInstanceCapacity: We currently do not have sufficient g4dn.xlarge capacity in the Availability Zone "
    "you requested (us-east-1b). You can currently get g4dn.xlarge capacity by choosing us-east-1a, us-east-1f."
)


def asked(world):
    """Keys of the offers in the order in which they were asked for, with the time of each."""
    launch, found = world.provider.launch, []

    def noted(request):
        found.append((request.offer.key, world.clock.elapsed))
        return launch(request)

    world.provider.launch = noted
    return found


def test_the_reason_of_a_refusal_is_shown_the_moment_it_is_known(tmp_path):
    """Q02: 90 s a region, and no reason shown."""
    world = World(tmp_path)
    world.provider.refuse(SPOT_EAST.key)
    launches, shown = asked(world), []

    def report(update):
        if isinstance(update, Happened) and isinstance(update.event, CapacityRefused):
            shown.append((describe(update.event, update.run), world.clock.elapsed))

    world.drive(world.open(), report=report)
    assert shown == [("refused: InsufficientInstanceCapacity: none left", launches[0][1])]


@pytest.mark.parametrize(
    ("refused", "error", "next_one"),
    [
        (ZONES[0], SPOT_QUOTA, SPOT_WEST),
        (ZONES[0], CapacityError("InsufficientInstanceCapacity"), ZONES[1]),
        (DEMAND_EAST, DEMAND_QUOTA, ZONES[0]),
    ],
    ids=["spot quota", "no capacity", "on-demand quota"],
)
def test_a_used_up_quota_rules_out_all_that_it_covers_and_nothing_else(tmp_path, refused, error, next_one):
    """Q02, Q03, Q04: a quota of 0 was tried zone by zone; the spot quota was raised, and on-demand was asked for."""
    offers = (*ZONES, SPOT_WEST, replace(DEMAND_EAST, usd_per_hour=Decimal("0.25")))
    if refused is DEMAND_EAST:
        offers = (replace(DEMAND_EAST, usd_per_hour=Decimal("0.10")), *ZONES)
    world = World(tmp_path, offers=offers)
    world.provider.refuse(refused.key, error=error)
    launches = asked(world)
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert [key for key, _ in launches] == [refused.key, next_one.key]


def test_where_the_spot_quota_is_used_up_on_demand_is_still_asked_for(tmp_path):
    """Q04: the two are counted apart."""
    world = World(tmp_path, offers=(*ZONES, DEMAND_EAST))
    world.provider.refuse(ZONES[0].key, error=SPOT_QUOTA)
    run = world.drive(world.open())
    assert (run.outcome, run.selection.offer) == (Outcome.DONE, DEMAND_EAST)


def test_an_account_without_any_spot_quota_comes_to_on_demand_machines_within_a_few_tries(tmp_path):
    """Q03: quota 0 was tried anyway, region by region; new accounts have none for spot GPUs in any of them."""
    everywhere = tuple(replace(SPOT_EAST, region=f"region-{number}") for number in range(12))
    world = World(tmp_path, offers=(*everywhere, DEMAND_EAST))
    for offer in everywhere:
        world.provider.refuse(offer.key, error=SPOT_QUOTA)
    launches = asked(world)
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.selection.offer) == (Outcome.DONE, DEMAND_EAST)
    assert len(launches) == QUOTA_REGIONS + 1


def test_a_quota_that_one_region_alone_has_used_up_says_nothing_of_the_others(tmp_path):
    world = World(tmp_path, offers=(*ZONES, SPOT_WEST, replace(SPOT_WEST, region="eu-west-1"), DEMAND_EAST))
    world.provider.refuse(ZONES[0].key, error=SPOT_QUOTA)
    world.provider.refuse(SPOT_WEST.key)
    run = world.drive(world.open())
    assert (run.outcome, run.selection.offer.region) == (Outcome.DONE, "eu-west-1")
    assert run.selection.offer.capacity_type is CapacityType.SPOT


def test_the_words_of_a_refusal_are_kept_with_the_zones_that_they_name(tmp_path):
    """Q09: the message named the zones that had capacity, and nobody saw it."""
    world = World(tmp_path, offers=(SPOT_EAST,))
    world.provider.refuse(SPOT_EAST.key, error=CapacityError(HINT))
    run = world.drive(world.open())
    assert run.outcome is Outcome.REFUSED
    assert run.refusals[0].reason == HINT
    assert HINT in run.message


def test_no_place_is_asked_for_twice_before_its_cool_down_is_over(tmp_path):
    """Q12: 45 minutes of retries in the same zone."""
    world = World(tmp_path, offers=ZONES)
    for offer in ZONES:
        world.provider.refuse(offer.key)
    launches = asked(world)
    run = world.drive(world.open())
    assert [key for key, _ in launches] == [offer.key for offer in ZONES]
    assert run.outcome is Outcome.REFUSED
    assert timedelta(seconds=world.clock.elapsed) < COOL_DOWN / 4, "and nobody waits 45 minutes to learn it"


@pytest.mark.parametrize(
    ("empty", "taken"),
    [(ZONES[:1], ZONES[1]), (ZONES[:2], ZONES[2]), (ZONES, OTHER_TYPE[0]), (ZONES + OTHER_TYPE[:1], OTHER_TYPE[1])],
    ids=["one zone", "two zones", "one type", "one type and a zone"],
)
def test_empty_zones_and_types_lead_to_the_next_best_of_those_that_the_job_allows(tmp_path, empty, taken):
    """Q14: a CI run failed whenever one zone was empty."""
    world = World(tmp_path, offers=ZONES + OTHER_TYPE)
    for offer in empty:
        world.provider.refuse(offer.key)
    run_id = world.open(gpus=["T4", "A10G"], regions=["us-east-1"])
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.selection.offer) == (Outcome.DONE, taken)


def test_a_job_that_allows_one_type_is_not_given_another(tmp_path):
    world = World(tmp_path, offers=ZONES + OTHER_TYPE)
    for offer in ZONES:
        world.provider.refuse(offer.key)
    run = world.drive(world.open(gpus=["T4"]))
    assert run.outcome is Outcome.REFUSED
    assert all(refusal.offer_key in {offer.key for offer in ZONES} for refusal in run.refusals)


def test_a_run_does_not_begin_where_another_one_was_refused_just_now(tmp_path):
    """Q12: the next run of a CI begins with the same zone; what was learned is kept across runs for a while."""
    world = World(tmp_path, offers=(*ZONES, SPOT_WEST))
    world.provider.refuse(ZONES[0].key, error=SPOT_QUOTA)
    run_id = world.open()
    run = world.drive(run_id)
    at = run.refusals[0].at
    os.utime(world.home.run(run_id).journal.path, (at.timestamp(), at.timestamp()))

    def first_choice(minutes):
        now = at + timedelta(minutes=minutes)
        plan = first_plan(world.job(run), DATA, world.catalog(), now, elsewhere=recent_refusals(world.home, now))
        return plan.chosen.offer

    assert first_choice(1) == SPOT_WEST
    assert first_choice(29) == SPOT_WEST
    assert first_choice(31) == ZONES[0]


def test_a_journal_that_cannot_be_read_is_only_one_hint_less(tmp_path):
    world = World(tmp_path)
    world.provider.refuse(SPOT_EAST.key)
    run_id = world.open()
    run = world.drive(run_id)
    path = world.home.run(run_id).journal.path
    now = run.refusals[0].at
    os.utime(path, (now.timestamp(), now.timestamp()))
    assert recent_refusals(world.home, now) == run.refusals
    assert recent_refusals(world.home, now, but=run_id) == ()
    path.write_bytes(b"torn\n" + path.read_bytes())
    os.utime(path, (now.timestamp(), now.timestamp()))
    assert recent_refusals(world.home, now) == ()


@pytest.mark.parametrize("share", [0.9, 1.2], ids=["back in time", "too late"])
def test_a_window_of_tries_is_used_to_its_end_and_no_longer(tmp_path, share):
    """Q06: a retry window of two hours ended at once. Here: the tries of a stop, while the provider is out."""
    world = World(tmp_path)
    window = world.facts.stop_limit_seconds
    run_id = world.open()

    def out():
        world.provider.down = True
        world.clock.after(share * window, lambda: setattr(world.provider, "down", False))
        world.signal()

    world.clock.at(10, out)
    if share < 1:
        assert world.drive(run_id).outcome is Outcome.CANCELLED
        world.check(run_id)
    else:
        with pytest.raises(StopUnconfirmed, match=f"no word of it in {window:.0f} s"):
            world.drive(run_id)
    assert 10 + min(share, 1) * window <= world.clock.elapsed <= 10 + window + 30


def test_a_launch_waits_for_a_storage_that_is_out_to_the_end_of_its_window(tmp_path):
    """Q06: the intent to launch must be kept first; nothing is paid for meanwhile."""
    world = World(tmp_path)
    run_id = world.open()
    window = world.facts.drain_seconds
    launches = asked(world)

    def out():
        world.store.down = True
        world.clock.after(0.9 * window, lambda: setattr(world.store, "down", False))

    run = world.drive(run_id, report=world.on(LaunchRequested, out))
    assert run.outcome is Outcome.DONE
    assert [round(moment) for _, moment in launches] == [pytest.approx(0.9 * window, abs=10)]
