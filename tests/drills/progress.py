"""How far training came, seen from outside: the trainers' own progress files, sampled while a drill plays.

From the samples follows how far a training was thrown back by an accident.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drills.result import Loss

_PERIOD_SECONDS = 0.1
_PATTERNS = ("*/root/home/*/gpucost/*/tasks/*/progress.json", "*/disk/up/home/*/gpucost/*/tasks/*/progress.json")


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one trainer."""

    at: float
    """When the trainer wrote it."""
    lease: str
    step: int
    steps_per_epoch: int
    resumed_step: int | None = None


@dataclass(slots=True)
class Progress:
    """Samples all trainers of a home until it is closed."""

    instances: Path
    samples: list[Sample] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    _thread: threading.Thread = field(init=False)

    def _work(self) -> None:
        seen: dict[Path, float] = {}
        while not self._over.wait(_PERIOD_SECONDS):
            for path in [found for pattern in _PATTERNS for found in self.instances.glob(pattern)]:
                sample = _read(path)
                if sample is not None and seen.get(path) != sample.at:
                    seen[path] = sample.at
                    self.samples.append(sample)

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def reached(self) -> int:
        """The last step that was seen."""
        return self.samples[-1].step if self.samples else 0


def _read(path: Path) -> Sample | None:
    try:
        raw = json.loads(path.read_text())
        per_epoch = max(1, round(raw["steps"] / raw["epochs"]))
        return Sample(float(raw["at"]), path.parts[-4], int(raw["step"]), per_epoch, raw.get("resumed_step"))
    except (OSError, ValueError, KeyError, ZeroDivisionError):
        return None


def restarts(samples: Sequence[Sample], since: float) -> list[tuple[Sample, Sample]]:
    """Each place after `since` where a training began anew: the last look before, and the first one after."""
    pairs = itertools.pairwise(samples)
    return [
        (before, after)
        for before, after in pairs
        if after.at > since and (after.lease != before.lease or after.step < before.step)
    ]


def began_at(sample: Sample) -> int:
    """The step that an attempt began with, as the trainer says it; else where it was first seen."""
    return sample.step if sample.resumed_step is None else sample.resumed_step


def loss(samples: Sequence[Sample], since: float) -> Loss:
    """The worst throw-back after `since`."""
    lost = [
        (max(0, before.step - began_at(after)), before.steps_per_epoch) for before, after in restarts(samples, since)
    ]
    steps, per_epoch = max(lost, default=(0, 1))
    return Loss(steps, steps / per_epoch)
