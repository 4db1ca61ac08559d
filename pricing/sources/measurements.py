"""Rewriting raw throughput measurements into our schema, and saying what each row is good for.

Owns the choice of rows. Part of writing a snapshot, not used while planning.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

Row = dict[str, str]
GPU_NAMES = {
    "V100": "V100-16",
    "V100 16GB": "V100-16",
    "V100 32GB": "V100-32",
    "A100": "A100-40",
    "A100 40GB PCIe": "A100-40",
    "A100 40GB SXM4": "A100-40",
    "A100 80GB PCIe": "A100-80",
    "A100 80GB SXM4": "A100-80",
    "H100 80GB SXM5": "H100",
    "H200 141GB SXM": "H200",
    "A10": "A10",
    "T4": "T4",
    "RTX 3090": "RTX 3090",
    "RTX 4090": "RTX 4090",
}
"""Names in public tables and ours. Rows of other GPUs are left out, and so are fp32 rows: the trainer works in fp16."""
COLLECTED = "2026-11-30"
H200_SOURCE = "one H200, torch 2.11, reference YOLOv9 training code, one run each, spread about 8 %"
SAME_AT_ANY_BATCH = "one speed at three batch sizes: limited by the loader, not by the GPU"


def throughput_rows(raw: Path) -> Iterator[Row]:
    """All rows of `throughput.csv`."""
    for row in _read(raw / "h200-compute-points.csv"):
        if row["model"].startswith("yolov9") and row["boxes_per_image"] == "3,40" and row["amp"] == "True":
            yield _row(
                ("H200", "1", row["model"], row["img"], row["batch"], row["images_per_s"]), "steps", "", H200_SOURCE
            )
    yield from _official(raw)
    yield from _public(raw)


def _official(raw: Path) -> Iterator[Row]:
    notes = {
        ("yolov9-s", "128", "2", "0", False): "source of ddp_share: 1.88 times one GPU",
        ("loader only", "64", "0", "16", False): "source of host_images_per_vcpu: 16 vCPUs, no GPU work",
    }
    for row in _read(raw / "h200-official.csv"):
        key = (row["model"], row["batch"], row["gpus"], row["workers"], "sync-bn" in row["source"])
        if key in notes and row["concurrent_jobs"] == "1":
            facts = ("H200", row["gpus"], row["model"], row["img"], row["batch"], row["images_per_s"])
            yield _row(facts, "none", notes[key], H200_SOURCE)


def _public(raw: Path) -> Iterator[Row]:
    for row in _read(raw / "public-measurements.csv"):
        gpu = GPU_NAMES.get(row["gpu_model"])
        if gpu is None or row["precision"] != "amp-fp16":
            continue
        limited = row["model"] == "yolov5s" and gpu == "A100-40"
        facts = (gpu, row["gpu_count"], row["model"], row["img"], row["batch"], row["images_per_s"])
        note = SAME_AT_ANY_BATCH if limited else ""
        yield _row(facts, "none" if limited else "gpus", note, f"{row['source']} ({row['gpu_model']})")


def _read(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _row(facts: tuple[str, str, str, str, str, str], use: str, note: str, source: str) -> Row:
    names = ("gpu", "gpu_count", "model", "image_size", "batch", "images_per_second")
    return {
        **dict(zip(names, facts, strict=True)),
        "precision": "amp-fp16",
        "use": use,
        "note": note,
        "source": source,
        "observed_at": COLLECTED,
    }
