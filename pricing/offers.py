"""Offers, what a run needs of them, and why one does not fit.

Owns `Offer`, `Policy` and `misfit`: plain values and the constraints that need no estimate of time or cost.
Budget and deadline need one and are the planner's. Must not know where prices come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from pricing.hardware import InstanceType
from pricing.layout import Layout, layout_for
from pricing.memory import choose_batch, needed_gib, usable_gib
from pricing.risk import PRIOR_HAZARD, ZERO_HAZARD, Hazard
from pricing.workload import Workload


class CapacityType(StrEnum):
    """How the machine is sold."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


class Market(StrEnum):
    """Which capacity types a run may use."""

    ANY = "any"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


class Constraint(StrEnum):
    """What can rule an offer out; the values are what a message calls them."""

    CLOUD = "cloud"
    REGION = "region"
    GPU = "GPU"
    MARKET = "market"
    PROVIDER = "no provider yet"
    PRICE = "price unknown"
    SUPPORT = "not supported"
    CHECKPOINTS = "no checkpoints"
    COOLED = "refused lately"
    WASTE = "idle GPUs"
    MEMORY = "GPU memory"
    RATES = "rates unknown"
    RISK = "preemptions"
    DEADLINE = "deadline"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to rent one instance type: place, capacity type, price."""

    instance: InstanceType
    region: str
    zone: str
    """Empty: any zone of the region. AWS: the zone id (`use1-az1`), which is the same in every account."""
    capacity_type: CapacityType
    usd_per_hour: Decimal
    """0: the price is unknown."""
    observed_at: str
    """ISO date; or `FROM/TO`, where only bounds are known."""
    source: str
    verified: bool = True
    """The figure was checked against a second source."""
    on_demand_usd_per_hour: Decimal | None = None
    """On a spot offer: the on-demand price of the same place, where known."""
    hazard: Hazard | None = None
    """On a spot offer: preemptions per hour of running, where a source says; see `risk`."""

    @property
    def provider(self) -> str:
        """Name of the cloud."""
        return self.instance.provider

    @property
    def risk(self) -> Hazard:
        """The hazard to plan with: none on demand; a stated prior for spot of which nothing is known, never zero."""
        if self.capacity_type is CapacityType.ON_DEMAND:
            return ZERO_HAZARD
        return self.hazard or PRIOR_HAZARD

    def is_away_from(self, region: str | None) -> bool:
        """Whether the machine is in another region than this one; not where that is not known."""
        return region is not None and region != self.region

    @property
    def key(self) -> str:
        """Stable text id: provider, region, zone, type, capacity type."""
        return f"{self.instance.provider}/{self.region}/{self.zone or '*'}/{self.instance.name}/{self.capacity_type}"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user allows. Empty tuples allow everything. Raises ValueError on absurd numbers."""

    budget_usd: Decimal | None = None
    max_hours: float | None = None
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    """Exact names of the GPU table."""
    market: Market = Market.ANY
    disk_gib: int = 100
    confidence: float = 0.9
    """Budget and deadline hold with this probability, as far as the throughput model knows its own error."""
    checkpoints_restorable: bool = True
    """False: a preempted training would start from zero, so spot is refused."""
    provisionable: tuple[str, ...] | None = None
    """Clouds on which a machine can be started; None: an estimate only, all are ranked."""
    max_gpus_per_task: int = 1
    """How many GPUs the trainer may spread one training over."""
    idle_gpus_allowed: bool = False
    """Pay for GPUs that stay idle, where nothing else is wanted."""
    storage_region: str | None = None
    """Where the bucket is: traffic with machines elsewhere is paid for. None: not known, and not counted."""
    keeps_data: bool = False
    """The run puts the data set into the bucket, where it stays."""
    resumes: bool = False
    """There are checkpoints that a machine fetches first."""

    def __post_init__(self) -> None:
        if self.budget_usd is not None and not (self.budget_usd.is_finite() and self.budget_usd > 0):
            raise ValueError(f"budget must be a positive amount, is {self.budget_usd}")
        if self.max_hours is not None and not (math.isfinite(self.max_hours) and self.max_hours > 0):
            raise ValueError(f"the deadline must be a positive number of hours, is {self.max_hours}")
        if not 0.5 <= self.confidence <= 0.99:
            raise ValueError(f"confidence must lie in 0.5 to 0.99, is {self.confidence}")
        if self.disk_gib < 1 or self.max_gpus_per_task < 1:
            raise ValueError("disk_gib and max_gpus_per_task must be at least 1")


