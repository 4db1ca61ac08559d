"""`gpucost-yolov9`: trained detectors from the command line, with the flags that users of the reference know.

Owns exit codes, `detect` and `export`; `train` and `val` have files of their own. Each command is one function over
values; the work is done elsewhere.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from PIL.Image import Image

from remote.dataset import DatasetError
from remote.protocol import EXIT_BAD_INPUT, EXIT_DONE
from remote.yolov9.boxes import NmsLimits
from remote.yolov9.checkpoint import CheckpointError
from remote.yolov9.config import IMAGE_STEP, ConfigError
from remote.yolov9.detect import Found, detect_files, drawn, find_pictures, label_text, unique_stems
from remote.yolov9.export import FORMATS, ExportError, Shape, export
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
from remote.yolov9.optional import MissingPackage
from remote.yolov9.train_command import add_train
from remote.yolov9.trained import Trained, load_trained
from remote.yolov9.val import add_val

log = logging.getLogger("yolov9")

_WITHOUT_EFFECT = (
    "--agnostic-nms",
    "--augment",
    "--dnn",
    "--half",
    "--hide-conf",
    "--hide-labels",
    "--save-crop",
    "--update",
    "--view-img",
    "--visualize",
)
"""Switches of the reference that mean nothing here."""
_WITHOUT_EFFECT_VALUED = ("--data", "--line-thickness", "--vid-stride")
"""The same for flags that take a value."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, or 2 for bad input."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    asked = _parser().parse_args(argv)
    if asked.ignored:
        log.warning("without effect here: %s", ", ".join(asked.ignored))
    try:
        command: Callable[[argparse.Namespace], int] = asked.command
        return command(asked)
    except (UsageError, CheckpointError, DatasetError, ConfigError, ExportError, MissingPackage, OSError) as error:
        log.error("error: %s", error)
        return EXIT_BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpucost-yolov9", description="Train YOLOv9 detectors, and use them.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_train(commands)
    add_val(commands)
    _add_detect(commands)
    _add_export(commands)
    return parser


def _add_detect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    detect = commands.add_parser("detect", help="find objects in pictures")
    detect.add_argument("--source", required=True, help="a picture, a folder, or a glob pattern in quotes")
    add_common(detect, NmsLimits(score=0.25, iou=0.45, detections=1000))
    detect.add_argument("--classes", type=int, nargs="+", default=[], metavar="N", help="these alone")
    add_results(detect, Path("runs/detect"))
    detect.add_argument("--nosave", action="store_true", help="no drawn pictures")
    ignore(detect, _WITHOUT_EFFECT, _WITHOUT_EFFECT_VALUED)
    detect.set_defaults(command=detect_command)


def _add_export(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = commands.add_parser("export", help="write a detector for other runtimes")
    add = export.add_argument
    add("--weights", type=Path, required=True, metavar="BEST.PT")
    add("--include", nargs="+", default=["onnx"], metavar="FORMAT", help=f"of {', '.join(FORMATS)} [onnx]")
    add("--img", "--imgsz", "--img-size", type=int, nargs="+", metavar="PIXELS", help="side, or height and width")
    add("--batch-size", type=int, default=1, help="[%(default)s]")
    add("--dynamic", action="store_true", help="batches of any size")
    add("--opset", type=int, default=17, help="version of ONNX operators [%(default)s]")
    switches = (
        "--agnostic-nms",
        "--half",
        "--inplace",
        "--int8",
        "--keras",
        "--nms",
        "--optimize",
        "--simplify",
        "--verbose",
    )
    valued = ("--conf-thres", "--data", "--device", "--iou-thres", "--topk-all", "--topk-per-class", "--workspace")
    ignore(export, switches, valued)
    export.set_defaults(command=export_command)


def detect_command(asked: argparse.Namespace) -> int:
    """Find objects in pictures, one line each on stdout. Raises UsageError, CheckpointError, DatasetError, OSError."""
    limits = limits_of(asked)
    pictures = find_pictures(asked.source)
    if not pictures:
        raise UsageError(f"--source {asked.source}: no picture there; name a picture, a folder or a pattern in quotes")
    trained = load_trained(asked.weights, device_of(asked.device))
    size = image_size(asked.img, trained)
    classes = _classes(asked.classes, trained)
    writes = not asked.nosave or asked.save_txt
    folder = next_folder(asked.project, asked.name, exist_ok=asked.exist_ok) if writes else None
    for stem, (path, picture, found) in zip(
        unique_stems(pictures), detect_files(trained, pictures, size, limits, classes), strict=True
    ):
        sys.stdout.write(f"{path}: {_counted(found, trained)}\n")
        if folder is not None:
            _write(folder, stem, picture, found, trained, asked)
    if folder is not None:
        log.info("results in %s", folder)
    return EXIT_DONE


def export_command(asked: argparse.Namespace) -> int:
    """Write a detector in other forms, beside its weights; a line for each on stdout. Raises as `detect_command`."""
    unknown = [form for form in asked.include if form not in FORMATS]
    if unknown:
        raise UsageError(f"--include {unknown[0]}: expected {', '.join(FORMATS)}")
    if asked.batch_size < 1:
        raise UsageError(f"--batch-size {asked.batch_size}: expected at least 1")
    trained = load_trained(asked.weights, torch.device("cpu"))
    sides = asked.img or [trained.image_size]
    if len(sides) > 2 or any(side < IMAGE_STEP or side % IMAGE_STEP for side in sides):
        said = " ".join(map(str, sides))
        raise UsageError(f"--img {said}: expected multiples of {IMAGE_STEP}, one or height and width")
    shape = Shape(asked.batch_size, sides[0], sides[-1], asked.dynamic)
    for form in dict.fromkeys(asked.include):
        done = export(trained, form, asked.weights.with_suffix(f".{form}"), shape, asked.opset)
        near = f"boxes within {done.pixels:.4f} pixels, probabilities within {done.probability:.6f} of torch"
        sys.stdout.write(f"{done.path}: {done.path.stat().st_size / 2**20:.1f} MiB, {near}\n")
    return EXIT_DONE


def _write(
    folder: Path, stem: str, picture: Image, found: Sequence[Found], trained: Trained, asked: argparse.Namespace
) -> None:
    if not asked.nosave:
        drawn(picture, found, trained.names).save(folder / f"{stem}.jpg", quality=95)
    if asked.save_txt:
        labels = folder / "labels"
        labels.mkdir(exist_ok=True)
        (labels / f"{stem}.txt").write_text(label_text(found, picture.size, scores=asked.save_conf))


def _classes(wanted: Sequence[int], trained: Trained) -> frozenset[int]:
    foreign = [number for number in wanted if not 0 <= number < len(trained.names)]
    if foreign:
        raise UsageError(
            f"--classes {foreign[0]}: there are 0 to {len(trained.names) - 1} ({', '.join(trained.names)})"
        )
    return frozenset(wanted)


def _counted(found: Sequence[Found], trained: Trained) -> str:
    counts = dict.fromkeys(trained.names, 0)
    for one in found:
        counts[trained.names[one.cls]] += 1
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
