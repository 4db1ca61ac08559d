"""How much GPU memory a training needs, and the batch that fits.

Owns the memory model: CUDA context, weights and their companions, activations per picture. An estimate with a margin,
not a promise: crowded pictures raise the peak (the loss matches every box with every cell).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pricing.models import MODELS

if TYPE_CHECKING:
    from pricing.hardware import InstanceType
    from pricing.layout import Layout
    from pricing.workload import Workload

CONTEXT_GIB = 0.8
"""CUDA context and libraries outside the allocator: some hundred MiB by NVIDIA's guide; the upper end is taken."""
FRAGMENTATION = 1.15
"""Reserved over allocated memory. Measured on an H200: 1.03 to 1.09 without a loader, 1.2 with one."""
USABLE_SHARE = 0.93
"""Nominal memory that a program can get: ECC and the driver keep the rest (a T4 of 16 GiB shows 15.0)."""
AUTO_BATCH_MOST = 64
"""Nominal batch of the recipe: a larger one changes the training, not only its speed."""
AUTO_STEPS_LEAST = 12
"""Automatic batches leave at least so many steps in an epoch: a small set trained in few, large steps learns little."""


def needed_gib(variant: str, image_size: int, images_per_gpu: int) -> float:
    """GiB that a training with this many pictures per GPU and step takes of one GPU."""
    facts = MODELS[variant]
    activations = facts.gib_per_image * facts.area_scale(image_size) * images_per_gpu
    return CONTEXT_GIB + FRAGMENTATION * (facts.fixed_gib + activations)


def usable_gib(instance: InstanceType) -> float:
    """GiB of one GPU of this type that a training can use."""
    return USABLE_SHARE * instance.gpu_memory_gib


def choose_batch(instance: InstanceType, workload: Workload, layout: Layout) -> int | None:
    """Batch over all GPUs of one training: the one asked for, or the largest power of two; None: it does not fit.

    Automatic batches are limited by `AUTO_BATCH_MOST` and `AUTO_STEPS_LEAST`.
    """
    have = usable_gib(instance)
    world = layout.world_size
    if workload.batch is not None:
        fits = needed_gib(workload.variant, workload.image_size, -(-workload.batch // world)) <= have
        return workload.batch if fits else None
    most = min(AUTO_BATCH_MOST, max(1, workload.train_images // AUTO_STEPS_LEAST))
    best = None
    per_gpu = 1
    while per_gpu == 1 or per_gpu * world <= most:
        if needed_gib(workload.variant, workload.image_size, per_gpu) > have:
            break
        best = per_gpu * world
        per_gpu *= 2
    return best
