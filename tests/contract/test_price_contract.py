"""What every `PriceFeed` does: the fake of the functional tests, and spot prices of the embedded cloud."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from run_cases import OFFER

from launcher.providers.interface import RefusedError, UnreachableError
from pricing.cost import PriceChange
from pricing.offers import CapacityType

ELSEWHERE = replace(OFFER, zone="use1-az4")


def test_the_price_in_force_is_told_as_it_changes(rig):
    for usd in ("0.2214", "0.31", "0.1999"):
        rig.set_price(OFFER, Decimal(usd))
        found = in_force(rig)
        assert found == Decimal(usd)
        assert isinstance(found, Decimal)


def in_force(rig, offer=OFFER):
    now = rig.now()
    (change,) = rig.prices.changes(offer, now)
    assert change.since == now
    return change.usd_per_hour


def test_all_that_changed_since_a_moment_is_told_with_its_time(rig):
    rig.set_price(OFFER, Decimal("0.22"))
    next_second(rig)
    begin = next_second(rig)
    rig.set_price(OFFER, Decimal("0.31"))
    between = next_second(rig)
    rig.set_price(OFFER, Decimal("0.25"))
    first, second, third = rig.prices.changes(OFFER, begin - timedelta(seconds=1))
    assert first == PriceChange(begin - timedelta(seconds=1), Decimal("0.22"))
    assert begin <= second.since <= between <= third.since
    assert [second.usd_per_hour, third.usd_per_hour] == [Decimal("0.31"), Decimal("0.25")]


def next_second(rig):
    """Clouds tell whole seconds."""
    before = rig.now().replace(microsecond=0)
    while rig.now() < before + timedelta(seconds=1):
        rig.wait()
    return rig.now().replace(microsecond=0)


def test_each_zone_has_a_price_of_its_own(rig):
    rig.set_price(OFFER, Decimal("0.22"))
    rig.set_price(ELSEWHERE, Decimal("0.44"))
    assert in_force(rig) == Decimal("0.22")
    assert in_force(rig, ELSEWHERE) == Decimal("0.44")


def test_an_offer_for_any_zone_is_priced_at_the_dearest(rig):
    rig.set_price(OFFER, Decimal("0.22"))
    rig.set_price(ELSEWHERE, Decimal("0.44"))
    assert in_force(rig, replace(OFFER, zone="")) == Decimal("0.44")


def test_what_cannot_change_or_nobody_knows_has_no_changes(rig):
    rig.set_price(OFFER, Decimal("0.22"))
    assert rig.prices.changes(replace(OFFER, capacity_type=CapacityType.ON_DEMAND), rig.now()) == ()
    assert rig.prices.changes(replace(OFFER, region="us-west-2", zone="usw2-az1"), rig.now()) == ()


def test_a_feed_without_an_answer_is_asked_again(rig):
    rig.set_price(OFFER, Decimal("0.22"))
    rig.fail_next_price("InternalError")
    with pytest.raises(UnreachableError):
        rig.prices.changes(OFFER, rig.now())
    assert in_force(rig) == Decimal("0.22")


def test_a_missing_permission_is_a_refusal_with_a_hint(rig):
    rig.fail_next_price("UnauthorizedOperation")
    with pytest.raises(RefusedError) as error:
        rig.prices.changes(OFFER, rig.now())
    assert error.value.hint
