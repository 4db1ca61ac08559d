"""How fast a detector trains on a machine.

Owns `ThroughputEstimate`, the analytic model and its calibrated constants. Knows nothing of prices. The constants come
from `calibration.fit` over the shipped measurements; a test keeps the two equal.

The model, for b pictures per GPU and step:
- GPU: b (traffic / (share x bandwidth) + arithmetic / (share x tensor peak)). Training of these detectors is bound by
  memory traffic: across 8 GPU types the measured rate follows the datasheet bandwidth, see README.
- launch floor: a step is no shorter than the CPU takes to launch its kernels, so much per layer, whatever the batch.
- step = (GPU^3 + floor^3)^(1/3): a smooth maximum of the two.
- host: pictures per second that the vCPUs can decode and augment.
- DDP: each doubling of the GPUs keeps `ddp_share`.

What it was calibrated on: the reference YOLOv9 code on one H200. The project's own trainer has not been measured on a
GPU yet, so no range is narrower than that calibration's error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pricing.hardware import Gpu, InstanceType
from pricing.layout import Layout
from pricing.models import MODELS, ModelFacts
from pricing.workload import Workload


class Basis(StrEnum):
    """Where an estimate comes from."""

    MEASURED = "measured"
    MODELLED = "modelled"
    PROBED = "probed"


@dataclass(frozen=True, slots=True)
class ThroughputEstimate:
    """Speed of one training of the run, while as many run beside it as the layout says."""

    images_per_second: float
    low: float
    """Exceeded nine times in ten, as far as the error is known."""
    high: float
    """Exceeded once in ten."""
    val_images_per_second: float
    basis: Basis
    source: str
    limited_by: str = ""
    """`GPU`, `launch floor` or `host`; empty where the basis does not say."""


class Throughput(Protocol):
    """Anything that estimates speed."""

    def estimate(self, instance: InstanceType, workload: Workload, layout: Layout, batch: int) -> ThroughputEstimate:
        """Speed of each training of `workload` with a total batch of `batch`. Raises KeyError for an unknown GPU."""


@dataclass(frozen=True, slots=True)
class ProbedThroughput:
    """The same speed for every machine: what a probe measured on the host that will do the work in any case."""

    images_per_second: float
    val_images_per_second: float
    spread: float = 1.3
    """Low and high are a factor of this away."""
    source: str = "probe of this host"

    def __post_init__(self) -> None:
        if not (self.images_per_second > 0 and self.val_images_per_second > 0 and self.spread >= 1):
            raise ValueError("a probe needs positive speeds and a spread of at least 1")

    def estimate(self, instance: InstanceType, workload: Workload, layout: Layout, batch: int) -> ThroughputEstimate:  # noqa: ARG002
        """The probed speed, shared by the trainings that run at the same time."""
        speed = self.images_per_second / layout.jobs
        val_speed = self.val_images_per_second / layout.jobs
        return ThroughputEstimate(speed, speed / self.spread, speed * self.spread, val_speed, Basis.PROBED, self.source)


@dataclass(frozen=True, slots=True)
class Constants:
    """The free constants of the model and its error."""

    bandwidth_share: float
    """Bytes written once by each layer, over bandwidth x time: real traffic is some twenty passes."""
    seconds_per_layer: float
    """Launch floor: seconds of one CPU core per layer and step."""
    tensor_share: float = 0.4
    """Assumed: the traffic term hides it in all measurements."""
    host_images_per_vcpu: float = 23.3
    """Measured with the reference loader, mosaic at 640 px: 373 images/s on 16 vCPUs."""
    ddp_share: float = 0.94
    """Measured: 1.88 times one GPU on two, without synchronised batch normalisation."""
    factor: float = 1.8
    """Low and high are a factor of this away, for a GPU with measured rows."""
    factor_without_rows: float = 2.2
    """The same for a GPU without a single row."""


CALIBRATED = Constants(bandwidth_share=0.01585, seconds_per_layer=0.0003393)

VALIDATION_SPEEDUP = 2.0
"""A forward pass is a third of forward and backward (counted); decoding boxes and NMS take back a part (assumed)."""


@dataclass(frozen=True, slots=True)
class ThroughputModel:
    """The analytic model over a GPU table."""

    gpus: Mapping[str, Gpu]
    measured: frozenset[str]
    """GPU types with at least one measured row: their ranges are narrower."""
    constants: Constants = CALIBRATED

    def estimate(self, instance: InstanceType, workload: Workload, layout: Layout, batch: int) -> ThroughputEstimate:
        """See the head of the module. Raises KeyError for a GPU that the table lacks."""
        gpu = self.gpus[instance.gpu]
        facts = MODELS[workload.variant]
        step, floor_bound = step_seconds(gpu, facts, workload.image_size, batch / layout.world_size, self.constants)
        device = batch / (step / instance.gpu_share) * self.constants.ddp_share ** math.log2(layout.world_size)
        host = host_images_per_second(instance.vcpus, workload.image_size, self.constants) / layout.jobs
        speed = min(device, host)
        factor = self.constants.factor if instance.gpu in self.measured else self.constants.factor_without_rows
        return ThroughputEstimate(
            images_per_second=speed,
            low=speed / factor,
            high=speed * factor,
            val_images_per_second=speed * VALIDATION_SPEEDUP,
            basis=Basis.MODELLED,
            source=f"model calibrated on an H200 with the reference code, error factor {factor:g}",
            limited_by="host" if host < device else ("launch floor" if floor_bound else "GPU"),
        )


def step_seconds(
    gpu: Gpu, facts: ModelFacts, image_size: int, images: float, constants: Constants
) -> tuple[float, bool]:
    """Seconds of one training step with `images` pictures on one GPU, and whether the launch floor rules it."""
    device = images * facts.area_scale(image_size) * image_seconds(gpu, facts, constants)
    floor = facts.layers * constants.seconds_per_layer
    return (device**3 + floor**3) ** (1 / 3), floor > device


def image_seconds(gpu: Gpu, facts: ModelFacts, constants: Constants) -> float:
    """GPU seconds of one picture of 640 px, forward and backward: memory traffic plus arithmetic.

    fp16: two bytes an element; a GPU without a tensor mode works at its fp32 peak.
    """
    traffic = facts.written_melem * 1e6 * 2 / (constants.bandwidth_share * gpu.memory_bandwidth_gb_s * 1e9)
    peak = gpu.fp16_tensor_tflops or gpu.fp32_tflops
    return traffic + facts.train_gflop / (constants.tensor_share * peak * 1e3)


def host_images_per_second(vcpus: int, image_size: int, constants: Constants) -> float:
    """Pictures per second that the loader gives. Half of its work is decoding, half grows with the area (assumed)."""
    scale = 0.5 + 0.5 * (image_size / 640) ** 2
    return vcpus * constants.host_images_per_vcpu / scale
