"""Billing arithmetic: seconds to money and back."""

from decimal import Decimal

import pytest

from pricing.cost import (
    PUBLIC_IPV4_SPOT,
    BillingRule,
    Rate,
    Rates,
    UnknownRate,
    affordable_seconds,
    billed_seconds,
    cost_lines,
    refund_lines,
    total,
)
from pricing.offers import CapacityType
from tests.fakes.pricing_cases import RATES, offer, spot


@pytest.mark.parametrize(
    ("granularity", "minimum", "seconds", "billed"),
    [
        pytest.param(1, 60, 0, 0, id="a machine that never ran is free"),
        pytest.param(1, 60, 1, 60, id="the minimum is charged from the first second"),
        pytest.param(1, 60, 60, 60, id="exactly the minimum"),
        pytest.param(1, 60, 60.2, 61, id="a begun second counts"),
        pytest.param(3600, 3600, 3601, 7200, id="a begun hour counts"),
        pytest.param(60, 600, 601, 660, id="the minimum is no granularity"),
    ],
)
def test_time_is_billed_in_whole_steps_above_the_minimum(granularity, minimum, seconds, billed):
    assert billed_seconds(BillingRule(granularity, minimum), seconds) == billed


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_an_impossible_running_time_is_refused(seconds):
    with pytest.raises(ValueError, match="cannot run for"):
        billed_seconds(BillingRule(), seconds)


def test_a_cost_is_the_sum_of_compute_disk_and_address():
    lines = cost_lines(offer("0.526"), 3 * 3600, 256, RATES)
    assert [line.usd for line in lines[:1]] == [Decimal("1.578")]
    assert total(lines).quantize(Decimal("0.0001")) == Decimal("1.578") + Decimal("0.0842") + Decimal("0.015")


def test_the_disk_is_in_the_estimate():
    """A disk of 256 GiB for 3 hours at 0.08 USD a GiB-month is 8.4 cents; tools that forget it under-estimate."""
    disk = cost_lines(offer(), 3 * 3600, 256, RATES)[1]
    assert disk.what == "disk, 256 GiB"
    assert disk.usd == Decimal(256) * Decimal("0.08") * 3 * 3600 / (730 * 3600)


def test_every_line_names_its_source_and_date():
    assert all(line.source and line.observed_at for line in cost_lines(offer(), 60, 10, RATES))


def test_an_unknown_price_has_no_cost():
    with pytest.raises(ValueError, match="price is unknown"):
        cost_lines(offer("0"), 60, 10, RATES)


def test_a_missing_rate_is_an_error_and_not_free():
    with pytest.raises(UnknownRate, match="no billing rule for aws"):
        cost_lines(offer(), 60, 10, Rates({}, {}))
    with pytest.raises(UnknownRate, match="no rate for disk on aws"):
        cost_lines(offer(), 60, 10, Rates({}, {"aws": BillingRule()}))


def test_a_spot_machine_pays_the_spot_rate_of_its_address_where_there_is_one():
    cheap = Rate(Decimal("0.0025"), "hour", "test", "2026", verified=True)
    rates = Rates({**RATES.rates, ("aws", PUBLIC_IPV4_SPOT): cheap}, RATES.rules)
    assert cost_lines(spot("0.2"), 3600, 10, rates)[2].usd == Decimal("0.0025")
    assert cost_lines(offer("0.5"), 3600, 10, rates)[2].usd == Decimal("0.005")


def test_compute_is_refunded_when_the_provider_takes_a_young_spot_machine_back():
    refund = refund_lines(spot("0.2"), 1800, RATES)
    assert total(refund) == Decimal("-0.1")
    assert refund_lines(spot("0.2"), 3600, RATES) == ()
    assert refund_lines(offer("0.2"), 1800, RATES) == ()


def test_affordable_seconds_is_the_last_second_that_fits():
    chosen = offer("0.526")
    seconds = affordable_seconds(chosen, Decimal("1"), 100, RATES)
    assert total(cost_lines(chosen, seconds, 100, RATES)) <= 1
    assert total(cost_lines(chosen, seconds + 1, 100, RATES)) > 1


def test_money_below_the_minimum_charge_buys_nothing():
    assert affordable_seconds(offer("0.526"), Decimal("0.001"), 100, RATES) == 0


def test_capacity_types_are_the_words_of_the_field():
    assert [str(kind) for kind in CapacityType] == ["spot", "on-demand"]
