"""How long to train between two checkpoints, from how likely the machine is taken away and how long a save takes. Pure.

J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974: sqrt(2 d M) for a save
that stops the work for d seconds and a mean time of M seconds between failures. J. T. Daly, A higher order estimate of
the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006: the form used here, which stays right where d is
not small beside M. Both count the seconds of work from the end of one save to the start of the next.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

FLOOR_SECONDS = 30.0
"""Checkpoints are not closer: uploading one takes time too, and what came faster would be skipped there."""
CEILING_SECONDS = 900.0
"""Checkpoints are not further apart: a machine without preemptions still may crash, and loses half of this then."""
PRIOR_STALL_SECONDS = 0.1
"""Taken for a save before one is measured: what was seen of small and large models on CPUs and GPUs lies around it."""
REMEMBERED = 5
"""A save counts as long as the median of so many, so that one that met a busy moment changes nothing."""


def optimum(stall_seconds: float, mean_seconds: float) -> float:
    """Seconds of work between two saves that lose the least, by Daly; Young's where the stall is short.

    From a stall of twice `mean_seconds` on, where the series no longer holds, Daly's advice is `mean_seconds` itself.
    """
    if stall_seconds <= 0:
        return 0.0
    if stall_seconds >= 2 * mean_seconds:
        return mean_seconds
    ratio = stall_seconds / (2 * mean_seconds)
    young = math.sqrt(2 * stall_seconds * mean_seconds)
    return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_seconds


def choose(stall_seconds: float, hazard_per_hour: float, wanted: float | None = None) -> float:
    """Seconds between two checkpoints: what the user wants, else the optimum within floor and ceiling."""
    if wanted is not None:
        return wanted
    if hazard_per_hour <= 0:
        return CEILING_SECONDS
    return min(max(optimum(stall_seconds, 3600 / hazard_per_hour), FLOOR_SECONDS), CEILING_SECONDS)


class Pace:
    """When the next checkpoint is due. Times are those of one monotonic clock."""

    def __init__(self, wanted: float | None, hazard_per_hour: float, now: float) -> None:
        self._wanted = wanted
        self._hazard_per_hour = hazard_per_hour
        self._due_from: float = now
        self._saves = 0
        self._stalls: deque[float] = deque(maxlen=REMEMBERED)

    @property
    def seconds(self) -> float:
        """Between two checkpoints, by what is known now."""
        stall = median(self._stalls) if self._stalls else PRIOR_STALL_SECONDS
        return choose(stall, self._hazard_per_hour, self._wanted)

    def due(self, now: float) -> bool:
        """Whether it is time for one."""
        return now - self._due_from >= self.seconds

    def hurry(self) -> None:
        """One is due at once."""
        self._due_from = -math.inf

    def saved(self, now: float, stall_seconds: float) -> None:
        """One was taken, and training goes on at `now` after it stood still for so long.

        The first one does not count: it takes the time to get the memory for the copy, which comes once.
        """
        self._due_from = now
        if self._saves:
            self._stalls.append(stall_seconds)
        self._saves += 1
