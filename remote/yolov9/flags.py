"""What the commands of `gpucost-yolov9` share: their flags, the checks of them, and folders for results.

Owns the values that a flag may have. Knows nothing of what a command does with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import torch

from remote.yolov9.boxes import NmsLimits
from remote.yolov9.config import IMAGE_STEP
from remote.yolov9.distributed import choose_device
from remote.yolov9.trained import Trained


class UsageError(Exception):
    """A flag cannot be met; the message names it and what would do."""


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Which detector, and where it runs."""
    parser.add_argument("--weights", type=Path, required=True, metavar="BEST.PT")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or the number of one GPU")


def add_common(parser: argparse.ArgumentParser, limits: NmsLimits) -> None:
    """Which detector, on what, and how its boxes are suppressed; `limits` are the defaults."""
    add_weights(parser)
    add = parser.add_argument
    add("--img", "--imgsz", "--img-size", type=int, metavar="PIXELS", help="longer side; as in training")
    add("--conf-thres", type=float, default=limits.score, help="least score [%(default)s]")
    add("--iou-thres", type=float, default=limits.iou, help="most overlap of two of a class [%(default)s]")
    add("--max-det", type=int, default=limits.detections, help="most objects a picture [%(default)s]")


def add_results(parser: argparse.ArgumentParser, project: Path) -> None:
    """Where results go, and label files among them."""
    add = parser.add_argument
    add("--project", type=Path, default=project)
    add("--name", default="exp", help="folder in the project; the next free one of exp, exp2, ...")
    add("--exist-ok", action="store_true", help="write into a folder that is there")
    add("--save-txt", action="store_true", help="also labels/NAME.txt: class cx cy w h")
    add("--save-conf", action="store_true", help="with the score at the end of each line")


def ignore(parser: argparse.ArgumentParser, switches: Sequence[str], valued: Sequence[str]) -> None:
    """Accept flags that mean nothing here: switches, and those that take a value. Those given are in `ignored`."""
    for flag in switches:
        parser.add_argument(flag, action=_Ignored, nargs=0, help=argparse.SUPPRESS)
    for flag in valued:
        parser.add_argument(flag, action=_Ignored, help=argparse.SUPPRESS)
    parser.set_defaults(ignored=())


class _Ignored(argparse.Action):
    """Notes that a flag without effect was given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        del parser, values
        namespace.ignored = (*namespace.ignored, option_string)


def device_of(wanted: str) -> torch.device:
    """The device that `--device` names. Raises UsageError, ConfigError."""
    if wanted.isdigit():
        return choose_device("cuda", int(wanted))
    if wanted not in {"auto", "cpu", "cuda"}:
        raise UsageError(f"--device {wanted}: expected auto, cpu, cuda or the number of one GPU")
    return choose_device(wanted, 0)


def image_size(wanted: int | None, trained: Trained) -> int:
    """What `--img` says, else the size of the training. Raises UsageError."""
    size = trained.image_size if wanted is None else wanted
    if size < IMAGE_STEP or size % IMAGE_STEP:
        raise UsageError(f"--img {size}: expected a multiple of {IMAGE_STEP}")
    return size


def limits_of(asked: argparse.Namespace) -> NmsLimits:
    """Those of the flags of `add_common`. Raises UsageError."""
    for flag, value in (("--conf-thres", asked.conf_thres), ("--iou-thres", asked.iou_thres)):
        if not 0 <= value <= 1:
            raise UsageError(f"{flag} {value}: expected a number from 0 to 1")
    if asked.max_det < 1:
        raise UsageError(f"--max-det {asked.max_det}: expected at least 1")
    return NmsLimits(score=asked.conf_thres, iou=asked.iou_thres, detections=asked.max_det)


def next_folder(project: Path, name: str, *, exist_ok: bool) -> Path:
    """A new folder called `name` in `project`, or with the first free number from 2 on behind it."""
    numbered = (f"{name}{number if number > 1 else ''}" for number in count(1))
    folder = (
        project / name if exist_ok else next(each for each in (project / one for one in numbered) if not each.exists())
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder
