"""Accuracy of whole trainings from scratch: one configuration, several seeds side by side on one device.

    python tests/bench/accuracy.py DATA --model yolov9-s --image-size 640 --batch 32 --epochs 100 --seeds 0 1 2
    python tests/bench/accuracy.py DATA ... --set optimizer='"sgd"' --set close_mosaic=15 --hyp mixup=0

DATA is a data.yaml, a folder or a .tar of one. A CSV line for each seed goes to stdout: the last epoch's scores, the
best by fitness, and the wall time, which is that of trainings that share the device.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remote.dataset import extract, find_root

COLUMNS = ("label", "seed", "epochs", "map50", "map50_95", "best_map50", "best_map50_95", "best_epoch", "seconds")
MAP50, MAP = "metrics/mAP_0.5", "metrics/mAP_0.5:0.95"


def main(argv: Sequence[str]) -> int:
    """Train all seeds at once; 1 if one of them failed."""
    asked = _arguments(argv)
    with tempfile.TemporaryDirectory() as scratch:
        data = _unpacked(asked.data, Path(scratch))
        begun = time.monotonic()
        running = {seed: _start(asked, data, asked.output / f"{asked.label}-{seed}", seed) for seed in asked.seeds}
        writer = csv.writer(sys.stdout)
        writer.writerow(COLUMNS)
        failed = 0
        for seed, process in running.items():
            failed += process.wait() != 0
            writer.writerow(_scores(asked, seed, round(time.monotonic() - begun)))
            sys.stdout.flush()
    return int(failed > 0)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="yolov9-s")
    parser.add_argument("--image-size", type=int, default=640)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, help="loader processes of each training")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=JSON", help="another key of the configuration"
    )
    parser.add_argument("--hyp", action="append", default=[], metavar="KEY=NUMBER", help="a hyper-parameter")
    parser.add_argument("--label", default="run")
    parser.add_argument("--output", type=Path, default=Path("runs/accuracy"))
    return parser.parse_args(argv)


def _unpacked(data: Path, scratch: Path) -> Path:
    if data.suffix != ".tar":
        return data
    extract(data, scratch / "data")
    return find_root(scratch / "data")


def _start(asked: argparse.Namespace, data: Path, output: Path, seed: int) -> subprocess.Popen[bytes]:
    output.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "data": str(data),
        "output": str(output),
        "model": asked.model,
        "image_size": asked.image_size,
        "batch": asked.batch,
        "epochs": asked.epochs,
        "workers": asked.workers,
        "seed": seed,
        "hyp": {key: float(value) for key, value in (pair.split("=", 1) for pair in asked.hyp)},
        **{key: json.loads(value) for key, value in (pair.split("=", 1) for pair in asked.set)},
    }
    path = output / "config.json"
    path.write_text(json.dumps(config))
    with (output / "log.txt").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "remote.yolov9.train", str(path)], stderr=log)


def _scores(asked: argparse.Namespace, seed: int, seconds: int) -> list[object]:
    path = asked.output / f"{asked.label}-{seed}" / "results.csv"
    if not path.exists():
        return [asked.label, seed, 0, *[""] * 5, seconds]
    with path.open(newline="") as lines:
        rows = [{key.strip(): float(value) for key, value in row.items()} for row in csv.DictReader(lines)]
    measured = [row for row in rows if row[MAP50] == row[MAP50]]
    if not measured:
        return [asked.label, seed, len(rows), *[""] * 5, seconds]
    last, best = measured[-1], max(measured, key=lambda row: 0.1 * row[MAP50] + 0.9 * row[MAP])
    return [asked.label, seed, len(rows), last[MAP50], last[MAP], best[MAP50], best[MAP], int(best["epoch"]), seconds]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
