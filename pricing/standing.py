"""What things cost for each day that they merely stand there: machines, disks, addresses, objects.

Answers None where the tables have no price: unknown is not free. All money is Decimal and exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from pricing.cost import DISK, MONTH_HOURS, OBJECT_STORAGE, Rates, UnknownRate
from pricing.offers import CapacityType, Offer

DAY_HOURS = 24
_GIB = 2**30


class StandingPrices:
    """Prices of one provider, in USD per day."""

    def __init__(self, provider: str, offers: Iterable[Offer], rates: Rates) -> None:
        """Offers of other providers, and those without a price, are left out."""
        self._provider = provider
        self._rates = rates
        self._machines: dict[tuple[str, str, CapacityType], dict[str, Decimal]] = {}
        for offer in offers:
            if offer.provider == provider and offer.usd_per_hour > 0:
                place = (offer.instance.name, offer.region, offer.capacity_type)
                self._machines.setdefault(place, {})[offer.zone] = offer.usd_per_hour

    def machine(self, name: str, region: str, zone: str, capacity_type: CapacityType) -> Decimal | None:
        """A running machine without disk and address; of a zone that is not in the table, the dearest of the region."""
        zones = self._machines.get((name, region, capacity_type))
        if not zones:
            return None
        return DAY_HOURS * zones.get(zone, max(zones.values()))

    def address(self, capacity_type: CapacityType) -> Decimal | None:
        """A public IPv4 address."""
        try:
            return DAY_HOURS * self._rates.address(self._provider, capacity_type).usd
        except UnknownRate:
            return None

    def disk(self, gib: int) -> Decimal | None:
        """A disk of the kind that runs are given."""
        return self._stored(DISK, Decimal(gib))

    def objects(self, size: int) -> Decimal | None:
        """So many bytes in the object storage, parts of unfinished uploads included."""
        return self._stored(OBJECT_STORAGE, Decimal(size) / _GIB)

    def _stored(self, item: str, gib: Decimal) -> Decimal | None:
        try:
            return self._rates.of(self._provider, item).usd * gib * DAY_HOURS / MONTH_HOURS
        except UnknownRate:
            return None
