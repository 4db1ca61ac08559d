"""Spot prices in force: what is asked of EC2 and how its answers are read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from botocore.exceptions import EndpointConnectionError
from launcher_clock import START
from run_cases import OFFER
from stubbed_aws import StubbedAccount

from launcher.providers.aws.prices import AwsPrices
from launcher.providers.interface import RefusedError, UnreachableError
from pricing.cost import PriceChange
from pricing.offers import CapacityType

ASKED = {
    "InstanceTypes": ["g4dn.xlarge"],
    "ProductDescriptions": ["Linux/UNIX"],
    "StartTime": START,
    "Filters": [{"Name": "availability-zone-id", "Values": ["use1-az1"]}],
}


@pytest.fixture
def account():
    made = StubbedAccount()
    yield made
    made.close()


def point(usd, zone="use1-az1", minutes_ago=0.0):
    return {
        "SpotPrice": usd,
        "AvailabilityZone": f"name-of-{zone}",
        "AvailabilityZoneId": zone,
        "Timestamp": START - timedelta(minutes=minutes_ago),
    }


def priced(account, offer, *points, asked=ASKED):
    account.expect("ec2", "describe_spot_price_history", {"SpotPriceHistory": list(points)}, asked)
    return AwsPrices(account).changes(offer, START)


def test_the_price_is_the_one_in_force_now_in_the_zone_of_the_offer(account):
    (found,) = priced(account, OFFER, point("0.173400", minutes_ago=300))
    assert found == PriceChange(START, Decimal("0.1734"))
    assert isinstance(found.usd_per_hour, Decimal)
    account.done()


def test_changes_come_by_time_each_with_its_own_the_first_with_the_moment_that_was_asked_for(account):
    found = priced(
        account, OFFER, point("0.30", minutes_ago=-40), point("0.20", minutes_ago=-1), point("0.10", minutes_ago=90)
    )
    assert found == (change("0.10"), change("0.20", 1), change("0.30", 40))


def change(usd, minutes=0.0):
    return PriceChange(START + timedelta(minutes=minutes), Decimal(usd))


def test_an_offer_for_any_zone_is_priced_at_the_dearest_of_each_moment(account):
    """Nobody says where the machine will be: what is owed is never less."""
    anywhere = replace(OFFER, zone="")
    points = [
        point("0.25", "use1-az4", 5),
        point("0.40", "use1-az1", 500),
        point("0.22", "use1-az1", -5),
        point("0.30", "use1-az4", -9),
    ]
    found = priced(account, anywhere, *points, asked={**ASKED, "Filters": []})
    assert found == (change("0.40"), change("0.25", 5), change("0.30", 9))
    account.done()


def test_all_pages_are_read(account):
    first = {"SpotPriceHistory": [point("0.20", "use1-az1")], "NextToken": "more"}
    account.expect("ec2", "describe_spot_price_history", first, None)
    assert priced(account, replace(OFFER, zone=""), point("0.50", "use1-az2"), asked=None) == (change("0.50"),)


def test_a_price_that_nobody_knows_has_no_changes(account):
    assert priced(account, OFFER) == ()


def test_an_on_demand_price_does_not_change_and_is_not_asked_for(account):
    assert AwsPrices(account).changes(replace(OFFER, capacity_type=CapacityType.ON_DEMAND), START) == ()
    assert account.asked == []


@pytest.mark.parametrize(
    ("code", "kind"), [("UnauthorizedOperation", RefusedError), ("InternalError", UnreachableError)]
)
def test_a_refusal_is_the_ports_error(account, code, kind):
    account.refuse("ec2", "describe_spot_price_history", code)
    with pytest.raises(kind, match=code):
        AwsPrices(account).changes(OFFER, START)


def test_a_network_that_is_cut_is_the_ports_error(account):
    def cut(**_):
        raise EndpointConnectionError(endpoint_url="https://ec2")

    account.client("ec2", "us-east-1").meta.events.register("provide-client-params.ec2", cut)
    with pytest.raises(UnreachableError, match="https://ec2"):
        AwsPrices(account).changes(OFFER, START)
