"""Spot prices in force, from DescribeSpotPriceHistory, as a `PriceFeed`. On-demand prices do not change meanwhile."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from launcher.clock import Clock
from launcher.providers.aws.account import AwsAccount, Clients
from launcher.providers.aws.calls import ask
from launcher.providers.aws.tags import equals
from pricing.offers import CapacityType, Offer


class AwsPrices:
    """What spot machines cost now, in any region of one account."""

    def __init__(self, account: AwsAccount, clock: Clock) -> None:
        self._clients = Clients(account)
        self._clock = clock

    def usd_per_hour(self, offer: Offer) -> Decimal | None:
        """See the port. Where the offer names no zone: the dearest zone of the region."""
        if offer.capacity_type is not CapacityType.SPOT:
            return None
        newest: dict[str, dict[str, Any]] = {}
        for found in self._history(offer):
            zone = found.get("AvailabilityZoneId") or found["AvailabilityZone"]
            if zone not in newest or newest[zone]["Timestamp"] < found["Timestamp"]:
                newest[zone] = found
        return max((Decimal(found["SpotPrice"]) for found in newest.values()), default=None)

    def close(self) -> None:
        """Let go of all connections."""
        self._clients.close()

    def _history(self, offer: Offer) -> list[dict[str, Any]]:
        # A history that starts now has the last change before it: the price in force.
        pages = self._clients.get("ec2", offer.region).get_paginator("describe_spot_price_history")
        answer = ask(
            lambda: list(
                pages.paginate(
                    InstanceTypes=[offer.instance.name],
                    ProductDescriptions=["Linux/UNIX"],
                    StartTime=self._clock.now(),
                    Filters=[equals("availability-zone-id", offer.zone)] if offer.zone else [],
                )
            )
        )
        return [found for page in answer for found in page["SpotPriceHistory"]]
