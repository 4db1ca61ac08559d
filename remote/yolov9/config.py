"""The trainer's configuration: every key, its type, its range and its default, checked before anything is loaded.

Owns names and limits. Knows nothing of torch; what a default like "auto" becomes for a data set is decided in `recipe`.
"""

from __future__ import annotations

import difflib
import json
import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from remote.yolov9.variants import VARIANTS

log = logging.getLogger("yolov9")

IMAGE_STEP = 32
"""Image sizes are multiples of the largest stride."""


class ConfigError(Exception):
    """A key or value that cannot be used; the message names both."""


@dataclass(frozen=True, slots=True)
class Hyp:
    """Hyper-parameters, under the names that hyper-parameter files use."""

    lr0: float = 0.01
    """Learning rate after warm-up."""
    lrf: float = 0.01
    """Share of `lr0` that is left at the end."""
    momentum: float = 0.937
    """Of SGD; beta1 of AdamW."""
    weight_decay: float = 0.0005
    warmup_epochs: float = 3.0
    warmup_momentum: float = 0.8
    warmup_bias_lr: float = 0.1
    hsv_h: float = 0.015
    hsv_s: float = 0.7
    hsv_v: float = 0.4
    """Largest relative change of hue, saturation and value."""
    degrees: float = 0.0
    translate: float = 0.1
    scale: float = 0.9
    """Zoom between 1 - scale and 1 + scale."""
    shear: float = 0.0
    perspective: float = 0.0
    flipud: float = 0.0
    fliplr: float = 0.5
    mosaic: float = 1.0
    mixup: float = 0.15
    """Probabilities of both flips, of a mosaic, and of blending a second mosaic in."""
    copy_paste: float = 0.3
    """Share of the objects with a polygon that are pasted into their mosaic once more, mirrored."""
    cls_pw: float = 1.0
    """Weight of the positives in the class loss."""


HYP_NAMES = tuple(f.name for f in fields(Hyp))
HYP_WITHOUT_EFFECT = (
    "anchor_t", "anchors", "box", "cls", "dfl", "fl_gamma", "iou_t", "label_smoothing", "obj", "obj_pw",
)  # fmt: skip
"""Names found in hyper-parameter files that change nothing here: accepted with a warning."""

_PROBABILITIES = (
    "copy_paste",
    "flipud",
    "fliplr",
    "mosaic",
    "mixup",
    "warmup_momentum",
    "lrf",
    "hsv_h",
    "hsv_s",
    "hsv_v",
)
_BELOW_ONE = ("momentum", "scale", "translate")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One training. `from_dict` is the only way in that checks."""

    data: Path
    """Folder of the data set, or its data.yaml."""
    output: Path
    """The task's folder; everything the trainer writes lies in it."""
    model: str = "yolov9-t"
    weights: Path | None = None
    """To begin with: a checkpoint of this trainer or of the reference; none: from scratch."""
    epochs: int = 100
    image_size: int = 640
    batch: int | None = None
    """Pictures a step over all ranks; none: chosen by the size of the data set."""
    hyp: Mapping[str, float] = field(default_factory=dict)
    """Overrides of the recipe's hyper-parameters."""
    optimizer: str = "auto"
    lr_schedule: str = "auto"
    """How the learning rate falls; auto: linear with SGD, cosine with AdamW."""
    accumulate: int | None = None
    """Batches an optimiser step; none: the recipe decides."""
    freeze: tuple[int, ...] = ()
    """Layers by their index whose weights stay as they are."""
    multi_scale: bool = False
    """Each batch at another size, from half to one and a half of `image_size`."""
    sync_bn: bool = False
    """Norm statistics over the batch of all GPUs."""
    single_cls: bool = False
    """All classes as one."""
    min_items: int = 0
    """Pictures with fewer objects are left out."""
    seed: int = 0
    device: str = "auto"
    amp: str = "auto"
    workers: int | None = None
    """Loader processes a rank; none: none on a CPU, up to eight on a GPU."""
    threads: int | None = None
    """Threads of torch in this process; none: torch decides."""
    patience: int = 100
    """Epochs without a better fitness before training ends early; 0: never."""
    close_mosaic: int | None = None
    """Last epochs without mosaic; none: the recipe decides."""
    val_interval: int | None = None
    """Epochs from one validation to the next; none: as often as it costs little. The last epoch always validates."""
    save_period: int = 0
    """Epochs from one epochN.pt that is kept to the next; 0: none are."""
    hazard_per_hour: float = 0.0
    """Preemptions an hour of this machine; 0: none are known."""
    checkpoint_seconds: float | None = None
    """Between two writes of last.pt; none: chosen from the hazard and the measured time of a save, see `interval`."""
    plots: bool = False
    """Also pictures of batches, labels and scores, and TensorBoard's file."""
    resume: bool = True
    """Continue from weights/last.pt where there is one."""

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> TrainConfig:
        """Check every key and value. Raises ConfigError that names the key, the value and what would do."""
        _refuse_unknown(raw, _CHECKS, "key")
        for name in ("data", "output"):
            if raw.get(name) is None:
                raise ConfigError(f"{name} is missing: a path")
        return TrainConfig(**{name: _CHECKS[name](name, value) for name, value in raw.items()})

    @staticmethod
    def from_file(path: Path) -> TrainConfig:
        """Read a JSON or YAML file. Raises ConfigError that names the file or the key."""
        try:
            text = path.read_text(encoding="utf-8")
            raw = yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        except (ValueError, yaml.YAMLError) as error:
            form = "YAML" if path.suffix == ".yaml" else "JSON"
            raise ConfigError(f"{path}: not {form}: {str(error).splitlines()[0]}") from error
        if not isinstance(raw, dict):
            raise ConfigError(f"{path}: expected an object, found {type(raw).__name__}")
        return TrainConfig.from_dict(raw)


