"""Spot prices over time, without a clock and without a cloud."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from launcher.sandbox import state
from launcher.sandbox.prices import PriceHistory, PriceList, SpotPrice

START = datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOW = START + 10 * HOUR
T4, A10 = "g4dn.xlarge", "g5.xlarge"
PRICES = (
    SpotPrice(T4, "use1-az6", Decimal("0.21")),
    SpotPrice(T4, "use1-az1", Decimal("0.20")),
    SpotPrice(A10, "use1-az6", Decimal("0.40")),
)


@pytest.fixture
def history():
    return PriceHistory(PRICES, START, ("use1-az1", "use1-az2", "use1-az6"))


def usd(changes, instance_type=T4, zone_id="use1-az6"):
    return [
        str(change.price.usd_per_hour)
        for change in changes
        if (change.price.instance_type, change.price.zone_id) == (instance_type, zone_id)
    ]


def test_a_window_holds_its_changes_and_the_price_that_was_in_force_before_newest_first(history):
    for hours, price in ((1, "0.3"), (2, "0.4"), (5, "0.5")):
        history.change(T4, "use1-az6", Decimal(price), START + hours * HOUR)
    assert usd(history.between(None, NOW)) == ["0.5", "0.4", "0.3", "0.21"]
    assert usd(history.between(START + 3 * HOUR, NOW)) == ["0.5", "0.4"]
    assert usd(history.between(START + 3 * HOUR, START + 4 * HOUR)) == ["0.4"]
    assert usd(history.between(NOW, NOW)) == ["0.5"]
    assert usd(history.between(START + 2 * HOUR, NOW)) == ["0.5", "0.4", "0.3"]


def test_a_change_is_of_one_zone_or_of_all_that_have_a_price(history):
    assert history.change(T4, "use1-az1", Decimal(1), NOW) == [SpotPrice(T4, "use1-az1", Decimal(1))]
    assert usd(history.between(NOW, NOW)) == ["0.21"]
    assert [one.zone_id for one in history.change(T4, None, Decimal(2), NOW)] == ["use1-az1", "use1-az6"]
    assert usd(history.between(NOW, NOW), A10) == ["0.40"]
    history.change(A10, "use1-az2", Decimal(3), NOW)
    assert usd(history.between(NOW, NOW), A10, "use1-az2") == ["3"]


@pytest.mark.parametrize(
    ("instance_type", "zone_id", "price", "complaint"),
    [
        (T4, "use1-az1", "0", "positive amount"),
        (T4, "use1-az1", "-1", "positive amount"),
        (T4, "use1-az1", "NaN", "positive amount"),
        (T4, "us-east-1a", "1", "no zone with the id us-east-1a"),
        ("g6.xlarge", None, "1", "g6.xlarge has no price in any zone yet"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(history, instance_type, zone_id, price, complaint):
    with pytest.raises(ValueError, match=complaint):
        history.change(instance_type, zone_id, Decimal(price), NOW)


def test_prices_of_zones_that_do_not_exist_are_left_out():
    history = PriceHistory(PRICES, START, ("use1-az1",))
    assert [change.price.zone_id for change in history.between(None, NOW)] == ["use1-az1"]


def test_a_price_is_written_down_and_read_back_to_the_last_digit():
    prices = PriceList((SpotPrice(T4, "use1-az6", Decimal("0.210100")),))
    back = state.decode(state.encode(prices), PriceList, "file")
    assert back == prices
    assert str(back.prices[0].usd_per_hour) == "0.210100"
