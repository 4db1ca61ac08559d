"""Reading the shipped tables.

Owns the schema of `pricing/data/*.csv`. Each table is read once per process, when asked for; nothing is written.
The offers table has no quoted field on purpose: splitting lines is several times faster than a CSV parser, and
`estimate` starts with it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import MappingProxyType

from pricing.calibration import ThroughputRow
from pricing.cost import BillingRule, Rate, Rates
from pricing.hardware import Gpu, InstanceType
from pricing.offers import CapacityType, Offer
from pricing.risk import BUCKETS, Hazard, bucket_hazard
from pricing.throughput import ThroughputModel

DATA = Path(__file__).parents[1] / "data"
ADVISOR_SOURCE = "AWS Spot Instance Advisor"


class TableError(Exception):
    """A shipped table is damaged: the message names file and row. Reinstalling the package is the remedy."""


def _records(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


@cache
def load_gpus() -> Mapping[str, Gpu]:
    """GPU facts by name."""
    gpus = {
        row["name"]: Gpu(
            name=row["name"],
            architecture=row["architecture"],
            memory_gib=float(row["memory_gib"]),
            fp32_tflops=float(row["fp32_tflops"]),
            fp16_tensor_tflops=_optional(row["fp16_tensor_tflops"]),
            bf16_tensor_tflops=_optional(row["bf16_tensor_tflops"]),
            memory_bandwidth_gb_s=float(row["memory_bandwidth_gb_s"]),
            source=row["source"],
        )
        for row in _records("gpus.csv")
    }
    return MappingProxyType(gpus)


def _optional(text: str) -> float | None:
    return float(text) if text else None


@cache
def load_instance_types() -> Mapping[tuple[str, str], InstanceType]:
    """Instance types by provider and name."""
    types = {
        (row["provider"], row["name"]): InstanceType(
            provider=row["provider"],
            name=row["name"],
            gpu=row["gpu"],
            gpu_count=int(row["gpu_count"]),
            gpu_memory_gib=float(row["gpu_memory_gib"]),
            vcpus=int(row["vcpus"]),
            memory_gib=float(row["memory_gib"]),
            local_ssd_gb=float(row["local_ssd_gb"]),
            gpu_share=float(row["gpu_share"]),
        )
        for row in _records("instance_types.csv")
    }
    return MappingProxyType(types)


@cache
def load_rates() -> Rates:
    """Rates beside the machines and billing rules. The region of a rate is named in its source."""
    rates = {
        (row["provider"], row["item"]): Rate(
            usd=Decimal(row["usd"]),
            unit=row["unit"],
            source=f"{row['source']}; rate of region {row['region']}",
            observed_at=row["observed_at"],
            verified=row["verified"] == "yes",
        )
        for row in _records("rates.csv")
    }
    rules = {
        row["provider"]: BillingRule(
            granularity_seconds=int(row["granularity_seconds"]),
            minimum_seconds=int(row["minimum_seconds"]),
            free_when_preempted_seconds=int(row["free_when_preempted_seconds"]),
            source=row["source"],
            verified=row["verified"] == "yes",
        )
        for row in _records("billing.csv")
    }
    return Rates(MappingProxyType(rates), MappingProxyType(rules))


@cache
def load_spot_hazards() -> Mapping[tuple[str, str], Hazard]:
    """Hazards of AWS spot offers by region and instance type; elsewhere the prior holds."""
    known: dict[tuple[str, str], Hazard] = {}
    hazards: dict[tuple[str, str], Hazard] = {}
    for row in _records("spot_advisor.csv"):
        key = (row["bucket"], row["observed_at"])
        if key not in known:
            known[key] = bucket_hazard(*BUCKETS[key[0]], f"{ADVISOR_SOURCE}, {key[0]} a month, {key[1]}")
        hazards[row["region"], row["instance"]] = known[key]
    return MappingProxyType(hazards)


@dataclass(frozen=True, slots=True)
class PriceSource:
    """Where and when a group of prices was seen, and which of its figures a second source confirmed."""

    source: str
    observed_at: str
    on_demand_verified: bool
    spot_verified: bool


@cache
def load_price_sources() -> Mapping[str, PriceSource]:
    """Sources of the offers by their short id."""
    sources = {
        row["id"]: PriceSource(
            row["source"], row["observed_at"], row["on_demand_verified"] == "yes", row["spot_verified"] == "yes"
        )
        for row in _records("sources.csv")
    }
    return MappingProxyType(sources)


@cache
def load_offers() -> tuple[Offer, ...]:
    """All offers of the shipped table, on-demand and spot. Raises TableError."""
    types, sources, hazards = load_instance_types(), load_price_sources(), load_spot_hazards()
    offers: list[Offer] = []
    lines = (DATA / "offers.csv").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines[1:], start=2):
        try:
            provider, name, region, zone, on_demand, spot, source_id = line.split(",")
            instance, source = types[provider, name], sources[source_id]
            reference = Decimal(on_demand) if on_demand else None
            if reference is not None:
                offers.append(_on_demand(instance, (region, zone), reference, source))
            if spot:
                hazard = hazards.get((region, name)) if provider == "aws" else None
                offers.append(_spot(instance, (region, zone), (Decimal(spot), reference), source, hazard))
        except (ValueError, KeyError, ArithmeticError) as error:
            raise TableError(f"offers.csv line {number}: {error!r}") from error
    return tuple(offers)


def _on_demand(instance: InstanceType, place: tuple[str, str], usd: Decimal, source: PriceSource) -> Offer:
    return Offer(
        instance=instance,
        region=place[0],
        zone=place[1],
        capacity_type=CapacityType.ON_DEMAND,
        usd_per_hour=usd,
        observed_at=source.observed_at,
        source=source.source,
        verified=source.on_demand_verified,
    )


def _spot(
    instance: InstanceType,
    place: tuple[str, str],
    usd: tuple[Decimal, Decimal | None],
    source: PriceSource,
    hazard: Hazard | None,
) -> Offer:
    return Offer(
        instance=instance,
        region=place[0],
        zone=place[1],
        capacity_type=CapacityType.SPOT,
        usd_per_hour=usd[0],
        observed_at=source.observed_at,
        source=source.source,
        verified=source.spot_verified,
        on_demand_usd_per_hour=usd[1],
        hazard=hazard,
    )


@cache
def load_throughput_rows() -> tuple[ThroughputRow, ...]:
    """Measured training speeds."""
    return tuple(
        ThroughputRow(
            gpu=row["gpu"],
            gpu_count=int(row["gpu_count"]),
            model=row["model"],
            image_size=int(row["image_size"]),
            batch=int(row["batch"]) if row["batch"] else None,
            precision=row["precision"],
            images_per_second=float(row["images_per_second"]),
            use=row["use"],
            note=row["note"],
            source=row["source"],
            observed_at=row["observed_at"],
        )
        for row in _records("throughput.csv")
    )


@cache
def load_throughput_model() -> ThroughputModel:
    """The shipped model with its calibrated constants."""
    measured = frozenset(row.gpu for row in load_throughput_rows() if row.use != "none")
    return ThroughputModel(load_gpus(), measured)
