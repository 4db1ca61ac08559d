"""Small machines, offers and policies to plan with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from pricing.cost import (
    CROSS_REGION,
    DISK,
    EGRESS,
    OBJECT_GET,
    OBJECT_PUT,
    OBJECT_STORAGE,
    PUBLIC_IPV4,
    BillingRule,
    Rate,
    Rates,
)
from pricing.hardware import InstanceType
from pricing.offers import CapacityType, Offer, Policy
from pricing.phases import Overheads
from pricing.planner import Plan, plan_run
from pricing.risk import Hazard
from pricing.throughput import ProbedThroughput
from pricing.workload import Workload

NOW = datetime(2026, 12, 1, tzinfo=UTC)
T4_SMALL = InstanceType("aws", "g4dn.xlarge", "T4", 1, 16.0, 4, 16.0, 125.0)
T4_FOUR = InstanceType("aws", "g4dn.12xlarge", "T4", 4, 16.0, 48, 192.0, 900.0)
T4_METAL = InstanceType("aws", "g4dn.metal", "T4", 8, 16.0, 96, 384.0, 1800.0)
V100 = InstanceType("aws", "p3.2xlarge", "V100-16", 1, 16.0, 8, 61.0, 0.0)
A10_SLICE = InstanceType("azure", "Standard_NV12ads_A10_v5", "A10", 1, 8.0, 12, 110.0, 369.0, gpu_share=0.3333)
A100 = InstanceType("gcp", "a2-highgpu-1g", "A100-40", 1, 40.0, 12, 85.0, 0.0)
RATES = Rates(
    rates={
        (provider, item): Rate(Decimal(usd), unit, "test table", "2026-11-01", verified=True)
        for provider in ("aws", "gcp", "azure")
        for item, usd, unit in ((DISK, "0.08", "GiB-month"), (PUBLIC_IPV4, "0.005", "hour"))
    },
    rules={
        "aws": BillingRule(1, 60, free_when_preempted_seconds=3600),
        "gcp": BillingRule(1, 60),
        "azure": BillingRule(1, 60),
    },
)
FULL_RATES = Rates(
    rates={
        **RATES.rates,
        **{
            ("aws", item): Rate(Decimal(usd), unit, "test table", "2026-11-01", verified=True)
            for item, usd, unit in (
                (OBJECT_STORAGE, "0.023", "GiB-month"),
                (OBJECT_PUT, "0.005", "1000 requests"),
                (OBJECT_GET, "0.0004", "1000 requests"),
                (EGRESS, "0.09", "GB"),
                (CROSS_REGION, "0.02", "GB"),
            )
        },
    },
    rules=RATES.rules,
)
"""With everything that a run on AWS pays for beside its machines."""
NO_OVERHEADS = Overheads(0, 0, 1e9, 0, 0, 1.0, "test")
OVERHEADS = {
    "aws": Overheads(100, 20, 100, 10, 10, 1.5, "test"),
    "gcp": Overheads(200, 20, 100, 10, 10, 1.5, "test"),
    "azure": Overheads(200, 20, 100, 10, 10, 1.5, "test"),
}
SPEED = ProbedThroughput(100.0, 200.0, spread=1.5)
WORKLOAD = Workload("yolov9-t", 320, 16, epochs=10, train_images=1000, val_images=100, data_bytes=10 * 2**20)


def offer(
    usd: str = "0.526",
    *,
    instance: InstanceType = T4_SMALL,
    region: str = "us-east-1",
    capacity_type: CapacityType = CapacityType.ON_DEMAND,
    hazard: Hazard | None = None,
) -> Offer:
    """An offer with a verified price of last month."""
    return Offer(instance, region, "", capacity_type, Decimal(usd), "2026-11-15", "test table", hazard=hazard)


def spot(usd: str, per_hour: float = 0.0, **changes: object) -> Offer:
    """A spot offer with a hazard that is known exactly."""
    made = offer(usd, capacity_type=CapacityType.SPOT, hazard=Hazard(per_hour, per_hour, per_hour))
    return replace(made, **changes)  # type: ignore[arg-type]


def plan(offers: list[Offer], policy: Policy | None = None, workload: Workload = WORKLOAD, **changes: object) -> Plan:
    """Plan at a fixed speed."""
    given: dict[str, object] = {
        "throughput": SPEED,
        "rates": RATES,
        "overheads": OVERHEADS,
        "now": NOW,
        **changes,
    }
    return plan_run(workload, offers, policy or Policy(), **given)  # type: ignore[arg-type]
