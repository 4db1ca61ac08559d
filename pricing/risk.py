"""Preemption as a rate, and what it does to the expected time of a run.

Owns `Hazard` and the restart model. Preemptions are taken as a Poisson process (constant hazard, no memory); each one
loses half a checkpoint interval of work on average, plus what it takes until training goes on (boot, environment,
staging). The form is Young's first-order model (J. W. Young, "A first order approximation to the optimum checkpoint interval",
CACM 17(9), 1974) without the cost of writing a checkpoint, which runs beside the training here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hazard:
    """Preemptions per hour of running: expected, with the range that the source leaves open."""

    low_per_hour: float
    per_hour: float
    high_per_hour: float
    source: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.low_per_hour <= self.per_hour <= self.high_per_hour < math.inf:
            raise ValueError("a hazard needs 0 <= low <= expected <= high, finite")


ZERO_HAZARD = Hazard(0.0, 0.0, 0.0)


def expected_seconds(work_seconds: float, per_hour: float, *, interval_seconds: float, restart_seconds: float) -> float:
    """Expected running time to finish `work_seconds` with checkpoints; inf where it would never end.

    With rate r, each preemption costs L = interval/2 + restart, and it can strike while lost work is made good:
    T = work + r T L, so T = work / (1 - r L). Zero hazard gives exactly `work_seconds`.
    """
    if per_hour == 0:
        return work_seconds
    lost = per_hour / 3600 * (min(interval_seconds, work_seconds) / 2 + restart_seconds)
    return work_seconds / (1 - lost) if lost < 1 else math.inf


def expected_seconds_from_zero(work_seconds: float, per_hour: float) -> float:
    """Expected running time without any checkpoint: (exp(r work) - 1) / r; inf beyond floats.

    Source: A. Duda, "The effects of checkpointing on program execution time", Inf. Process. Lett. 16, 1983.
    """
    if per_hour == 0:
        return work_seconds
    rate = per_hour / 3600
    try:
        return math.expm1(rate * work_seconds) / rate
    except OverflowError:
        return math.inf
