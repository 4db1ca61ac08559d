"""How fast this machine trains: `python -m remote.yolov9.probe --model yolov9-t --image-size 320 --batch 8 --seconds
5`.

Runs real training steps, with the host's work on synthetic pictures, then a validation, and prints one JSON line on
stdout: images_per_second, val_images_per_second, peak_memory_gib, and what was measured.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time

import numpy as np
import torch

from remote.protocol import EXIT_BAD_INPUT, EXIT_DONE
from remote.yolov9 import data, engine, optim, recipe
from remote.yolov9.augment import Labelled
from remote.yolov9.config import ConfigError, TrainConfig
from remote.yolov9.distributed import Ranks, choose_device
from remote.yolov9.evaluate import evaluate
from remote.yolov9.interrupt import Interrupt
from remote.yolov9.report import peak_memory_gib
from remote.yolov9.run import Job, Run, build_run

PICTURES = 32
OBJECTS = 8
"""A picture; about the mean of COCO."""
CLASSES = 3
WARM_STEPS = 2
VAL_SHARE = 0.3
"""Of the seconds; validation is measured for so long, training for the rest."""

log = logging.getLogger("yolov9")


class SyntheticPictures:
    """Smooth noise of 4:3 with boxes: costs what a real picture costs once it is decoded."""

    def __init__(self, size: int) -> None:
        rng = np.random.default_rng(0)
        height, width = size * 3 // 4, size
        self._parts = []
        for _ in range(PICTURES):
            coarse = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
            picture = coarse.repeat(8, 0).repeat(8, 1)[:height, :width]
            low = rng.random((OBJECTS, 2)) * (0.7 * width, 0.7 * height)
            sides = (0.05 + 0.2 * rng.random((OBJECTS, 2))) * size
            classes = rng.integers(0, CLASSES, (OBJECTS, 1))
            labels = np.concatenate((classes, low, np.minimum(low + sides, (width, height))), 1)
            self._parts.append(Labelled(np.ascontiguousarray(picture), labels.astype(np.float32)))

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int) -> Labelled:
        return self._parts[index]

    def shape(self, index: int) -> tuple[int, int]:
        """Height and width of a picture."""
        height, width = self._parts[index].picture.shape[:2]
        return height, width


def main(argv: list[str]) -> int:
    """Measure and print. Returns the exit code."""
    options = _parse(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        config = TrainConfig.from_dict(
            {
                "data": ".",
                "output": ".",
                "model": options.model,
                "image_size": options.image_size,
                "batch": options.batch,
                "device": options.device,
                "threads": options.threads,
                "epochs": 1000,
            }
        )
        result = measure(config, options.seconds)
    except ConfigError as error:
        log.error("error: %s", error)
        return EXIT_BAD_INPUT
    sys.stdout.write(json.dumps(result) + "\n")
    return EXIT_DONE


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m remote.yolov9.probe", description="measure training speed")
    parser.add_argument("--model", default="yolov9-t")
    parser.add_argument("--image-size", type=int, default=640)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    return parser.parse_args(argv)


def measure(config: TrainConfig, seconds: float) -> dict[str, float | int | str]:
    """Speeds of training and validation, each over at least one batch."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = choose_device(config.device, 0)
    pictures = SyntheticPictures(config.image_size)
    chosen = recipe.choose(config, PICTURES, PICTURES)
    run = build_run(Job(config, chosen, ("a", "b", "c"), pictures, pictures, Ranks(), device, Interrupt()))
    train = _train_speed(run, seconds * (1 - VAL_SHARE))
    return {
        "model": config.model,
        "image_size": config.image_size,
        "batch": chosen.batch,
        "device": device.type,
        "threads": torch.get_num_threads(),
        "images_per_second": round(train, 3),
        "val_images_per_second": round(_val_speed(run, seconds * VAL_SHARE), 3),
        "peak_memory_gib": round(peak_memory_gib(), 3),
    }


def _train_speed(run: Run, seconds: float) -> float:
    batches = data.train_batches(run.train, run.order, (0, 0), run.loading)
    run.network.train()
    for _ in range(WARM_STEPS):
        _step(run, batches)
    started, steps = time.monotonic(), 0
    while steps == 0 or time.monotonic() - started < seconds:
        _step(run, batches)
        steps += 1
    return steps * run.order.batch / (time.monotonic() - started)


def _step(run: Run, batches: data.Batches) -> None:
    run.schedule.apply(run.optimizer, run.state.step)
    loss = engine.backward(run, next(batches))
    optim.gradient_step(run.model, run.optimizer, run.scaler)
    run.ema.update()
    run.state.step += 1
    float(loss.terms.sum())  # waits for the device


def _val_speed(run: Run, seconds: float) -> float:
    """Validation of the averaged weights; whole batches until the time is over."""
    batches = list(run.val)
    started, pictures = time.monotonic(), 0
    while pictures == 0 or time.monotonic() - started < seconds:
        for batch in batches:
            evaluate(run.ema.model, [batch], run.device, run.amp, lambda: True)
            pictures += len(batch.images)
    return pictures / (time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
