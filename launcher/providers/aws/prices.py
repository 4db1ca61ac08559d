"""Spot prices as they change, from DescribeSpotPriceHistory, as a `PriceFeed`. On-demand prices stay meanwhile."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from launcher.providers.aws.account import AwsAccount, Clients
from launcher.providers.aws.calls import ask
from launcher.providers.aws.tags import equals
from pricing.cost import PriceChange
from pricing.offers import CapacityType, Offer


class AwsPrices:
    """What spot machines cost, in any region of one account."""

    def __init__(self, account: AwsAccount) -> None:
        self._clients = Clients(account)

    def changes(self, offer: Offer, since: datetime) -> tuple[PriceChange, ...]:
        """See the port. Where the offer names no zone: the dearest zone of the region at each moment."""
        if offer.capacity_type is not CapacityType.SPOT:
            return ()
        return _dearest(self._history(offer, since), since)

    def close(self) -> None:
        """Let go of all connections."""
        self._clients.close()

    def _history(self, offer: Offer, since: datetime) -> list[dict[str, Any]]:
        # A history has the last change before its start, too: the price in force there.
        pages = self._clients.get("ec2", offer.region).get_paginator("describe_spot_price_history")
        answer = ask(
            lambda: list(
                pages.paginate(
                    InstanceTypes=[offer.instance.name],
                    ProductDescriptions=["Linux/UNIX"],
                    StartTime=since,
                    Filters=[equals("availability-zone-id", offer.zone)] if offer.zone else [],
                )
            )
        )
        return [found for page in answer for found in page["SpotPriceHistory"]]


def _dearest(history: list[dict[str, Any]], since: datetime) -> tuple[PriceChange, ...]:
    """The highest price of all zones as it changes; one line of a history holds for its zone until that zone's next."""
    prices: dict[str, Decimal] = {}
    highest: dict[datetime, Decimal] = {}
    for found in sorted(history, key=lambda found: found["Timestamp"]):
        prices[found.get("AvailabilityZoneId") or found["AvailabilityZone"]] = Decimal(found["SpotPrice"])
        highest[max(since, found["Timestamp"])] = max(prices.values())
    return tuple(PriceChange(at, usd) for at, usd in highest.items())
