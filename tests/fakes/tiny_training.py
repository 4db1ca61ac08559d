"""Trainings of seconds: a set of squares, runs in this process or in one of their own, and what they leave behind."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from remote.dataset import open_dataset
from remote.yolov9 import restore
from remote.yolov9.config import TrainConfig
from remote.yolov9.distributed import Ranks, choose_device
from remote.yolov9.interrupt import Interrupt
from remote.yolov9.pretrained import read_pretrained
from remote.yolov9.run import Run, build_run
from remote.yolov9.selection import select
from remote.yolov9.train import make_job

ROOT = Path(__file__).parents[2]
SIZE = 64
STEPS = 3
"""Batches an epoch, with `settings` as they are."""


def make_squares(root: Path) -> Path:
    """Bright squares (class 0) and dark ones (class 1) on grey noise: 12 + 4 pictures."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 12), ("val", 4)):
        for number in range(count):
            picture = rng.integers(100, 140, (SIZE, SIZE, 3), np.uint8)
            lines = []
            for cls, (shade, column) in enumerate(((250, 0), (5, SIZE // 2))):
                side = int(rng.integers(14, 26))
                x, y = column + int(rng.integers(0, SIZE // 2 - side)), int(rng.integers(0, SIZE - side))
                picture[y : y + side, x : x + side] = shade
                lines.append(f"{cls} {(x + side / 2) / SIZE} {(y + side / 2) / SIZE} {side / SIZE} {side / SIZE}\n")
            image = root / "images" / split / f"{number}.png"
            label = root / "labels" / split / f"{number}.txt"
            for path in (image, label):
                path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(image)
            label.write_text("".join(lines))
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [bright, dark]\n")
    return root


def settings(data: Path, output: Path, /, **changes: Any) -> dict[str, Any]:
    """A configuration of two epochs, one thread, and every choice made."""
    base = {"data": str(data), "output": str(output), "model": "yolov9-t", "epochs": 2, "threads": 1}
    return {**base, "image_size": SIZE, "batch": 4, "device": "cpu", "workers": 0, "val_interval": 1, **changes}


class StopAfter(Interrupt):
    """Asks to stop once so many batches are done."""

    def __init__(self, batches: float) -> None:
        self.batches = batches
        self.run: Run | None = None

    @property
    def requested(self) -> bool:  # type: ignore[override]
        return self.run is not None and self.run.batches_done >= self.batches


def build(raw: dict[str, Any], stop_after: float | StopAfter = math.inf, ranks: Ranks | None = None) -> Run:
    """A run in this process that has not looked for a checkpoint."""
    checked = TrainConfig.from_dict(raw)
    chosen = select(open_dataset(checked.data), checked)
    weights = read_pretrained(checked.weights) if checked.weights else None
    stop = stop_after if isinstance(stop_after, StopAfter) else StopAfter(stop_after)
    device = choose_device(checked.device, 0)
    run = build_run(make_job(checked, chosen, weights, ranks or Ranks(), device, stop))
    stop.run = run
    return run


def start(raw: dict[str, Any], stop_after: float | StopAfter = math.inf) -> Run:
    """A run in this process, resumed where there is something to resume."""
    run = build(raw, stop_after)
    restore.resume(run)
    return run


def command(raw: dict[str, Any], folder: Path, *launcher: str) -> list[str]:
    """argv of a run in a process of its own."""
    path = folder / f"{Path(str(raw.get('output', 'x'))).name}.json"
    path.write_text(json.dumps(raw))
    return [sys.executable, *launcher, "-m", "remote.yolov9.train", str(path)]


def train(raw: dict[str, Any], folder: Path, *launcher: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(raw, folder, *launcher), cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


def rows(raw: dict[str, Any]) -> list[dict[str, str]]:
    """results.csv."""
    text = (Path(raw["output"]) / "results.csv").read_text()
    return list(csv.DictReader(text.splitlines(), skipinitialspace=True))


def weights(raw: dict[str, Any], name: str = "last.pt") -> Path:
    """Where a run keeps last.pt."""
    return Path(raw["output"]) / "weights" / name


def last(raw: dict[str, Any]) -> dict[str, Any]:
    """Content of last.pt."""
    found: dict[str, Any] = torch.load(weights(raw), weights_only=True)
    found.pop("digest")
    return found


def assert_same(a: object, b: object, place: str = "") -> None:
    """Equal trees, tensors bit by bit (a NaN equals itself)."""
    if isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor), place
        assert torch.equal(a, b), place
    elif isinstance(a, dict):
        assert isinstance(b, dict), place
        assert a.keys() == b.keys(), place
        for key in a:
            assert_same(a[key], b[key], f"{place}/{key}")
    elif isinstance(a, list | tuple):
        assert isinstance(b, list | tuple), place
        assert len(a) == len(b), place
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{place}/{index}")
    else:
        assert a == b or (a != a and b != b), f"{place}: {a!r} {b!r}"
