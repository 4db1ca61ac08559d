"""What every `PriceFeed` does: the fake of the functional tests, and spot prices of the embedded cloud."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from run_cases import OFFER

from launcher.providers.interface import RefusedError, UnreachableError
from pricing.offers import CapacityType

ELSEWHERE = replace(OFFER, zone="use1-az4")


def test_the_price_in_force_is_told_as_it_changes(rig):
    for usd in ("0.2214", "0.31", "0.1999"):
        rig.set_price(OFFER, Decimal(usd))
        found = rig.prices.usd_per_hour(OFFER)
        assert found == Decimal(usd)
        assert isinstance(found, Decimal)


def test_each_zone_has_a_price_of_its_own(rig):
    rig.set_price(OFFER, Decimal("0.22"))
    rig.set_price(ELSEWHERE, Decimal("0.44"))
    assert rig.prices.usd_per_hour(OFFER) == Decimal("0.22")
    assert rig.prices.usd_per_hour(ELSEWHERE) == Decimal("0.44")


def test_an_offer_for_any_zone_is_priced_at_the_dearest(rig):
    rig.set_price(OFFER, Decimal("0.22"))
    rig.set_price(ELSEWHERE, Decimal("0.44"))
    assert rig.prices.usd_per_hour(replace(OFFER, zone="")) == Decimal("0.44")


def test_what_cannot_change_or_nobody_knows_is_none(rig):
    rig.set_price(OFFER, Decimal("0.22"))
    assert rig.prices.usd_per_hour(replace(OFFER, capacity_type=CapacityType.ON_DEMAND)) is None
    assert rig.prices.usd_per_hour(replace(OFFER, region="us-west-2", zone="usw2-az1")) is None


def test_a_feed_without_an_answer_is_asked_again(rig):
    rig.set_price(OFFER, Decimal("0.22"))
    rig.fail_next_price("InternalError")
    with pytest.raises(UnreachableError):
        rig.prices.usd_per_hour(OFFER)
    assert rig.prices.usd_per_hour(OFFER) == Decimal("0.22")


def test_a_missing_permission_is_a_refusal_with_a_hint(rig):
    rig.fail_next_price("UnauthorizedOperation")
    with pytest.raises(RefusedError) as error:
        rig.prices.usd_per_hour(OFFER)
    assert error.value.hint
