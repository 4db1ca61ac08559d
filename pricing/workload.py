"""What a run asks for, in the few numbers that planning needs. Knows nothing of offers or prices."""

from __future__ import annotations

from dataclasses import dataclass

from pricing.models import MODELS


@dataclass(frozen=True, slots=True)
class Workload:
    """The few numbers planning needs. `epochs` and `tasks` are what is left to do. Raises ValueError on absurd ones."""

    variant: str
    image_size: int
    batch: int | None
    """Pictures of one optimiser step over all GPUs of a training; None: the largest power of two that fits."""
    epochs: int
    train_images: int
    val_images: int
    data_bytes: int
    """What is staged onto the machine."""
    tasks: int = 1
    """Trainings of this size in the run."""

    def __post_init__(self) -> None:
        if self.variant not in MODELS:
            raise ValueError(f"unknown model {self.variant!r}; known: {', '.join(MODELS)}")
        _at_least(self, 1, "image_size", "epochs", "train_images", "tasks")
        _at_least(self, 0, "val_images", "data_bytes")
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"batch must be at least 1, is {self.batch}")


def _at_least(workload: Workload, least: int, *names: str) -> None:
    for name in names:
        value = getattr(workload, name)
        if not least <= value <= 10**15:
            raise ValueError(f"{name} must be at least {least}, is {value}")
