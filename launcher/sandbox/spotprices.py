"""DescribeSpotPriceHistory with prices of the sandbox's own, in the place of moto's, which are all the same.

Knows moto's way to read a request and to write an answer; what was in force when is `prices`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.spot_instances import SpotInstances

from launcher.sandbox.prices import Change, PriceHistory

PRODUCT = "Linux/UNIX"
_PRODUCTS = (PRODUCT, "Linux/UNIX (Amazon VPC)")
"""What callers may ask for and mean Linux."""
_PAGE = 1000
_FILTERS = ("availability-zone", "availability-zone-id", "instance-type", "product-description")


@dataclass(frozen=True, slots=True)
class _Query:
    """What a caller asks for. None: whatever it is."""

    start: datetime | None
    end: datetime
    instance_types: Collection[str] | None
    zones: Collection[str] | None
    """By name."""
    zone_ids: Collection[str] | None
    products: Collection[str] | None


def install(history: PriceHistory) -> None:
    """Answer from `history` from now on. One per process: moto's class is changed."""

    def describe_spot_price_history(self: SpotInstances) -> ActionResult:
        self.error_on_dryrun()
        query = _read(self)
        names = {zone.zone_id: zone.name for zone in self.ec2_backend.describe_availability_zones()}
        found = [
            _entry(change, names[change.price.zone_id])
            for change in history.between(query.start, query.end)
            if change.price.zone_id in names and _fits(query, change, names[change.price.zone_id])
        ]
        return _page(self, found)

    SpotInstances.describe_spot_price_history = describe_spot_price_history  # type: ignore[method-assign]


def _read(response: SpotInstances) -> _Query:
    filters: dict[str, Any] = dict(response._filters_from_querystring())
    for name in filters:
        if name not in _FILTERS:
            raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid.")
    return _Query(
        start=_moment(response._get_param("StartTime")),
        end=_moment(response._get_param("EndTime")) or datetime.now(UTC),
        instance_types=_asked(response._get_param("InstanceTypes"), filters.get("instance-type")),
        zones=_asked(response._get_param("AvailabilityZone"), filters.get("availability-zone")),
        zone_ids=_asked(response._get_param("AvailabilityZoneId"), filters.get("availability-zone-id")),
        products=_asked(response._get_param("ProductDescriptions"), filters.get("product-description")),
    )


def _moment(given: datetime | None) -> datetime | None:
    return given.replace(tzinfo=given.tzinfo or UTC) if given is not None else None


def _asked(parameter: str | list[str] | None, values: list[str] | None) -> Collection[str] | None:
    """What a parameter and the filter of the same meaning leave over together; None where neither is given."""
    parameter = [parameter] if isinstance(parameter, str) else parameter
    if parameter and values is not None:
        return set(parameter) & set(values)
    return parameter or values


def _fits(query: _Query, change: Change, zone: str) -> bool:
    return (
        (query.instance_types is None or change.price.instance_type in query.instance_types)
        and (query.zones is None or zone in query.zones)
        and (query.zone_ids is None or change.price.zone_id in query.zone_ids)
        and (query.products is None or any(product in query.products for product in _PRODUCTS))
    )


def _entry(change: Change, zone: str) -> dict[str, object]:
    return {
        "InstanceType": change.price.instance_type,
        "ProductDescription": PRODUCT,
        "SpotPrice": f"{change.price.usd_per_hour:.6f}",
        "Timestamp": change.since,
        "AvailabilityZone": zone,
        "AvailabilityZoneId": change.price.zone_id,
    }


def _page(response: SpotInstances, found: list[dict[str, object]]) -> ActionResult:
    """One page of them; a token is the place where the next one begins."""
    at = int(response._get_param("NextToken") or 0)
    size = min(int(response._get_param("MaxResults") or _PAGE), _PAGE)
    following = str(at + size) if at + size < len(found) else ""
    return ActionResult({"SpotPriceHistory": found[at : at + size], "NextToken": following})
