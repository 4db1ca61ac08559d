"""`gpucost-yolov9`: trained detectors from the command line, with the flags that users of the reference know.

Owns flags, folders and exit codes. Each command is one function over values; the work is done elsewhere.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from PIL.Image import Image

from remote.dataset import DatasetError, Split, open_dataset
from remote.protocol import EXIT_BAD_INPUT, EXIT_DONE
from remote.yolov9 import metrics
from remote.yolov9.boxes import NmsLimits
from remote.yolov9.checkpoint import CheckpointError
from remote.yolov9.config import IMAGE_STEP, ConfigError
from remote.yolov9.data import CACHE_SHARE, VAL_BATCH, Loading, Pictures, ValSet, available_memory, val_batches
from remote.yolov9.detect import Found, detect_files, drawn, find_pictures, label_text
from remote.yolov9.distributed import choose_device
from remote.yolov9.evaluate import evaluate
from remote.yolov9.export import FORMATS, ExportError, Shape, export
from remote.yolov9.flags import ignore, next_folder
from remote.yolov9.metrics import Matches
from remote.yolov9.run import amp_dtype, workers
from remote.yolov9.train_command import add_train
from remote.yolov9.trained import Trained, load_trained

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


class UsageError(Exception):
    """A flag cannot be met; the message names it and what would do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, or 2 for bad input."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    asked = _parser().parse_args(argv)
    if asked.ignored:
        log.warning("without effect here: %s", ", ".join(asked.ignored))
    try:
        command: Callable[[argparse.Namespace], int] = asked.command
        return command(asked)
    except (UsageError, CheckpointError, DatasetError, ConfigError, ExportError, OSError) as error:
        log.error("error: %s", error)
        return EXIT_BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpucost-yolov9", description="Train YOLOv9 detectors, and use them.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_train(commands)
    _add_val(commands)
    _add_detect(commands)
    _add_export(commands)
    return parser


def _add_detect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    detect = commands.add_parser("detect", help="find objects in pictures")
    detect.add_argument("--source", required=True, help="a picture, a folder, or a glob pattern in quotes")
    _add_common(detect, NmsLimits(score=0.25, iou=0.45, detections=1000))
    detect.add_argument("--classes", type=int, nargs="+", default=[], metavar="N", help="these alone")
    detect.add_argument("--project", type=Path, default=Path("runs/detect"))
    detect.add_argument("--name", default="exp", help="folder in the project; the next free one of exp, exp2, ...")
    detect.add_argument("--exist-ok", action="store_true", help="write into a folder that is there")
    detect.add_argument("--save-txt", action="store_true", help="also labels/NAME.txt: class cx cy w h")
    detect.add_argument("--save-conf", action="store_true", help="with the score at the end of each line")
    detect.add_argument("--nosave", action="store_true", help="no drawn pictures")
    ignore(detect, _WITHOUT_EFFECT, _WITHOUT_EFFECT_VALUED)
    detect.set_defaults(command=detect_command)


