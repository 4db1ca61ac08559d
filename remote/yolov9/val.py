"""`gpucost-yolov9 val`: weights scored on a split of a data set.

Owns the flags, the table and the files of that command; what the scores are is in `metrics`.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL.Image import Image

from remote import protocol
from remote.dataset import Split, open_dataset
from remote.protocol import EXIT_DONE
from remote.yolov9 import metrics, mosaics, plots
from remote.yolov9.boxes import NmsLimits
from remote.yolov9.data import (
    CACHE_SHARE,
    VAL_BATCH,
    Loading,
    Pictures,
    ValSet,
    available_memory,
    val_batches,
)
from remote.yolov9.detect import Found, coco_rows, detect_files, label_text, unique_stems
from remote.yolov9.evaluate import evaluate
from remote.yolov9.flags import (
    UsageError,
    add_common,
    add_results,
    device_of,
    ignore,
    image_size,
    limits_of,
    next_folder,
)
from remote.yolov9.metrics import Matches
from remote.yolov9.optional import MissingPackage
from remote.yolov9.run import amp_dtype, workers
from remote.yolov9.trained import load_trained

log = logging.getLogger("yolov9")


def add_val(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command and its flags."""
    val = commands.add_parser("val", help="score weights on a split of a data set")
    val.add_argument("--data", type=Path, required=True, metavar="DATA.YAML", help="or the folder that it is in")
    add_common(val, NmsLimits())
    val.add_argument("--task", choices=[split.value for split in Split], default=Split.VAL.value, help="[%(default)s]")
    val.add_argument("--batch", "--batch-size", type=int, default=VAL_BATCH, help="[%(default)s]")
    val.add_argument("--workers", type=int, help="loader processes; as in training")
    add_results(val, Path("runs/val"))
    val.add_argument("--save-json", action="store_true", help="also BEST_predictions.json, as COCO has results")
    val.add_argument("--noplots", action="store_true", help="no curves and no pictures")
    ignore(val, ("--augment", "--dnn", "--half", "--save-hybrid", "--verbose"), ("--min-items",))
    val.set_defaults(command=val_command)


def val_command(asked: argparse.Namespace) -> int:
    """Score weights, one line for all classes and one for each on stdout. Raises as `detect_command`, ConfigError."""
    limits = limits_of(asked)
    if asked.batch < 1:
        raise UsageError(f"--batch {asked.batch}: expected at least 1")
    device = device_of(asked.device)
    trained = load_trained(asked.weights, device)
    size = image_size(asked.img, trained)
    dataset = open_dataset(asked.data)
    if dataset.names != trained.names:
        ours, theirs = ", ".join(trained.names), ", ".join(dataset.names)
        raise UsageError(f"--data {asked.data}: its classes are {theirs}, those of the weights {ours}")
    samples = dataset.split(Split(asked.task))
    if not samples:
        raise UsageError(f"--task {asked.task}: the data set has no such pictures")
    val = ValSet(Pictures(samples, size, int(available_memory() * CACHE_SHARE)))
    loading = Loading(workers(asked.workers, device), pinned=device.type == "cuda")
    batches = val_batches(val, val.groups(asked.batch), loading)
    part = evaluate(trained.model, batches, device, amp_dtype("auto", device), lambda: True, limits)
    assert part is not None  # noqa: S101 - nobody said stop
    sys.stdout.write(_table(part[0], trained.names, len(samples)))
    if asked.noplots and not asked.save_txt and not asked.save_json:
        return EXIT_DONE
    folder = next_folder(asked.project, asked.name, exist_ok=asked.exist_ok)
    if not asked.noplots:
        _draw_figures(part[0], trained.names, folder)
        mosaics.draw_batches(val, val.groups(asked.batch), trained.model, trained.names, folder, limits)
    if asked.save_txt or asked.save_json:
        pictures = [sample.image for sample in samples]
        _save(unique_stems(pictures), detect_files(trained, pictures, size, limits), folder, asked)
    log.info("results in %s", folder)
    return EXIT_DONE


def _draw_figures(matches: Matches, names: Sequence[str], folder: Path) -> None:
    try:
        plots.draw_curves(metrics.curves(matches), names, folder)
        if matches.confusion is not None:
            plots.draw_confusion(matches.confusion, names, folder / "confusion_matrix.png")
    except MissingPackage as error:
        log.warning("note: no curves and no confusion matrix: %s", error)


def _save(
    stems: Sequence[str], results: Iterable[tuple[Path, Image, list[Found]]], folder: Path, asked: argparse.Namespace
) -> None:
    """Label files, and results as COCO has them. Another pass over the pictures, each by itself as in `detect`."""
    rows: list[dict[str, object]] = []
    for stem, (_, picture, found) in zip(stems, results, strict=True):
        rows += coco_rows(found, stem)
        if asked.save_txt:
            protocol.write_text(folder / f"labels/{stem}.txt", label_text(found, picture.size, scores=asked.save_conf))
    if asked.save_json:
        protocol.write_text(folder / f"{asked.weights.stem}_predictions.json", json.dumps(rows))


def _table(matches: Matches, names: Sequence[str], pictures: int) -> str:
    each = metrics.score_classes(matches)
    rows = [
        ("all", int(matches.truths.sum()), metrics.mean_scores(each)),
        *((names[one.cls], one.truths, one.scores) for one in each),
    ]
    width = max(len("class"), *(len(name) for name, _, _ in rows))
    lines = [f"{'class':<{width}}  {'pictures':>8}  {'objects':>8}  precision  recall   mAP50  mAP50-95"]
    for name, truths, found in rows:
        figures = f"{found.precision:>9.3f}  {found.recall:>6.3f}  {found.map50:>6.3f}  {found.map50_95:>8.3f}"
        lines.append(f"{name:<{width}}  {pictures:>8}  {truths:>8}  {figures}")
    return "\n".join([*lines, ""])
