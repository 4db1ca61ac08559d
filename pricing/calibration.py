"""Fitting the throughput model to measurements, and saying how wrong it is.

Owns `ThroughputRow`, the fit of the two free constants, and the leave-one-out errors. Pure; run by a test and by
`python -m pricing.sources.calibrate`, never while planning.

Two errors are told apart: the GPU (does speed follow the bandwidth from one GPU type to another, any detector?) and the
training (does the step time follow variant and batch, on the one GPU type where YOLOv9 was measured?).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pricing.hardware import Gpu
from pricing.models import MODELS
from pricing.throughput import Constants, step_seconds

P90_TO_SIGMA = 1.2816


@dataclass(frozen=True, slots=True)
class ThroughputRow:
    """One measured training speed."""

    gpu: str
    gpu_count: int
    model: str
    image_size: int
    batch: int | None
    precision: str
    images_per_second: float
    use: str
    """`steps`: fits the constants; `gpus`: checks the scaling over GPU types; `none`: kept, `note` says why."""
    note: str
    source: str
    observed_at: str


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute natural logarithms of estimate over measurement, sorted."""

    sorted_errors: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half of the rows are nearer than this."""
        return self.quantile(0.5)

    @property
    def p90(self) -> float:
        """Nine in ten are nearer than this."""
        return self.quantile(0.9)

    def quantile(self, share: float) -> float:
        """Nearest-rank quantile."""
        index = math.ceil(share * len(self.sorted_errors)) - 1
        return self.sorted_errors[max(0, index)]


def fit(rows: Iterable[ThroughputRow], gpus: Mapping[str, Gpu], start: Constants) -> Constants:
    """The bandwidth share and the launch floor with the least squared log error over the `steps` rows."""
    used = [row for row in rows if row.use == "steps"]
    share, layer, step = start.bandwidth_share, start.seconds_per_layer, 2.0
    while step > 1.0005:
        candidates = [(share * a, layer * b) for a in (1 / step, 1, step) for b in (1 / step, 1, step)]
        best = min(candidates, key=lambda pair: _squares(used, gpus, _with(start, *pair)))
        if best == (share, layer):
            step = math.sqrt(step)
        share, layer = best
    return _with(start, share, layer)


def _with(start: Constants, share: float, layer: float) -> Constants:
    return replace(start, bandwidth_share=share, seconds_per_layer=layer)


def _squares(rows: Sequence[ThroughputRow], gpus: Mapping[str, Gpu], constants: Constants) -> float:
    return sum(_step_error(row, gpus, constants) ** 2 for row in rows)


def _step_error(row: ThroughputRow, gpus: Mapping[str, Gpu], constants: Constants) -> float:
    batch = row.batch or 1
    seconds, _ = step_seconds(gpus[row.gpu], MODELS[row.model], row.image_size, batch, constants)
    return math.log(batch / seconds / row.images_per_second)


def training_errors(rows: Sequence[ThroughputRow], gpus: Mapping[str, Gpu], start: Constants) -> Errors:
    """Leave one variant out: fit on the others, compare on its rows."""
    used = [row for row in rows if row.use == "steps"]
    errors = []
    for variant in sorted({row.model for row in used}):
        constants = fit([row for row in used if row.model != variant], gpus, start)
        errors += [abs(_step_error(row, gpus, constants)) for row in used if row.model == variant]
    return Errors(tuple(sorted(errors)))


def gpu_errors(rows: Sequence[ThroughputRow], gpus: Mapping[str, Gpu], constants: Constants) -> dict[str, Errors]:
    """Leave one GPU type out: its speed from the bandwidth of the others that trained the same detector, per type.

    A detector's constant is the mean over the other GPU types, so that a type with many rows weighs no more than one.
    """
    errors: dict[str, list[float]] = defaultdict(list)
    for family in _families(rows, constants):
        for gpu, values in family.items():
            others = [math.log(gpus[other].memory_bandwidth_gb_s) for other in family if other != gpu]
            means = [sum(values) / len(values) for other, values in family.items() if other != gpu]
            if not means:
                continue
            constant = sum(mean - width for mean, width in zip(means, others, strict=True)) / len(means)
            expected = constant + math.log(gpus[gpu].memory_bandwidth_gb_s)
            errors[gpu] += [abs(expected - value) for value in values]
    return {gpu: Errors(tuple(sorted(values))) for gpu, values in errors.items()}


def _families(rows: Sequence[ThroughputRow], constants: Constants) -> Iterable[dict[str, list[float]]]:
    """Logarithms of images/s per GPU, by detector and GPU type."""
    families: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.use == "gpus":
            per_gpu = row.images_per_second / row.gpu_count / constants.ddp_share ** math.log2(row.gpu_count)
            families[row.model, row.image_size][row.gpu].append(math.log(per_gpu))
    return families.values()


def pooled(errors: Mapping[str, Errors]) -> Errors:
    """All errors together, each row once."""
    return Errors(tuple(sorted(error for group in errors.values() for error in group.sorted_errors)))


def range_factor(gpu: Errors, training: Errors) -> float:
    """Half-width of a range that should hold nine in ten: both p90 errors, taken as independent."""
    return math.exp(math.hypot(gpu.p90, training.p90))
