"""What a run pays beside its machines: traffic with the bucket, kept objects, requests, the download of its results.

Owns `Traffic`, `Sizes`, `Objects`, the assumptions behind them, and their cost lines. Nobody meters any of it, so the
sizes are estimates: exact where a size is known (the packed data set, a checkpoint that was stored), else derived from
the number of parameters, on the large side. A rate that the tables lack makes no line, and `uncounted` names it.

- Traffic of a machine is billed where the bucket is in another region of its cloud; inside one region it is free:
  fetched = data set (+ one checkpoint of each training, for a run that goes on);
  stored = (checkpoint + best weights) of each training that runs, each `save_seconds`, all the billed time long, + the
  last sync. The trainer saves by time, so this grows evenly with it, whatever the speed.
- Objects of a run: data set (if the run put it there), `CHECKPOINTS_KEPT` checkpoints and the results of each training,
  for `KEPT_DAYS`.
- Requests: uploads in parts of `PART_BYTES`, `REQUESTS_PER_UPLOAD` around each checkpoint, posted status, launcher's
  beat and looks for commands by the hour, journal records by the machine.
- Download: the results once, at the rate of traffic to the internet. Free monthly volumes (AWS, Azure: 100 GB) are not
  taken off; a GB is 10^9 bytes for traffic, which errs on the dear side, and 2^30 for storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from pricing.cost import (
    CROSS_REGION,
    EGRESS,
    HOUR_SECONDS,
    MONTH_HOURS,
    OBJECT_GET,
    OBJECT_PUT,
    OBJECT_STORAGE,
    CostLine,
    Rates,
    UnknownRate,
    rate_line,
)
from pricing.models import MODELS
from pricing.risk import save_seconds
from pricing.workload import Workload

KEPT_DAYS = 30
CHECKPOINTS_KEPT = 2
"""Of each training; what the transfer program leaves in the bucket."""
CHECKPOINT_BYTES = 19
"""A checkpoint, per parameter: weights, their average, the optimiser's state, the best weights in half precision.
Measured with this trainer on yolov9-t, -s and -c: 14.0 to 14.6 with SGD (long runs), 18.1 to 18.7 with AdamW."""
BEST_BYTES = Decimal("2.2")
"""The best weights alone, per parameter; measured 2.0 to 2.2."""
SMALL_BYTES = 4 * 2**20
"""Log, table and plots of one training (assumed)."""
PART_BYTES = 16 * 2**20
"""Of one request of a large upload or download."""
REQUESTS_PER_UPLOAD = 8
"""Beginning and end of a multi-part upload, manifest, listings before and after, the journal's record."""
WRITES_PER_HOUR = 180
"""Posted status each 30 s, the launcher's beat each minute."""
READS_PER_HOUR = 120
"""Looks for a posted command each 30 s."""
RECORDS_PER_MACHINE = 40
"""Journal records and small files of one machine, written once and read once (assumed)."""
_GB = 10**9
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Moved:
    """What went between a machine and the bucket."""

    fetched_bytes: Decimal
    stored_bytes: Decimal


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one machine moves, as a function of its time."""

    fetched_bytes: int = 0
    """At its start."""
    stored_bytes_per_hour: int = 0
    """While it lives: checkpoints and best weights."""
    final_bytes: int = 0
    """The last sync."""
    writes_per_hour: int = 0
    """Requests of all uploads and beats."""

    def moved(self, billed_seconds: int, *, machines: Decimal = Decimal(1)) -> Moved:
        """The bytes of `machines` like this one, one after the other, in a time of `billed_seconds` together."""
        stored = Decimal(self.stored_bytes_per_hour * billed_seconds) / HOUR_SECONDS
        return Moved(machines * self.fetched_bytes, machines * self.final_bytes + stored)


NO_TRAFFIC = Traffic()


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the things of a run are, all of its trainings together."""

    data_bytes: int
    """Of a data set that the run put into the bucket; 0: it was there before."""
    checkpoint_bytes: int
    """One checkpoint of each training."""
    result_bytes: int
    """The final files."""

    @property
    def kept_bytes(self) -> int:
        """What stays in the bucket."""
        return self.data_bytes + CHECKPOINTS_KEPT * self.checkpoint_bytes + self.result_bytes


@dataclass(frozen=True, slots=True)
class Objects:
    """What a run does with the object storage."""

    kept_bytes: int
    downloaded_bytes: int
    writes: Decimal
    """Requests."""
    reads: Decimal


