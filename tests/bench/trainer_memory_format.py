"""What the channels_last memory format is worth in training: both layouts in turn, in one process.

    python tests/bench/trainer_memory_format.py --model yolov9-t --image-size 320 --batch 8 --threads 2 --rounds 5

Prints CSV: one row for each layout with the median and the spread of seconds a step, and the ratio of the medians.
The step is forward, loss and backward of random pictures with eight boxes each; no loader, no optimiser.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time

import torch

from remote.yolov9.assigner import Targets
from remote.yolov9.loss import detection_loss
from remote.yolov9.model import Detector, build

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
BOXES = 8
CLASSES = 80


def main() -> int:
    options = _parse()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    images = torch.rand(options.batch, 3, options.image_size, options.image_size, device=device)
    targets = _targets(options.batch, options.image_size).to(device)
    models = {name: build(options.model, CLASSES).to(device, memory_format=form) for name, form in LAYOUTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in LAYOUTS}
    for turn in range(options.rounds + 1):
        for name, layout in LAYOUTS.items():
            spent = _step(models[name], images.contiguous(memory_format=layout), targets)
            if turn:  # the first turn warms up
                seconds[name].append(spent)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(
        ("model", "image_size", "batch", "threads", "device", "layout", "median_s", "min_s", "max_s", "speedup")
    )
    base = statistics.median(seconds["contiguous"])
    for name, spent in seconds.items():
        row = (options.model, options.image_size, options.batch, options.threads, options.device, name)
        median = statistics.median(spent)
        out.writerow((*row, f"{median:.3f}", f"{min(spent):.3f}", f"{max(spent):.3f}", f"{base / median:.2f}"))
    return 0


def _targets(batch: int, size: int) -> Targets:
    torch.manual_seed(0)
    count = batch * BOXES
    low = torch.rand(count, 2) * 0.6 * size
    boxes = torch.cat((low, low + (0.1 + 0.3 * torch.rand(count, 2)) * size), 1)
    image = torch.arange(batch).repeat_interleave(BOXES)
    return Targets(image=image, classes=torch.randint(0, CLASSES, (count,)), boxes=boxes)


def _step(model: Detector, images: torch.Tensor, targets: Targets) -> float:
    started = time.monotonic()
    outputs = model(images)
    grid = model.grid(images.shape[2], images.shape[3], images.device)
    loss = detection_loss(outputs.main, outputs.auxiliary, targets, grid).total
    loss.backward()
    loss.item()  # waits for the device
    model.zero_grad(set_to_none=True)
    return time.monotonic() - started


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="yolov9-t")
    parser.add_argument("--image-size", type=int, default=320)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
