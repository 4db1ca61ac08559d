"""The error table of the throughput model, as Markdown on standard output: `python -m pricing.sources.calibrate`.

Owns the presentation of `pricing.calibration`. Run it after new measurements, and put the constants it names into
`pricing/throughput.py`: a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pricing.calibration import fit, gpu_errors, pooled, range_factor, training_errors
from pricing.sources.tables import load_gpus, load_throughput_rows
from pricing.throughput import CALIBRATED


def report() -> Iterator[str]:
    """Lines of the table: fitted constants, error by left-out GPU, error by left-out variant, factor of every range."""
    rows, gpus = load_throughput_rows(), load_gpus()
    fitted = fit(rows, gpus, CALIBRATED)
    yield f"bandwidth_share {fitted.bandwidth_share:.4g}, seconds_per_layer {fitted.seconds_per_layer:.4g}"
    yield ""
    yield "| left out | rows | median | p90 of the absolute log ratio |"
    yield "| --- | --- | --- | --- |"
    by_gpu = gpu_errors(rows, gpus, fitted)
    both = {**by_gpu, "any GPU": pooled(by_gpu), "any variant, on H200": training_errors(rows, gpus, CALIBRATED)}
    for name, errors in both.items():
        yield f"| {name} | {len(errors.sorted_errors)} | {errors.median:.2f} | {errors.p90:.2f} |"
    yield ""
    yield f"factor of a p10 to p90 range: {range_factor(both['any GPU'], both['any variant, on H200']):.2f}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(report()) + "\n")
