"""Until when a lease may live, and what is owed if it ends now."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from pricing_cases import RATES
from run_cases import NOW, OFFER, SELECTION, entry, later, opened, run_in

from launcher.clouds import AWS
from launcher.errors import Exhausted, ExitCode
from launcher.events import DeadlineBasis
from launcher.limits import close_entry, lease_deadline, owed_usd
from launcher.run import State
from launcher.run import opened as open_run
from pricing.cost import affordable_seconds, cost_lines, total
from pricing.ledger import EndedBy


def deadline(run, selection=SELECTION, now=NOW):
    moment, basis = lease_deadline(run, selection, 100, now, RATES, AWS)
    return (moment - now).total_seconds(), basis


def planned(**changes):
    return open_run(opened(**changes))


def test_twice_the_plans_worst_case_and_a_reserve_is_the_limit_without_others():
    seconds, basis = deadline(planned(budget_usd=None))
    assert (seconds, basis) == (2 * 2400 + AWS.save_reserve_seconds, DeadlineBasis.ESTIMATE)


def test_the_budget_is_the_limit_where_it_buys_less_and_keeps_time_for_the_power_off():
    run = planned(budget_usd=Decimal("0.2"))
    seconds, basis = deadline(run)
    assert basis is DeadlineBasis.BUDGET
    assert seconds == affordable_seconds(OFFER, Decimal("0.2"), 100, RATES) - AWS.power_off_seconds
    assert total(cost_lines(OFFER, seconds + AWS.power_off_seconds, 100, RATES)) <= Decimal("0.2")


def test_what_was_spent_already_is_not_there_for_the_next_lease():
    run = replace(planned(budget_usd=Decimal("0.2")), entries=(entry(1, 1800),))
    seconds, _ = deadline(run)
    left = Decimal("0.2") - entry(1, 1800).usd
    assert seconds == affordable_seconds(OFFER, left, 100, RATES) - AWS.power_off_seconds


def test_the_users_deadline_is_the_limit_where_it_is_sooner():
    assert deadline(planned(ends_by=later(1000))) == (1000, DeadlineBasis.USER)
    assert deadline(planned(ends_by=later(10**6)))[1] is DeadlineBasis.ESTIMATE


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
    assert "gpucost resume" in error.value.hint


def test_an_overspent_run_gets_nothing_more():
    run = replace(planned(budget_usd=Decimal("0.01")), entries=(entry(1, 3600),))
    with pytest.raises(Exhausted, match="leaves 0 s"):
        deadline(run)


def test_what_is_owed_is_the_closed_leases_and_the_open_one_until_now():
    run = replace(run_in(State.TRAINING), entries=(entry(7),))
    running = total(cost_lines(OFFER, 320, 100, RATES))
    assert owed_usd(run, run.lease.running_since + timedelta(seconds=320), RATES) == entry(7).usd + running


def test_a_launch_that_has_not_been_answered_owes_nothing_yet():
    assert owed_usd(run_in(State.PROVISIONING), later(500), RATES) == 0


def test_a_clock_that_went_back_makes_nothing_cheaper_than_nothing():
    run = run_in(State.TRAINING)
    assert owed_usd(run, NOW - timedelta(hours=1), RATES) == 0


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
