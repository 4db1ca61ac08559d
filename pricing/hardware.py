"""Machines as facts: what a GPU and an instance type are.

Owns no price and no place. Figures are the vendors' own, with their source; units are in the names.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU model by its datasheet. Tensor peaks are dense figures; None: the model has no such mode."""

    name: str
    architecture: str
    memory_gib: float
    """Nominal memory, as the vendor prints it on the box."""
    fp32_tflops: float
    fp16_tensor_tflops: float | None
    bf16_tensor_tflops: float | None
    memory_bandwidth_gb_s: float
    source: str


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A machine that can be rented, without its price."""

    provider: str
    name: str
    gpu: str
    """Name in the GPU table, exact: `A100-40` and `A100-80` are two."""
    gpu_count: int
    """GPUs that the machine sees; a slice of one counts as one, see `gpu_share`."""
    gpu_memory_gib: float
    """Nominal memory of each GPU, or of the slice."""
    vcpus: int
    memory_gib: float
    local_ssd_gb: float
    gpu_share: float = 1.0
    """Part of a GPU that each of them is; below 1 on sliced types."""