SCHEDULES = ("linear", "cosine", "flat_cosine", "constant")
_Check = Callable[[str, Any], Any]


def _refuse_unknown(raw: Iterable[str], known: Iterable[str], kind: str) -> None:
    names = tuple(known)
    for name in raw:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(names))}"
            raise ConfigError(f"unknown {kind} {name!r}; {hint}")


def _whole(low: int, high: int = 10**9) -> _Check:
    def check(name: str, value: Any) -> int:  # noqa: ANN401 - what JSON holds is the question
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            bound = f"of at least {low}" if high == 10**9 else f"from {low} to {high}"
            raise ConfigError(f"{name} is {value!r}: expected a whole number {bound}")
        return value

    return check


def _number(low: float, high: float = math.inf) -> _Check:
    def check(name: str, value: Any) -> float:  # noqa: ANN401
        largest = min(high, sys.float_info.max)  # infinity is a number for JSON's reader
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= largest:
            bound = f"of at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise ConfigError(f"{name} is {value!r}: expected a number {bound}")
        return float(value)

    return check


def _one_of(*choices: str) -> _Check:
    def check(name: str, value: Any) -> str:  # noqa: ANN401
        if value not in choices:
            near = difflib.get_close_matches(str(value), choices, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(choices)}"
            raise ConfigError(f"{name} is {value!r}; {hint}")
        return str(value)

    return check


def _or_none(check: _Check, *, word: str | None = None) -> _Check:
    return lambda name, value: None if value is None or (word is not None and value == word) else check(name, value)


def _image_size(name: str, value: Any) -> int:  # noqa: ANN401
    size: int = _whole(IMAGE_STEP, 4096)(name, value)
    if size % IMAGE_STEP:
        below = size // IMAGE_STEP * IMAGE_STEP
        raise ConfigError(
            f"{name} is {size}: expected a multiple of {IMAGE_STEP}, such as {below} or {below + IMAGE_STEP}"
        )
    return size


def _flag(name: str, value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}: expected true or false")
    return value


def _path(name: str, value: Any) -> Path:  # noqa: ANN401
    if not isinstance(value, str | Path) or not str(value):
        raise ConfigError(f"{name} is {value!r}: expected a path")
    return Path(value)


def _layers(name: str, value: Any) -> tuple[int, ...]:  # noqa: ANN401
    """A number n means the first n layers; a list means just those."""
    if isinstance(value, list | tuple):
        return tuple(_whole(0)(name, item) for item in value)
    return tuple(range(_whole(0)(name, value)))


def _hyp(name: str, value: Any) -> dict[str, float]:  # noqa: ANN401
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is {value!r}: expected an object of names and numbers")
    _refuse_unknown(value, HYP_NAMES + HYP_WITHOUT_EFFECT, "hyper-parameter")
    if value.get("fl_gamma"):
        raise ConfigError(f"{name}.fl_gamma is {value['fl_gamma']!r}: there is no focal loss here; set it to 0")
    ignored = [key for key in value if key in HYP_WITHOUT_EFFECT]
    if ignored:
        log.warning("warning: without effect in this trainer: hyp %s", ", ".join(ignored))
    return {
        key: _hyp_limits(key)(f"hyp.{key}", number) for key, number in value.items() if key not in HYP_WITHOUT_EFFECT
    }


def _hyp_limits(name: str) -> _Check:
    if name in _PROBABILITIES:
        return _number(0, 1)
    if name in _BELOW_ONE:
        return _number(0, 0.999)
    return {"degrees": _number(0, 180), "shear": _number(0, 80), "perspective": _number(0, 0.001)}.get(name, _number(0))


_CHECKS: dict[str, _Check] = {
    "data": _path,
    "output": _path,
    "model": _one_of(*VARIANTS),
    "weights": _or_none(_path),
    "epochs": _whole(1),
    "image_size": _image_size,
    "batch": _or_none(_whole(1), word="auto"),
    "hyp": _hyp,
    "optimizer": _one_of("auto", "sgd", "adamw"),
    "lr_schedule": _one_of("auto", *SCHEDULES),
    "accumulate": _or_none(_whole(1)),
    "freeze": _layers,
    "multi_scale": _flag,
    "sync_bn": _flag,
    "single_cls": _flag,
    "min_items": _whole(0),
    "seed": _whole(0),
    "device": _one_of("auto", "cpu", "cuda"),
    "amp": _one_of("auto", "off", "bf16", "fp16"),
    "workers": _or_none(_whole(0)),
    "threads": _or_none(_whole(1)),
    "patience": _whole(0),
    "close_mosaic": _or_none(_whole(0)),
    "val_interval": _or_none(_whole(1)),
    "save_period": _whole(0),
    "hazard_per_hour": _number(0),
    "checkpoint_seconds": _or_none(_number(0)),
    "plots": _flag,
    "resume": _flag,
}
