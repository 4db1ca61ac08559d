"""Spot prices and their changes. Pure: who calls says what time it is.

Where the prices come from is not known here: whoever starts the sandbox brings them along.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class SpotPrice:
    """What an hour of an instance type costs as spot in a zone."""

    instance_type: str
    zone_id: str
    """As `use1-az4`: the same in every account."""
    usd_per_hour: Decimal


@dataclass(frozen=True, slots=True)
class PriceList:
    """The prices that a sandbox starts with. Body of `spot-prices.json`."""

    prices: tuple[SpotPrice, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A price and since when it is in force."""

    price: SpotPrice
    since: datetime


class PriceHistory:
    """All changes of all prices, oldest first for each zone and type."""

    def __init__(self, prices: Iterable[SpotPrice], since: datetime, zone_ids: Collection[str]) -> None:
        """`zone_ids` are the zones that exist; a price of another one is of no use and left out."""
        self._zone_ids = frozenset(zone_ids)
        self._changes: dict[tuple[str, str], list[Change]] = {}
        for price in prices:
            if price.zone_id in self._zone_ids:
                self._add(Change(price, since))

    def _add(self, change: Change) -> None:
        self._changes.setdefault((change.price.instance_type, change.price.zone_id), []).append(change)

    def change(self, instance_type: str, zone_id: str | None, usd_per_hour: Decimal, at: datetime) -> list[SpotPrice]:
        """Set another price in one zone, or in all that have one; returns what changed. Raises ValueError."""
        if not usd_per_hour.is_finite() or usd_per_hour <= 0:
            raise ValueError(f"a price is a positive amount, not {usd_per_hour}")
        if zone_id is not None and zone_id not in self._zone_ids:
            raise ValueError(f"there is no zone with the id {zone_id}")
        zones = [zone_id] if zone_id else sorted(zone for known, zone in self._changes if known == instance_type)
        if not zones:
            raise ValueError(f"{instance_type} has no price in any zone yet: name the zone")
        changed = [SpotPrice(instance_type, zone, usd_per_hour) for zone in zones]
        for price in changed:
            self._add(Change(price, at))
        return changed

    def between(self, start: datetime | None, end: datetime) -> list[Change]:
        """The changes up to `end`, newest first: those since `start`, and of each price the last one before it."""
        found: list[Change] = []
        for changes in self._changes.values():
            before = [change for change in changes if start is not None and change.since < start]
            found += before[-1:] + [change for change in changes[len(before) :] if change.since <= end]
        return sorted(found, key=lambda change: change.since, reverse=True)
