"""What things cost a day, by the shipped tables."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from pricing.offers import CapacityType
from pricing.sources.tables import load_offers, load_rates
from pricing.standing import StandingPrices

SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND


@pytest.fixture(scope="module")
def prices():
    return StandingPrices("aws", load_offers(), load_rates())


def test_a_machine_costs_its_price_of_an_hour_24_times(prices):
    offer = next(o for o in load_offers() if o.provider == "aws" and o.capacity_type is SPOT and o.zone)
    found = prices.machine(offer.instance.name, offer.region, offer.zone, SPOT)
    assert found == 24 * offer.usd_per_hour


@pytest.mark.parametrize("market", [SPOT, ON_DEMAND])
def test_a_machine_in_a_zone_that_is_not_in_the_table_is_taken_at_the_dearest_of_its_region(prices, market):
    offers = [
        o for o in load_offers() if (o.instance.name, o.region, o.capacity_type) == ("g4dn.xlarge", "us-east-1", market)
    ]
    assert prices.machine("g4dn.xlarge", "us-east-1", "", market) == 24 * max(o.usd_per_hour for o in offers)


@pytest.mark.parametrize(
    ("name", "region"), [("t3.micro", "us-east-1"), ("g4dn.xlarge", "mars-1"), ("n1-standard-4", "us-central1")]
)
def test_a_machine_that_the_table_does_not_have_costs_nobody_knows_what(prices, name, region):
    assert prices.machine(name, region, "", ON_DEMAND) is None


def test_an_offer_without_a_price_is_no_price():
    offer = replace(load_offers()[0], usd_per_hour=Decimal(0))
    prices = StandingPrices(offer.provider, [offer], load_rates())
    assert prices.machine(offer.instance.name, offer.region, offer.zone, offer.capacity_type) is None


def test_a_disk_costs_a_thirtieth_of_its_month(prices):
    month = 100 * load_rates().of("aws", "disk").usd
    assert prices.disk(100) == month * 24 / 730
    assert round(prices.disk(100), 3) == Decimal("0.263")


def test_an_address_and_objects_cost_too(prices):
    assert prices.address(ON_DEMAND) == Decimal("0.12")
    assert prices.objects(2**30) == Decimal("0.023") * 24 / 730
    assert prices.objects(0) == 0


def test_without_rates_nothing_is_free():
    prices = StandingPrices("nowhere", [], load_rates())
    assert (prices.disk(1), prices.objects(1), prices.address(SPOT)) == (None, None, None)