@dataclass(frozen=True, slots=True)
class Misfit:
    """A constraint that an offer does not meet, and the sentence with the numbers."""

    constraint: Constraint
    reason: str
    seconds: float | None = None
    """How long it may take there, where that is longer than allowed."""


def misfit(offer: Offer, workload: Workload, policy: Policy) -> str | None:
    """Why this offer cannot be used, or None. Budget and deadline are not looked at."""
    found = offer_misfit(offer, policy) or type_misfit(offer.instance, workload, policy)
    return None if found is None else found.reason


def offer_misfit(offer: Offer, policy: Policy) -> Misfit | None:
    """The part of `misfit` that depends on place, market and price."""
    provider = offer.instance.provider
    if policy.clouds and provider not in policy.clouds:
        return Misfit(Constraint.CLOUD, f"cloud {provider} is not among {', '.join(policy.clouds)}")
    if policy.regions and offer.region not in policy.regions:
        return Misfit(Constraint.REGION, f"region {offer.region} is not among {', '.join(policy.regions)}")
    if policy.gpus and offer.instance.gpu not in policy.gpus:
        return Misfit(Constraint.GPU, f"GPU {offer.instance.gpu} is not among {', '.join(policy.gpus)}")
    if policy.market not in (Market.ANY, offer.capacity_type):
        return Misfit(Constraint.MARKET, f"{offer.capacity_type} is not the market asked for ({policy.market})")
    if policy.provisionable is not None and provider not in policy.provisionable:
        return Misfit(Constraint.PROVIDER, f"estimate only: no machine can be started on {provider} yet")
    if not (offer.usd_per_hour.is_finite() and offer.usd_per_hour > 0):
        return Misfit(Constraint.PRICE, "the price is unknown")
    unsold = _unsold(offer)
    if unsold is not None:
        return Misfit(Constraint.SUPPORT, unsold)
    if offer.capacity_type is CapacityType.SPOT and not policy.checkpoints_restorable:
        return Misfit(Constraint.CHECKPOINTS, "spot, and no checkpoint can be restored: a preemption starts from zero")
    return None


def type_misfit(instance: InstanceType, workload: Workload, policy: Policy) -> Misfit | None:
    """The part of `misfit` that depends on the instance type alone: support, idle GPUs, batch, memory."""
    unsupported = _unsupported(instance)
    if unsupported is not None:
        return Misfit(Constraint.SUPPORT, unsupported)
    layout = layout_for(instance.gpu_count, workload.tasks, policy.max_gpus_per_task)
    if layout.gpus_used < instance.gpu_count and not policy.idle_gpus_allowed:
        return Misfit(Constraint.WASTE, f"pays for {instance.gpu_count} GPUs and would use {layout.gpus_used}")
    return _batch_misfit(instance, workload, layout)


def _batch_misfit(instance: InstanceType, workload: Workload, layout: Layout) -> Misfit | None:
    if workload.batch is not None and workload.batch % layout.world_size:
        text = f"batch {workload.batch} does not divide over {layout.world_size} GPUs"
        return Misfit(Constraint.MEMORY, text)
    if choose_batch(instance, workload, layout) is not None:
        return None
    share = max(1, (workload.batch or layout.world_size) // layout.world_size)
    need = needed_gib(workload.variant, workload.image_size, share)
    have = f"{usable_gib(instance):.1f} of {instance.gpu_memory_gib:g}"
    text = f"needs {need:.1f} GiB per GPU for batch {share}, has {have}"
    return Misfit(Constraint.MEMORY, text)


NO_AWS_IMAGE_FOR_V100 = (
    "no current AWS image drives V100 (P3): the Deep Learning images dropped it in 2026, torch 2.11 has no code for it"
)
NOT_ON_DEMAND = frozenset({"a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g", "a3-ultragpu-8g"})
"""Sold as spot, flex-start or by reservation only by GCP ("Consumption options"), whatever the list says."""


def _unsupported(instance: InstanceType) -> str | None:
    if instance.provider == "aws" and instance.gpu.startswith("V100"):
        return NO_AWS_IMAGE_FOR_V100
    return None


def _unsold(offer: Offer) -> str | None:
    if offer.instance.name in NOT_ON_DEMAND and offer.capacity_type is CapacityType.ON_DEMAND:
        return f"{offer.instance.name} is not sold on demand"
    return None
