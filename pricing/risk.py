"""Preemption as a rate, and what it does to the expected time of a run.

Owns `Hazard` and the restart model. Preemptions are taken as a Poisson process (constant hazard, no memory). Each one
loses half a checkpoint interval of work on average, plus what it takes until training goes on: boot, environment,
staging. This is the first-order model of J. W. Young, "A first order approximation to the optimum checkpoint interval",
CACM 17(9), 1974, without the cost of writing a checkpoint, which happens beside the training here.
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

EXPOSURE_HOURS = (730.0, 12.0, 1.2)
"""How long the instances behind a published interruption frequency ran: for the low, expected and high hazard.

The advisor publishes which share of instances was interrupted "during the trailing month", not how long they ran. A
whole month each gives the low end. The high end is set so that the worst bucket reaches the worst public trace of one
real spot instance (0.57 an hour over 7 days, p3.2xlarge in us-east-1f, April 2023; traces of Wu et al., "Can't Be
Late", NSDI 2024). The 12 hours between them are an assumption.
"""


def bucket_hazard(least: float, most: float, source: str) -> Hazard:
    """Hazard of an interruption frequency between two shares of instances: -ln(1 - share) / exposure."""
    low, middle, high = (
        -math.log1p(-share) / hours
        for share, hours in zip((least, (least + most) / 2, most), EXPOSURE_HOURS, strict=True)
    )
    return Hazard(low, middle, high, source)


BUCKETS: dict[str, tuple[float, float]] = {
    "<5%": (0.0, 0.05),
    "5-10%": (0.05, 0.10),
    "10-15%": (0.10, 0.15),
    "15-20%": (0.15, 0.20),
    ">20%": (0.20, 0.50),
}
"""The AWS Spot Instance Advisor's buckets as shares; the last is open, half of all instances is taken as its end."""

PRIOR_HAZARD = bucket_hazard(0.0, 0.50, "no published rate: anything the advisor's buckets allow")
"""Where nobody publishes a rate: all buckets together."""


STALL_SECONDS = 0.1
"""What a save costs the training; the trainer starts from the same figure, and measures."""
SAVE_SECONDS = (30.0, 900.0)
"""The trainer's shortest and longest time between two checkpoints."""


def save_seconds(preemptions_per_hour: float) -> float:
    """Between two checkpoints of a training: Young's optimum within the trainer's bounds."""
    shortest, longest = SAVE_SECONDS
    if preemptions_per_hour <= 0:
        return longest
    return min(max(math.sqrt(2 * STALL_SECONDS * 3600 / preemptions_per_hour), shortest), longest)


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


def normal_quantile(probability: float) -> float:
    """The standard normal deviate that is not exceeded with this probability, by bisection to 1e-12."""
    low, high = -9.0, 9.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if 0.5 * (1 + math.erf(middle / math.sqrt(2))) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2
