"""Hyper-parameters as the trainer takes them: names and ranges, so that a mistake is found before a machine is paid.

The trainer has the same limits in a place that the launcher does not import; a test holds both equal.
"""

from __future__ import annotations

import difflib
import math
import re
import reprlib
from collections.abc import Mapping

RANGES: Mapping[str, tuple[float, float]] = {
    "lr0": (0, math.inf),
    "lrf": (0, 1),
    "momentum": (0, 0.999),
    "weight_decay": (0, math.inf),
    "warmup_epochs": (0, math.inf),
    "warmup_momentum": (0, 1),
    "warmup_bias_lr": (0, math.inf),
    "hsv_h": (0, 1),
    "hsv_s": (0, 1),
    "hsv_v": (0, 1),
    "degrees": (0, 180),
    "translate": (0, 0.999),
    "scale": (0, 0.999),
    "shear": (0, 80),
    "perspective": (0, 0.001),
    "flipud": (0, 1),
    "fliplr": (0, 1),
    "mosaic": (0, 1),
    "mixup": (0, 1),
    "copy_paste": (0, 1),
    "cls_pw": (0, math.inf),
}
"""Lowest and highest value, both allowed."""
WITHOUT_EFFECT = (
    "anchor_t", "anchors", "box", "cls", "dfl", "fl_gamma", "iou_t", "label_smoothing", "obj", "obj_pw",
)  # fmt: skip
"""Found in hyper-parameter files; the trainer takes them with a warning."""
_ANY = (-math.inf, math.inf)
_EXPONENT = re.compile(r"[-+]?[0-9]*\.?[0-9]+[eE][-+]?[0-9]+")


class BadHyperparameter(ValueError):
    """A name or value the trainer would refuse, with the way out."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def checked(given: Mapping[object, object]) -> dict[str, float]:
    """The same with every value a number. Raises BadHyperparameter for the first that cannot be used."""
    numbers = {_name(name): _number(str(name), value) for name, value in given.items()}
    if numbers.get("fl_gamma"):
        raise BadHyperparameter(f"fl_gamma is {_shown(given['fl_gamma'])}: there is no focal loss", "set it to 0")
    return numbers


def _name(name: object) -> str:
    known = (*RANGES, *WITHOUT_EFFECT)
    if name in known:
        return str(name)
    near = difflib.get_close_matches(str(name)[:80], known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(sorted(RANGES))
    raise BadHyperparameter(f"unknown hyper-parameter {reprlib.repr(name)}", hint)


def _number(name: str, value: object) -> float:
    low, high = RANGES.get(name, _ANY)
    bound = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of at least {low:g}" if low == 0 else ""
    if isinstance(value, str) and _EXPONENT.fullmatch(value):  # YAML reads 1e-3, without a point, as text
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _fits(value, low, high):
        raise BadHyperparameter(f"{name} is {_shown(value)}: expected a number {bound}".rstrip(), "correct the value")
    return value


def _fits(value: float, low: float, high: float) -> bool:
    try:
        return math.isfinite(value) and low <= value <= high
    except OverflowError:  # a whole number beyond every float
        return False


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # a whole number with more digits than Python prints
        return "a number of thousands of digits"
