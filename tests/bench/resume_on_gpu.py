"""How far a resumed training is from one that was never interrupted, beside two that were not: on a GPU sums vary.

    PYTHONPATH=.:tests/fakes python tests/bench/resume_on_gpu.py DATA --model yolov9-s --batch 32 --stop-after 10

DATA is a data.yaml, a folder or a .tar of one. Three trainings with the same seed: twice without a break, once stopped
after so many batches and resumed. A CSV line for each pair: the largest difference of the losses of an epoch, relative,
and the distance of the final weights, relative to how far training took them from where they began.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tiny_training import build, start

from remote.dataset import extract, find_root
from remote.yolov9 import engine
from remote.yolov9.run import Run


def main(argv: Sequence[str]) -> int:
    """Train three times and compare."""
    asked = _arguments(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        root = asked.data
        if root.suffix == ".tar":
            extract(root, folder / "data")
            root = find_root(folder / "data")
        begun = _weights(build(_settings(asked, root, folder / "begun")))
        runs = {name: _trained(asked, root, folder / name) for name in ("first", "second")}
        _trained(asked, root, folder / "resumed", stop_after=asked.stop_after)
        runs["resumed"] = _trained(asked, root, folder / "resumed")
    writer = csv.writer(sys.stdout)
    writer.writerow(("pair", "losses", "weights"))
    for name in ("second", "resumed"):
        writer.writerow((f"first, {name}", *_differences(runs["first"], runs[name], begun)))
    return 0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="yolov9-s")
    parser.add_argument("--image-size", type=int, default=640)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--stop-after", type=int, default=10, metavar="BATCHES")
    parser.add_argument("--device", default="auto")
    return parser.parse_args(argv)


Outcome = tuple[torch.Tensor, torch.Tensor]
"""Losses (epochs, 3), and all weights in one vector."""


def _settings(asked: argparse.Namespace, root: Path, output: Path) -> dict[str, Any]:
    return {
        "data": str(root), "output": str(output), "model": asked.model, "image_size": asked.image_size,
        "batch": asked.batch, "epochs": asked.epochs, "val_interval": asked.epochs, "device": asked.device,
    }  # fmt: skip


def _trained(asked: argparse.Namespace, root: Path, output: Path, stop_after: float = math.inf) -> Outcome:
    run = start(_settings(asked, root, output), stop_after)
    engine.fit(run)
    losses = torch.tensor([(row.train_box, row.train_cls, row.train_dfl) for row in run.state.rows])
    return losses, _weights(run)


def _weights(run: Run) -> torch.Tensor:
    return torch.cat([parameter.detach().float().flatten().cpu() for parameter in run.model.parameters()])


def _differences(one: Outcome, other: Outcome, begun: torch.Tensor) -> tuple[str, str]:
    losses = ((one[0] - other[0]).abs() / one[0]).max()
    weights = (one[1] - other[1]).norm() / (one[1] - begun).norm()
    return f"{float(losses):.2g}", f"{float(weights):.2g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
