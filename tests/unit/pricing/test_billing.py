"""Billing arithmetic: seconds to money and back."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from pricing.cost import (
    PUBLIC_IPV4_SPOT,
    BillingRule,
    PriceChange,
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


def cost(seconds):
    return total(cost_lines(offer("0.526"), seconds, 100, RATES))


def test_affordable_seconds_is_the_last_second_that_fits():
    seconds = affordable_seconds(Decimal(1), cost)
    assert cost(seconds) <= 1 < cost(seconds + 1)


def test_money_below_the_minimum_charge_buys_nothing():
    assert affordable_seconds(Decimal("0.001"), cost) == 0


START = datetime(2026, 12, 1, 9, tzinfo=UTC)


def changed(seconds, usd):
    """Another price from a moment of the machine's life on."""
    return PriceChange(START + timedelta(seconds=seconds), Decimal(usd))


def timeline(seconds, *prices):
    """Length and price of each line of compute."""
    lines = cost_lines(spot("0.36"), seconds, 10, RATES, started_at=START, prices=prices)[:-2]
    return [(round(line.quantity * 3600), line.usd_per_unit) for line in lines]


P = Decimal


@pytest.mark.parametrize(
    ("seconds", "prices", "pieces"),
    [
        pytest.param(600, [], [(600, P("0.36"))], id="without a change the offer's price holds"),
        pytest.param(600, [(200, "0.72")], [(200, P("0.36")), (400, P("0.72"))], id="from the change on the new one"),
        pytest.param(
            600, [(200, "0.72"), (500, "0.18")], [(200, P("0.36")), (300, P("0.72")), (100, P("0.18"))], id="two"
        ),
        pytest.param(
            600, [(500, "0.18"), (200, "0.72")], [(200, P("0.36")), (300, P("0.72")), (100, P("0.18"))], id="any order"
        ),
        pytest.param(
            600, [(200.9, "0.72")], [(200, P("0.36")), (400, P("0.72"))], id="a begun second costs the new price"
        ),
        pytest.param(
            600, [(200.1, "0.5"), (200.2, "0.72")], [(200, P("0.36")), (400, P("0.72"))], id="the last of a second"
        ),
        pytest.param(600, [(-50, "0.5"), (-9, "0.72")], [(600, P("0.72"))], id="changes before the start: the newest"),
        pytest.param(600, [(600, "9")], [(600, P("0.36"))], id="a change at the end comes too late"),
        pytest.param(
            30, [(20, "0.72")], [(20, P("0.36")), (40, P("0.72"))], id="the minimum is charged at the last price"
        ),
        pytest.param(30, [(45, "9")], [(60, P("0.36"))], id="a change within the minimum but after the end"),
    ],
)
def test_compute_is_charged_along_the_price_timeline(seconds, prices, pieces):
    assert timeline(seconds, *(changed(*change) for change in prices)) == pieces


def test_a_line_of_a_changed_price_says_since_when_and_where_it_is_from():
    first, second, *_ = cost_lines(spot("0.36"), 600, 10, RATES, started_at=START, prices=[changed(200, "0.72")])
    assert (first.what, first.observed_at) == ("g4dn.xlarge spot, us-east-1", "2026-11-15")
    assert (second.what, second.observed_at) == ("g4dn.xlarge spot, us-east-1 from 09:03", "2026-12-01T09:03:20Z")
    assert "provider" in second.source


def test_a_refund_follows_the_same_prices():
    refund = refund_lines(spot("0.36"), 1800, RATES, started_at=START, prices=[changed(600, "0.72")])
    assert [line.usd for line in refund] == [Decimal("-0.06"), Decimal("-0.24")]


def test_a_price_timeline_needs_its_beginning():
    with pytest.raises(ValueError, match="need the time at which the machine started"):
        cost_lines(spot("0.36"), 600, 10, RATES, prices=[changed(200, "0.72")])


def test_capacity_types_are_the_words_of_the_field():
    assert [str(kind) for kind in CapacityType] == ["spot", "on-demand"]
