"""How long training stands still for a checkpoint: written in place, against copied and written beside the training.

    python tests/bench/checkpoint_stall.py --model yolov9-s --rounds 7
    python tests/bench/checkpoint_stall.py --model yolov9-c --device cuda --rounds 7

Both ways in turn, in one process, of one run after a few real steps, into `--folder`. Prints CSV: one row for each way
with the seconds that the training thread spends (median, least, most), the seconds until the file is on the disk, and
the ratio of the medians. The first turn of each, which also gets the memory for the copy, is told apart as `first_s`.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from remote.yolov9 import checkpoint, data, engine, optim, recipe, snapshot
from remote.yolov9.config import TrainConfig
from remote.yolov9.distributed import Ranks, choose_device
from remote.yolov9.interrupt import Interrupt
from remote.yolov9.probe import PICTURES, SyntheticPictures
from remote.yolov9.report import COLUMNS, EpochRow
from remote.yolov9.run import Job, Run, build_run

STEPS = 2
Seconds = tuple[float, float]
"""Of the training thread, and until the file is there."""


def main() -> int:
    options = _parse()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        run = _make_run(options, Path(folder))
        ways: dict[str, Callable[[Run], Seconds]] = {"in place": _in_place, "snapshot": _snapshot}
        seconds: dict[str, list[Seconds]] = {name: [] for name in ways}
        for _ in range(options.rounds + 1):
            for name, way in ways.items():
                _settle(run)
                seconds[name].append(way(run))
        size = run.paths.last.stat().st_size / 2**20
    out = csv.writer(sys.stdout, lineterminator="\n")
    facts = ("model", "device", "threads", "optimizer", "mib", "way")
    out.writerow((*facts, "median_s", "min_s", "max_s", "first_s", "on_disk_s", "ratio"))
    base = statistics.median(stall for stall, _ in seconds["in place"][1:])
    for name, all_turns in seconds.items():
        stalls, whole = zip(*all_turns[1:], strict=True)
        median = statistics.median(stalls)
        facts = (options.model, run.device.type, options.threads, run.job.recipe.optimizer, f"{size:.0f}", name)
        times = (median, min(stalls), max(stalls), all_turns[0][0], statistics.median(whole))
        out.writerow((*facts, *(f"{value:.4f}" for value in times), f"{base / median:.1f}"))
    return 0


def _make_run(options: argparse.Namespace, folder: Path) -> Run:
    """A run that has taken steps, so that there is a state of the optimiser, and has best weights."""
    raw = {"data": ".", "output": str(folder), "model": options.model, "image_size": options.image_size}
    config = TrainConfig.from_dict({**raw, "batch": options.batch, "device": options.device, "epochs": 1000})
    pictures = SyntheticPictures(config.image_size)
    chosen = recipe.choose(config, PICTURES, PICTURES)
    device = choose_device(config.device, 0)
    run = build_run(Job(config, chosen, ("a", "b", "c"), pictures, pictures, Ranks(), device, Interrupt()))
    batches = data.train_batches(run.train, run.order, (0, 0), run.loading)
    for _ in range(STEPS):
        run.schedule.apply(run.optimizer, run.state.step)
        engine.backward(run, next(batches))
        optim.gradient_step(run.model, run.optimizer, run.scaler)
        run.ema.update()
        run.state.step += 1
    run.state.best = EpochRow(*[0] * len(COLUMNS))
    run.state.best_weights = checkpoint.half(run.ema.model.state_dict())
    return run


def _settle(run: Run) -> None:
    run.writer.wait()
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)


def _in_place(run: Run) -> Seconds:
    started = time.monotonic()
    snapshot.save_last(run)
    spent = time.monotonic() - started
    return spent, spent


def _snapshot(run: Run) -> Seconds:
    run.pace.hurry()
    started = time.monotonic()
    snapshot.save_if_due(run)
    spent = time.monotonic() - started
    run.writer.wait()
    return spent, time.monotonic() - started


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="yolov9-s")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", help="where the checkpoints go; the default is the system's temporary folder")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
