"""How long each phase of a run takes on one machine.

Owns the phase times and the overheads around training. Everything that runs while the machine is paid for is counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from pricing.layout import Layout
from pricing.throughput import ThroughputEstimate
from pricing.workload import Workload


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Seconds that each phase takes while the machine is paid for."""

    boot: float
    environment: float
    staging: float
    training: float
    validation: float
    sync: float
    shutdown: float

    @property
    def total(self) -> float:
        """Seconds from running to gone."""
        return self.work + self.around

    @property
    def work(self) -> float:
        """Seconds that a preemption can take work from."""
        return self.training + self.validation

    @property
    def around(self) -> float:
        """Seconds of everything else."""
        return self.restart + self.sync + self.shutdown

    @property
    def restart(self) -> float:
        """Seconds until training goes on, on a new machine."""
        return self.boot + self.environment + self.staging


@dataclass(frozen=True, slots=True)
class Overheads:
    """What a cloud takes beside the training."""

    boot_seconds: float
    """From running (billing begins) until SSH answers."""
    environment_seconds: float
    """Bundle, start of the agent, first import of torch from a cold disk."""
    staging_mib_per_second: float
    """Data set from object storage onto the disk, unpacked."""
    sync_seconds: float
    """Last checkpoint and results to the object storage; earlier ones go beside the training."""
    shutdown_seconds: float
    """From the end of the sync until the provider has stopped billing."""
    spread: float
    """Factor between the expected overheads and their low and high ends."""
    source: str


DEFAULT_OVERHEADS: dict[str, Overheads] = {
    "aws": Overheads(150, 60, 60, 20, 30, 2.0, "assumed, around user reports of 4 to 10 min from request to SSH"),
    "gcp": Overheads(
        420, 90, 60, 20, 60, 1.6, "assumed, around user reports of 7 to 7.5 min until a GPU machine is ready"
    ),
    "azure": Overheads(300, 120, 60, 20, 60, 2.0, "assumed, no measurement"),
    "alibaba": Overheads(240, 120, 60, 20, 60, 2.0, "assumed, no measurement"),
}
"""By cloud, for a prebuilt PyTorch image. None of them has been measured with this project yet."""


def phase_times(
    workload: Workload, layout: Layout, images_per_second: float, estimate: ThroughputEstimate, overheads: Overheads
) -> PhaseTimes:
    """Expected times at `images_per_second`; validation keeps the estimate's ratio to training."""
    rounds = -(-workload.tasks // layout.jobs)
    val_speed = estimate.val_images_per_second * images_per_second / estimate.images_per_second
    return PhaseTimes(
        boot=overheads.boot_seconds,
        environment=overheads.environment_seconds,
        staging=workload.data_bytes / (overheads.staging_mib_per_second * 2**20),
        training=rounds * workload.epochs * workload.train_images / images_per_second,
        validation=rounds * workload.epochs * workload.val_images / val_speed,
        sync=overheads.sync_seconds,
        shutdown=overheads.shutdown_seconds,
    )
