"""How AWS describes what carries our tags, in the words of the sweep port. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from launcher.providers.aws.tags import DEADLINE_TAG, LEASE_TAG, OUTPUT_TAG, RUN_TAG
from launcher.providers.sweep import ENDING, Found, Kind
from launcher.units import show_gib
from pricing.offers import CapacityType
from pricing.standing import StandingPrices

Item: TypeAlias = Mapping[str, Any]

FREE = Decimal(0)
_ENDING = frozenset({"shutting-down", "deleting"})
_PRICED_DISK = "gp3"
"""The kind that runs are given, and the one whose rate is in the table."""
_LEASE = re.compile(r"lease (\S+)$")
_FIRES = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")


def instance(item: Item, region: str, prices: StandingPrices) -> Found:
    """A machine, without its disks, which are listed by themselves."""
    market = CapacityType.SPOT if item.get("InstanceLifecycle") == "spot" else CapacityType.ON_DEMAND
    name, state = str(item["InstanceType"]), str(item["State"]["Name"])
    off = state in {"stopped", "stopping"}
    usd = FREE if off or state in _ENDING else prices.machine(name, region, _zone(item), market)
    if item.get("PublicIpAddress"):
        usd = _sum(usd, prices.address(market))
    return replace(
        _tagged(item, Kind.INSTANCE, "InstanceId", region),
        state=_state(state),
        usd_per_day=usd,
        made_at=item.get("LaunchTime"),
        note=f"{name} {market}" + ("; stopped: its disks are billed all the same" if off else ""),
    )


def volume(item: Item, region: str, prices: StandingPrices) -> Found:
    """A disk."""
    kind, gib = str(item["VolumeType"]), int(item["Size"])
    holders = [str(held["InstanceId"]) for held in item.get("Attachments", []) if held.get("InstanceId")]
    return replace(
        _tagged(item, Kind.VOLUME, "VolumeId", region),
        state=_state(str(item["State"])),
        usd_per_day=prices.disk(gib) if kind == _PRICED_DISK else None,
        made_at=item.get("CreateTime"),
        note=f"{gib} GiB {kind} of {', '.join(holders) or 'no machine'}",
    )


def interface(item: Item, region: str, prices: StandingPrices) -> Found:
    """A network interface; the address of an attached one is counted with its machine."""
    holder = str((item.get("Attachment") or {}).get("InstanceId") or "")
    alone = not holder and bool((item.get("Association") or {}).get("PublicIp"))
    return replace(
        _tagged(item, Kind.INTERFACE, "NetworkInterfaceId", region),
        state=_state(str(item.get("Status", ""))),
        usd_per_day=prices.address(CapacityType.ON_DEMAND) if alone else FREE,
        note=f"of {holder or 'no machine'}" + (", with a public address" if alone else ""),
    )


def spot_request(item: Item, region: str, _prices: StandingPrices) -> Found:
    """A request that waits."""
    found = _tagged(item, Kind.SPOT_REQUEST, "SpotInstanceRequestId", region)
    return replace(found, state=str(item["State"]), made_at=item.get("CreateTime"), note="may still start a machine")


def key_pair(item: Item, region: str, _prices: StandingPrices) -> Found:
    """A public key."""
    return replace(_tagged(item, Kind.KEY_PAIR, "KeyName", region), made_at=item.get("CreateTime"))


def security_group(item: Item, region: str, _prices: StandingPrices) -> Found:
    """A security group."""
    return replace(_tagged(item, Kind.SECURITY_GROUP, "GroupId", region), note=str(item.get("GroupName", "")))


def launch_template(item: Item, region: str, _prices: StandingPrices) -> Found:
    """A launch template."""
    found = _tagged(item, Kind.LAUNCH_TEMPLATE, "LaunchTemplateId", region)
    return replace(found, made_at=item.get("CreateTime"), note=str(item.get("LaunchTemplateName", "")))


def schedule(item: Item, region: str) -> Found:
    """A stop held by the cloud. It has no tags: the description names the lease, the expression the deadline."""
    lease = _LEASE.search(str(item.get("Description", "")))
    fires = _FIRES.fullmatch(str(item.get("ScheduleExpression", "")))
    utc = item.get("ScheduleExpressionTimezone", "UTC") == "UTC"
    return Found(
        Kind.SCHEDULE,
        str(item["Name"]),
        region,
        run_id=re.sub(r"-\d+$", "", lease[1]) if lease else None,
        lease_id=lease[1] if lease else None,
        deadline=read_time(f"{fires[1]}Z") if fires and utc else None,
        state=str(item.get("State", "")).lower(),
        usd_per_day=FREE,
        made_at=item.get("CreationDate"),
        note=f"fires {fires[1]}" if fires else "",
    )


def upload(item: Item, bucket: str, output: str, sizes: list[int] | None, prices: StandingPrices) -> Found:
    """An upload that was never completed; `sizes` of its parts, None where they cannot be read."""
    key, root = str(item["Key"]), output.removeprefix("s3://").partition("/")[2]
    below = key.removeprefix(f"{root}/" if root else "")
    run, slash, _ = below.partition("/")
    return Found(
        Kind.UPLOAD,
        f"s3://{bucket}/{key}",
        "",
        run_id=run if slash and run != "data" else None,
        output=output,
        usd_per_day=None if sizes is None else prices.objects(sum(sizes)),
        made_at=item.get("Initiated"),
        note="size unknown" if sizes is None else f"{show_gib(sum(sizes))}, parts: {len(sizes)}",
        handle=str(item["UploadId"]),
    )


def read_time(text: str | None) -> datetime | None:
    """A time with its zone, from a tag; None for anything else: a time of which the zone is a guess is no deadline."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.astimezone(UTC)


def _tagged(item: Item, kind: Kind, id_key: str, region: str) -> Found:
    """What the tags say; free of charge until somebody says otherwise."""
    tags = {str(tag["Key"]): _plain(str(tag["Value"])) for tag in item.get("Tags") or item.get("TagSet") or []}
    return Found(
        kind,
        str(item[id_key]),
        region,
        run_id=tags.get(RUN_TAG),
        lease_id=tags.get(LEASE_TAG),
        deadline=read_time(tags.get(DEADLINE_TAG)),
        output=(tags.get(OUTPUT_TAG) or "").rstrip("/") or None,
        usd_per_day=FREE,
    )


def _state(name: str) -> str:
    return ENDING if name in _ENDING else name


def _plain(text: str) -> str:
    """A tag can be written by anybody in the account, and is shown on a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _zone(item: Item) -> str:
    return str((item.get("Placement") or {}).get("AvailabilityZoneId") or "")


def _sum(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if one is None or other is None else one + other