def planned_sizes(workload: Workload, *, keeps_data: bool) -> Sizes:
    """Before anything is stored: from the parameters of the heaviest training, and the size of the data set."""
    parameters = MODELS[workload.variant].parameters * workload.tasks
    checkpoints = CHECKPOINT_BYTES * parameters
    results = checkpoints + int(BEST_BYTES * parameters) + SMALL_BYTES * workload.tasks
    return Sizes(workload.data_bytes if keeps_data else 0, checkpoints, results)


def planned_traffic(workload: Workload, jobs: int, preemptions_per_hour: float, *, resumes: bool) -> Traffic:
    """Of one machine on which `jobs` trainings run at a time. `resumes`: their checkpoints are fetched first."""
    parameters, sizes = MODELS[workload.variant].parameters, planned_sizes(workload, keeps_data=False)
    upload_bytes = (CHECKPOINT_BYTES + float(BEST_BYTES)) * parameters
    uploads_per_hour = jobs * HOUR_SECONDS / save_seconds(preemptions_per_hour)
    return Traffic(
        fetched_bytes=workload.data_bytes + (sizes.checkpoint_bytes if resumes else 0),
        stored_bytes_per_hour=int(uploads_per_hour * upload_bytes),
        final_bytes=sizes.checkpoint_bytes + sizes.result_bytes,
        writes_per_hour=int(WRITES_PER_HOUR + uploads_per_hour * (upload_bytes / PART_BYTES + REQUESTS_PER_UPLOAD)),
    )


def objects_of(sizes: Sizes, traffic: Traffic, billed_seconds: int, *, machines: Decimal = Decimal(1)) -> Objects:
    """What a run of `machines` like this one leaves and asks for, in a time of `billed_seconds` together."""
    hours = Decimal(billed_seconds) / HOUR_SECONDS
    once = RECORDS_PER_MACHINE + Decimal(traffic.final_bytes) / PART_BYTES
    fetched = RECORDS_PER_MACHINE + Decimal(traffic.fetched_bytes) / PART_BYTES
    return Objects(
        kept_bytes=sizes.kept_bytes,
        downloaded_bytes=sizes.result_bytes,
        writes=Decimal(sizes.data_bytes) / PART_BYTES + machines * once + hours * traffic.writes_per_hour,
        reads=Decimal(sizes.result_bytes) / PART_BYTES + machines * fetched + hours * READS_PER_HOUR,
    )


def transfer_lines(provider: str, bucket_region: str, moved: Moved, rates: Rates) -> tuple[CostLine, ...]:
    """Traffic of a machine whose bucket is in another region of the same cloud."""
    return _counted(
        _line(rates, provider, CROSS_REGION, f"data set from {bucket_region}", moved.fetched_bytes / _GB, "GB"),
        _line(rates, provider, CROSS_REGION, f"checkpoints to {bucket_region}", moved.stored_bytes / _GB, "GB"),
    )


def object_lines(provider: str, objects: Objects, rates: Rates) -> tuple[CostLine, ...]:
    """What a run pays for its objects: storage for `KEPT_DAYS`, requests, the download of the results."""
    months = Decimal(KEPT_DAYS * 24) / MONTH_HOURS
    kept, downloaded = Decimal(objects.kept_bytes), Decimal(objects.downloaded_bytes)
    return _counted(
        _line(rates, provider, OBJECT_STORAGE, f"objects kept {KEPT_DAYS} days", kept / _GIB * months, "GiB-month"),
        _line(rates, provider, OBJECT_PUT, "write requests", objects.writes / 1000, "thousand"),
        _line(rates, provider, OBJECT_GET, "read requests", objects.reads / 1000, "thousand"),
        _line(rates, provider, EGRESS, "download of the results", downloaded / _GB, "GB"),
    )


def _counted(*lines: CostLine | None) -> tuple[CostLine, ...]:
    return tuple(line for line in lines if line is not None and line.quantity)


def _line(rates: Rates, provider: str, item: str, what: str, quantity: Decimal, unit: str) -> CostLine | None:
    try:
        rate = rates.of(provider, item)
    except UnknownRate:
        return None
    return rate_line(what, quantity, unit, rate, rate.usd * quantity)


def uncounted(provider: str, rates: Rates, *, crosses: bool) -> tuple[str, ...]:
    """Items that a run on this cloud pays for and whose rate nobody has: they are in no sum."""
    items = (OBJECT_STORAGE, OBJECT_PUT, OBJECT_GET, EGRESS, *((CROSS_REGION,) if crosses else ()))
    return tuple(item for item in items if (provider, item) not in rates.rates)
