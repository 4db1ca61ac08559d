"""What is owed as a function of time, and until when training may go on for it. Pure.

The sum and its parts are the launcher's; here it is only taken along in time. Dollars are floats here: what the machine
compares is a limit, and nothing of it is billed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from remote.protocol import Budget

HOUR = 3600.0


def owed_usd(budget: Budget, now: float) -> float:
    """What would have to be paid if a stop began at `now`. Before the first price nothing is billed by time."""
    billed_until = now + budget.stop_seconds
    spans = _spans(budget)
    return budget.fixed_usd + sum(max(0.0, min(end, billed_until) - since) * usd for since, end, usd in spans)


def ends_at(budget: Budget) -> float:
    """The last moment at which a stop keeps what is owed within the cap (Unix seconds).

    Infinite where the cap is never reached, minus infinity where it has been passed whatever is done.
    """
    left = budget.cap_usd - budget.fixed_usd
    if left < 0:
        return -math.inf
    for since, end, usd in _spans(budget):
        if usd > 0 and (end - since) * usd > left:
            return since + left / usd - budget.stop_seconds
        left -= (end - since) * usd if usd > 0 else 0.0
    return math.inf


def flaw(budget: Budget) -> str | None:
    """Why a budget cannot be used as a limit, or None: a number that is none would never compare as too much."""
    numbers = [budget.cap_usd, budget.fixed_usd, budget.stop_seconds]
    numbers += [number for point in budget.points for number in (point.since, point.usd_per_hour)]
    if not budget.points:
        return "it has no prices"
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        return "it has a number that is negative or not finite"
    if any(later.since < earlier.since for earlier, later in pairwise(budget.points)):
        return "its prices are not in the order of time"
    return None


def _spans(budget: Budget) -> Iterator[tuple[float, float, float]]:
    """Beginning, end and dollars per second of each price; the last one has no end."""
    ends = [point.since for point in budget.points[1:]] + [math.inf]
    for point, end in zip(budget.points, ends, strict=True):
        yield point.since, end, point.usd_per_hour / HOUR
