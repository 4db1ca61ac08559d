"""Until when a lease may live, and what is owed if it ends now."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from pricing_cases import FULL_RATES, RATES, WORKLOAD
from run_cases import NOW, OFFER, RUN_ID, SELECTION, checkpoint, entry, later, opened, run_in

from launcher.clouds import AWS
from launcher.errors import Exhausted, ExitCode
from launcher.events import DeadlineBasis
from launcher.limits import budget_spec, close_entry, lease_deadline, owed_usd, storage_lines
from launcher.run import State
from launcher.run import opened as open_run
from pricing.cost import PriceChange, affordable_seconds, cost_lines, total
from pricing.extras import Traffic, planned_sizes
from pricing.ledger import Basis, EndedBy
from pricing.offers import CapacityType

FINE = replace(AWS, deadline_grain_seconds=1)
TRAFFIC = Traffic(fetched_bytes=5 * 10**9, stored_bytes_per_hour=8 * 10**9, final_bytes=3 * 10**8, writes_per_hour=1000)
MOVING = replace(SELECTION, estimate=replace(SELECTION.estimate, traffic=TRAFFIC))
"""A machine in us-east-1 that moves a lot."""


def deadline(run, selection=SELECTION, now=NOW, facts=FINE, rates=RATES):
    moment, basis = lease_deadline(run, selection, 100, now, rates, facts)
    return (moment - now).total_seconds(), basis


def planned(**changes):
    return open_run(opened(**changes))


def affordable(usd):
    return affordable_seconds(usd, lambda seconds: total(cost_lines(OFFER, seconds, 100, RATES)))


def training(state=State.TRAINING, *, prices=(), selection=SELECTION, **changes):
    """A run with a machine since second 80."""
    run = run_in(state, **changes)
    return replace(run, selection=selection, lease=replace(run.lease, prices=prices, selection=selection))


def test_twice_the_plans_worst_case_and_a_reserve_is_the_limit_without_others():
    seconds, basis = deadline(planned(budget_usd=None))
    assert (seconds, basis) == (2 * 2400 + AWS.save_reserve_seconds, DeadlineBasis.ESTIMATE)


def test_the_budget_is_the_limit_where_it_buys_less_and_keeps_time_for_the_power_off():
    run = planned(budget_usd=Decimal("0.2"))
    seconds, basis = deadline(run)
    assert basis is DeadlineBasis.BUDGET
    assert seconds == affordable(Decimal("0.2")) - AWS.power_off_seconds


def test_what_was_spent_already_is_not_there_for_the_next_lease():
    run = replace(planned(budget_usd=Decimal("0.2")), entries=(entry(1, 1800),))
    seconds, _ = deadline(run)
    assert seconds == affordable(Decimal("0.2") - entry(1, 1800).usd) - AWS.power_off_seconds


def test_traffic_and_objects_leave_less_of_the_budget_for_the_machine():
    """0.1 USD buy half an hour of this machine; the objects of the run take a part of it, a bucket elsewhere all."""
    run = planned(budget_usd=Decimal("0.1"), storage_region="us-east-1")
    here, _ = deadline(run, MOVING, rates=FULL_RATES)
    assert AWS.save_reserve_seconds < here < deadline(run)[0]
    with pytest.raises(Exhausted, match="the budget leaves 0 s"):
        deadline(planned(budget_usd=Decimal("0.1"), storage_region="eu-west-1"), MOVING, rates=FULL_RATES)


def test_the_users_deadline_is_the_limit_where_it_is_sooner():
    assert deadline(planned(ends_by=later(1000))) == (1000, DeadlineBasis.USER)
    assert deadline(planned(ends_by=later(10**6)))[1] is DeadlineBasis.ESTIMATE


@pytest.mark.parametrize(
    ("seconds", "now", "kept"),
    [
        pytest.param(1000, NOW, 960, id="down to the minute of the clock"),
        pytest.param(1000, later(30), 990, id="of the clock, not of the lease"),
        pytest.param(601.5, NOW, 600, id="fractions too"),
        pytest.param(600, later(7), 600, id="not where ten minutes or less are left"),
    ],
)
def test_a_deadline_is_rounded_down_to_what_the_clouds_timers_can_tell_apart(seconds, now, kept):
    run = planned(ends_by=now + timedelta(seconds=seconds))
    assert deadline(run, now=now, facts=AWS)[0] == kept


@pytest.mark.parametrize(
    ("changes", "now", "basis"),
    [
        ({"budget_usd": Decimal("0.008")}, NOW, "budget"),
        ({"ends_by": later(AWS.save_reserve_seconds)}, NOW, "deadline"),
        ({"ends_by": later(100)}, later(5000), "deadline"),
    ],
)
def test_a_lease_that_leaves_no_time_to_save_is_not_granted(changes, now, basis):
    with pytest.raises(Exhausted, match=f"the {basis} leaves") as error:
        deadline(planned(**changes), now=now)
    assert error.value.exit_code == ExitCode.EXHAUSTED
    more = {"budget": "--budget +0.15", "deadline": "--deadline 2h"}[basis]
    assert f"`gpucost resume {RUN_ID} {more}`" in error.value.hint


def test_an_overspent_run_gets_nothing_more():
    run = replace(planned(budget_usd=Decimal("0.01")), entries=(entry(1, 3600),))
    with pytest.raises(Exhausted, match="leaves 0 s"):
        deadline(run)


def test_what_is_owed_is_the_closed_leases_and_the_open_one_until_its_billing_ends():
    run = replace(training(), entries=(entry(7),))
    running = total(cost_lines(OFFER, 320, 100, RATES))
    assert owed_usd(run, later(400), RATES) == entry(7).usd + running
    assert owed_usd(run, later(340), RATES, stop_seconds=60) == entry(7).usd + running


def test_what_is_owed_follows_the_prices_that_were_in_force():
    """An hour at 0.20 and an hour at 0.50 are 0.70, whatever the price is when the sum is made."""
    dearer = PriceChange(later(80 + 3600), Decimal("0.50"))
    run = training(prices=(dearer,))
    same = owed_usd(training(), later(80 + 3600), RATES)
    assert owed_usd(run, later(80 + 3600), RATES) == same
    beside = total(cost_lines(OFFER, 7200, 100, RATES)[1:])
    assert owed_usd(run, later(80 + 7200), RATES) == pytest.approx(Decimal("0.70") + beside, abs=Decimal("1e-20"))


def test_a_run_that_still_trains_owes_its_last_sync_and_a_month_of_what_that_leaves():
    run = training(selection=MOVING, storage_region="eu-west-1", data_url=None)
    machine = total(cost_lines(OFFER, 3600, 100, FULL_RATES))
    sizes = planned_sizes(WORKLOAD, keeps_data=True)
    traffic = Decimal(5 * 10**9 + 8 * 10**9 + 3 * 10**8) / 10**9 * Decimal("0.02")
    kept = Decimal(sizes.kept_bytes) / 2**30 * Decimal("0.023") * 720 / 730
    download = Decimal(sizes.result_bytes) / 10**9 * Decimal("0.09")
    rest = owed_usd(run, later(3680), FULL_RATES) - machine - traffic - kept - download
    assert Decimal("0.005") < rest < Decimal("0.007"), "a thousand write requests an hour, and a few beside"


def test_in_the_buckets_own_region_traffic_is_free():
    here = owed_usd(training(selection=MOVING, storage_region="us-east-1"), later(3680), FULL_RATES)
    unknown = owed_usd(training(selection=MOVING), later(3680), FULL_RATES)
    elsewhere = owed_usd(training(selection=MOVING, storage_region="eu-west-1"), later(3680), FULL_RATES)
    assert here == unknown
    assert elsewhere - here == pytest.approx(Decimal("0.266"), abs=Decimal("1e-20"))


def test_a_launch_that_has_not_been_answered_owes_no_machine_yet():
    assert owed_usd(run_in(State.PROVISIONING), later(500), RATES) == 0


def test_a_settled_run_owes_what_its_last_records_say():
    run = run_in(State.SETTLED)
    settled = replace(run, storage=storage_lines(run, FULL_RATES))
    assert settled.storage
    assert owed_usd(settled, later(10**6), FULL_RATES) == settled.spent_usd == entry().usd + total(settled.storage)


def test_a_clock_that_went_back_makes_nothing_cheaper_than_nothing():
    assert owed_usd(training(), NOW - timedelta(hours=1), RATES) == 0


def test_a_machine_that_ran_at_all_is_charged_for_the_minimum():
    run = run_in(State.STOPPING)
    made = close_entry(run, run.lease, later(100), later(50), EndedBy.US, RATES)
    assert (made.started_at, made.ended_at, made.billed_seconds) == (later(100), later(101), 60)
    assert (made.lease_id, made.estimate_usd) == (run.lease.lease_id, SELECTION.estimate.usd)


def test_a_machine_that_the_provider_took_back_early_is_not_charged_for_its_compute():
    run = run_in(State.STOPPING)
    ours = close_entry(run, run.lease, later(0), later(600), EndedBy.US, RATES)
    theirs = close_entry(run, run.lease, later(0), later(600), EndedBy.PROVIDER, RATES)
    assert theirs.usd == ours.usd - OFFER.usd_per_hour * 600 / 3600


def test_the_entry_of_a_lease_has_its_prices_and_its_traffic_and_says_so():
    """A data set read from a bucket in another region was the surprise on a bill; it is a line of its own."""
    prices = (PriceChange(later(400), Decimal("0.4")),)
    run = training(State.STOPPING, selection=MOVING, prices=prices, storage_region="eu-west-1")
    made = close_entry(run, run.lease, later(100), later(3700), EndedBy.US, FULL_RATES)
    assert made.basis is Basis.TIMELINE
    assert [line.what for line in made.lines] == [
        "g4dn.xlarge spot, use1-az1",
        "g4dn.xlarge spot, use1-az1 from 09:06",
        "disk, 100 GiB",
        "public IPv4 address",
        "data set from eu-west-1",
        "checkpoints to eu-west-1",
    ]
    assert made.usd == total(made.lines)
    assert sum(line.usd for line in made.lines[-2:]) == Decimal("0.266")


def test_a_change_after_the_end_is_no_part_of_the_lease():
    run = training(State.STOPPING, prices=(PriceChange(later(900), Decimal(4)),))
    made = close_entry(run, run.lease, later(100), later(700), EndedBy.US, RATES)
    assert (made.basis, made.usd) == (Basis.COMPUTED, total(cost_lines(OFFER, 600, 100, RATES)))


def test_the_objects_of_a_settled_run_are_what_was_really_stored():
    run = replace(run_in(State.SETTLED), checkpoints=(checkpoint(3),), artifact_bytes=2 * 10**9)
    lines = {line.what: line for line in storage_lines(run, FULL_RATES)}
    assert set(lines) == {"objects kept 30 days", "write requests", "read requests", "download of the results"}
    kept = Decimal(2 * 1000 + 2 * 10**9) / 2**30 * 720 / 730
    assert lines["objects kept 30 days"].quantity == pytest.approx(kept, rel=Decimal("1e-20"))
    assert lines["download of the results"].usd == Decimal("0.18")
    assert all(line.source and line.observed_at for line in lines.values())


def test_a_data_set_that_the_run_uploaded_is_kept_too_and_one_that_was_there_is_not():
    run = replace(run_in(State.SETTLED, data_url=None), data_bytes=2**30)
    kept = storage_lines(run, FULL_RATES)[0]
    assert kept.quantity == pytest.approx(Decimal(720) / 730, rel=Decimal("1e-20"))
    there_before = storage_lines(replace(run_in(State.SETTLED), data_bytes=2**30), FULL_RATES)
    assert "objects kept 30 days" not in [line.what for line in there_before]


def test_a_run_that_never_had_a_machine_or_an_object_has_no_storage():
    assert storage_lines(planned(), FULL_RATES) == ()


def test_the_agent_is_given_no_budget_where_there_is_none():
    run = training(budget_usd=None)
    assert budget_spec(run, run.lease, RATES, AWS, later(1000)) is None


def test_the_agents_budget_holds_each_price_from_its_moment_on():
    run = training(prices=(PriceChange(later(680), Decimal("0.4")), PriceChange(later(980), Decimal("0.1"))))
    spec = budget_spec(run, run.lease, RATES, AWS, later(1000))
    beside = float(total(cost_lines(OFFER, 3600, 100, RATES)[1:]))
    assert [point.since - NOW.timestamp() for point in spec.points] == [140, 680, 980]
    assert [point.usd_per_hour for point in spec.points] == pytest.approx([0.2 + beside, 0.4 + beside, 0.1 + beside])
    assert spec.fixed_usd == pytest.approx(float(total(cost_lines(OFFER, 60, 100, RATES))), abs=2e-4)
    assert spec.cap_usd == pytest.approx(5)
    assert spec.stop_seconds == AWS.power_off_seconds


@pytest.mark.parametrize(
    ("capacity_type", "on_demand", "worst"),
    [
        pytest.param(CapacityType.SPOT, "0.526", [0.526], id="above which no spot price goes"),
        pytest.param(CapacityType.SPOT, "0.15", [], id="not where spot costs more as it is"),
        pytest.param(CapacityType.SPOT, None, [], id="not where nobody knows it"),
        pytest.param(CapacityType.ON_DEMAND, "0.526", [], id="not where the price cannot change"),
    ],
)
def test_an_agent_that_is_told_nothing_more_reckons_with_the_on_demand_price(capacity_type, on_demand, worst):
    most = None if on_demand is None else Decimal(on_demand)
    offer = replace(OFFER, capacity_type=capacity_type, on_demand_usd_per_hour=most)
    run = training(selection=replace(SELECTION, offer=offer))
    spec = budget_spec(run, run.lease, RATES, AWS, later(1000))
    beside = float(total(cost_lines(offer, 3600, 100, RATES)[1:]))
    assert [point.since - NOW.timestamp() for point in spec.points] == [140, 1000][: 1 + len(worst)]
    assert [point.usd_per_hour for point in spec.points] == pytest.approx([usd + beside for usd in (0.2, *worst)])