def _add_val(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    val = commands.add_parser("val", help="score weights on a split of a data set")
    val.add_argument("--data", type=Path, required=True, metavar="DATA.YAML", help="or the folder that it is in")
    _add_common(val, NmsLimits())
    val.add_argument("--task", choices=[split.value for split in Split], default=Split.VAL.value, help="[%(default)s]")
    val.add_argument("--batch", "--batch-size", type=int, default=VAL_BATCH, help="[%(default)s]")
    val.add_argument("--workers", type=int, help="loader processes; as in training")
    switches = (
        "--augment",
        "--dnn",
        "--exist-ok",
        "--half",
        "--save-conf",
        "--save-hybrid",
        "--save-json",
        "--save-txt",
    )
    ignore(val, (*switches, "--verbose"), ("--min-items", "--name", "--project"))
    val.set_defaults(command=val_command)


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


def _add_common(parser: argparse.ArgumentParser, limits: NmsLimits) -> None:
    """Which detector, on what, and how its boxes are suppressed; `limits` are the defaults."""
    add = parser.add_argument
    add("--weights", type=Path, required=True, metavar="BEST.PT")
    add("--img", "--imgsz", "--img-size", type=int, metavar="PIXELS", help="longer side; as in training")
    add("--conf-thres", type=float, default=limits.score, help="least score [%(default)s]")
    add("--iou-thres", type=float, default=limits.iou, help="most overlap of two of a class [%(default)s]")
    add("--max-det", type=int, default=limits.detections, help="most objects a picture [%(default)s]")
    add("--device", default="auto", help="auto, cpu, cuda or the number of one GPU")


def detect_command(asked: argparse.Namespace) -> int:
    """Find objects in pictures, one line each on stdout. Raises UsageError, CheckpointError, DatasetError, OSError."""
    limits = _limits(asked)
    pictures = find_pictures(asked.source)
    if not pictures:
        raise UsageError(f"--source {asked.source}: no picture there; name a picture, a folder or a pattern in quotes")
    trained = load_trained(asked.weights, _device(asked.device))
    size = _size(asked.img, trained)
    classes = _classes(asked.classes, trained)
    writes = not asked.nosave or asked.save_txt
    folder = next_folder(asked.project, asked.name, exist_ok=asked.exist_ok) if writes else None
    stems: Counter[str] = Counter()
    for path, picture, found in detect_files(trained, pictures, size, limits, classes):
        sys.stdout.write(f"{path}: {_counted(found, trained)}\n")
        stems[path.stem] += 1
        stem = path.stem if stems[path.stem] == 1 else f"{path.stem}-{stems[path.stem]}"
        if folder is not None:
            _write(folder, stem, picture, found, trained, asked)
    if folder is not None:
        log.info("results in %s", folder)
    return EXIT_DONE


def val_command(asked: argparse.Namespace) -> int:
    """Score weights, one line for all classes and one for each on stdout. Raises as `detect_command`, ConfigError."""
    limits = _limits(asked)
    if asked.batch < 1:
        raise UsageError(f"--batch {asked.batch}: expected at least 1")
    device = _device(asked.device)
    trained = load_trained(asked.weights, device)
    size = _size(asked.img, trained)
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


def _write(
    folder: Path, stem: str, picture: Image, found: Sequence[Found], trained: Trained, asked: argparse.Namespace
) -> None:
    if not asked.nosave:
        drawn(picture, found, trained.names).save(folder / f"{stem}.jpg", quality=95)
    if asked.save_txt:
        labels = folder / "labels"
        labels.mkdir(exist_ok=True)
        (labels / f"{stem}.txt").write_text(label_text(found, picture.size, scores=asked.save_conf))


def _device(wanted: str) -> torch.device:
    if wanted.isdigit():
        return choose_device("cuda", int(wanted))
    if wanted not in {"auto", "cpu", "cuda"}:
        raise UsageError(f"--device {wanted}: expected auto, cpu, cuda or the number of one GPU")
    return choose_device(wanted, 0)


def _size(wanted: int | None, trained: Trained) -> int:
    size = trained.image_size if wanted is None else wanted
    if size < IMAGE_STEP or size % IMAGE_STEP:
        raise UsageError(f"--img {size}: expected a multiple of {IMAGE_STEP}")
    return size


def _classes(wanted: Sequence[int], trained: Trained) -> frozenset[int]:
    foreign = [number for number in wanted if not 0 <= number < len(trained.names)]
    if foreign:
        raise UsageError(
            f"--classes {foreign[0]}: there are 0 to {len(trained.names) - 1} ({', '.join(trained.names)})"
        )
    return frozenset(wanted)


def _limits(asked: argparse.Namespace) -> NmsLimits:
    for flag, value in (("--conf-thres", asked.conf_thres), ("--iou-thres", asked.iou_thres)):
        if not 0 <= value <= 1:
            raise UsageError(f"{flag} {value}: expected a number from 0 to 1")
    if asked.max_det < 1:
        raise UsageError(f"--max-det {asked.max_det}: expected at least 1")
    return NmsLimits(score=asked.conf_thres, iou=asked.iou_thres, detections=asked.max_det)


def _counted(found: Sequence[Found], trained: Trained) -> str:
    counts = dict.fromkeys(trained.names, 0)
    for one in found:
        counts[trained.names[one.cls]] += 1
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
