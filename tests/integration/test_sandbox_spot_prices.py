"""Spot prices as an EC2 client sees them, and how they change."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from sandbox_client import NEEDED, sandbox_cloud, sandbox_home  # noqa: F401 - fixtures

from launcher import sandbox
from launcher.errors import BadInput

pytestmark = NEEDED
T4, A10 = "g4dn.xlarge", "g5.xlarge"


def prices(cloud, **asked):
    found = cloud.ec2.describe_spot_price_history(**asked)["SpotPriceHistory"]
    return [(one["InstanceType"], one["AvailabilityZoneId"], one["SpotPrice"]) for one in found]


def zone_filter(name, *values):
    return [{"Name": name, "Values": list(values)}]


def test_a_price_names_its_zone_in_both_ways_and_belongs_to_linux(cloud):
    (found,) = cloud.ec2.describe_spot_price_history(InstanceTypes=[A10])["SpotPriceHistory"]
    assert (found["AvailabilityZone"], found["AvailabilityZoneId"]) == ("us-east-1a", "use1-az6")
    assert (found["ProductDescription"], found["SpotPrice"]) == ("Linux/UNIX", "0.400000")
    assert found["Timestamp"] < datetime.now(UTC)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"InstanceTypes": [T4, A10], "AvailabilityZone": "us-east-1a"}, ["0.210100", "0.400000"]),
        ({"InstanceTypes": [T4], "Filters": zone_filter("availability-zone-id", "use1-az1")}, ["0.199900"]),
        ({"InstanceTypes": [T4], "Filters": zone_filter("availability-zone", "us-east-1b")}, ["0.199900"]),
        ({"Filters": zone_filter("instance-type", A10)}, ["0.400000"]),
        ({"InstanceTypes": [A10], "ProductDescriptions": ["Linux/UNIX"]}, ["0.400000"]),
        ({"InstanceTypes": [A10], "ProductDescriptions": ["Windows"]}, []),
        ({"InstanceTypes": ["p5.48xlarge"]}, []),
    ],
)
def test_prices_are_filtered(cloud, asked, expected):
    assert sorted(price for _, _, price in prices(cloud, **asked)) == expected


def test_another_region_has_its_own_prices(cloud):
    west = cloud.client("ec2", region="us-west-2")
    (found,) = west.describe_spot_price_history(InstanceTypes=[T4])["SpotPriceHistory"]
    assert (found["AvailabilityZoneId"], found["SpotPrice"]) == ("usw2-az1", "0.222200")


def test_an_unknown_filter_is_refused(cloud):
    with pytest.raises(ClientError, match="The filter 'zone' is invalid"):
        prices(cloud, Filters=zone_filter("zone", "a"))


def test_a_price_that_changes_is_in_force_from_then_on_and_the_old_one_stays_in_the_history(cloud, home):
    before = datetime.now(UTC) - timedelta(hours=1)
    changed = sandbox.set_spot_price(home, A10, "use1-az6", Decimal("1.25"))
    assert [(one.zone_id, one.usd_per_hour) for one in changed] == [("use1-az6", Decimal("1.25"))]
    now = datetime.now(UTC) + timedelta(seconds=1)
    assert prices(cloud, InstanceTypes=[A10], StartTime=now) == [(A10, "use1-az6", "1.250000")]
    window = prices(cloud, InstanceTypes=[A10], StartTime=before, EndTime=now)
    assert [price for _, _, price in window] == ["1.250000", "0.400000"]
    assert [price for _, _, price in prices(cloud, InstanceTypes=[A10], EndTime=before)] == ["0.400000"]


def test_a_price_changes_in_all_zones_of_all_regions_if_none_is_named(cloud, home):
    sandbox.set_spot_price(home, T4, None, Decimal("0.9"))
    now = datetime.now(UTC) + timedelta(seconds=1)
    assert {price for _, _, price in prices(cloud, InstanceTypes=[T4], StartTime=now)} == {"0.900000"}
    west = cloud.client("ec2", region="us-west-2").describe_spot_price_history(InstanceTypes=[T4], StartTime=now)
    assert [one["SpotPrice"] for one in west["SpotPriceHistory"]] == ["0.900000"]


def test_a_price_of_a_zone_that_does_not_exist_is_refused(home):
    with pytest.raises(BadInput, match="there is no zone with the id use9-az1"):
        sandbox.set_spot_price(home, T4, "use9-az1", Decimal(1))


def test_a_long_history_comes_in_pages(cloud):
    pages = cloud.ec2.get_paginator("describe_spot_price_history").paginate(PaginationConfig={"PageSize": 2})
    sizes = [len(page["SpotPriceHistory"]) for page in pages]
    assert sum(sizes) == len(prices(cloud))
    assert len(sizes) > 1
    assert set(sizes[:-1]) == {2}
