"""How the trainings of a run are spread over the GPUs of one machine.

Owns the two layouts and the rule that picks one. Knows nothing of prices or speed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ddp:
    """One training at a time, spread over `world_size` GPUs; 1 is the plain case. Further ones follow."""

    world_size: int = 1

    @property
    def gpus_used(self) -> int:
        """GPUs that do work."""
        return self.world_size

    @property
    def jobs(self) -> int:
        """Trainings that run at the same time."""
        return 1

    def __str__(self) -> str:
        return "1 GPU" if self.world_size == 1 else f"DDP over {self.world_size} GPUs"


@dataclass(frozen=True, slots=True)
class Concurrent:
    """`jobs` trainings at the same time, each on a GPU of its own."""

    jobs: int

    @property
    def gpus_used(self) -> int:
        """GPUs that do work."""
        return self.jobs

    @property
    def world_size(self) -> int:
        """GPUs of one training."""
        return 1

    def __str__(self) -> str:
        return f"{self.jobs} trainings at a time, one per GPU"


Layout = Ddp | Concurrent


def layout_for(gpu_count: int, tasks: int, max_gpus_per_task: int) -> Layout:
    """The layout that uses most of `gpu_count` GPUs for `tasks` trainings of at most `max_gpus_per_task` GPUs each.

    Several trainings go side by side, one per GPU: that wins over spreading each, which loses to communication.
    """
    if tasks > 1 and gpu_count > 1:
        return Concurrent(min(tasks, gpu_count))
    return Ddp(min(gpu_count, max_gpus_per_task))
