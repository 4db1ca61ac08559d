"""Model files as the reference has them: which known variant a list of layers is. Absent files count by their name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from remote.yolov9.config import ConfigError
from remote.yolov9.variants import VARIANTS, Layer, Variant, absolute

_KINDS = {
    "Conv": "conv",
    "AConv": "aconv",
    "ADown": "adown",
    "ELAN1": "elan",
    "RepNCSPELAN4": "elan",
    "SPPELAN": "sppelan",
    "CBLinear": "cblinear",
    "CBFuse": "cbfuse",
    "Silence": "silence",
    "nn.Upsample": "upsample",
    "Concat": "concat",
}
_HEADS = ("DDetect", "DualDDetect")
_Row = tuple[str, tuple[int, ...], tuple[int, ...]]
"""Kind, numbers and sources of a layer, the sources as indices."""


def variant_of(cfg: str) -> str:
    """Name of the variant that a model file describes, or that it is called after where there is no such file.

    Raises ConfigError that says what is unknown about it.
    """
    path = Path(cfg)
    if path.is_file():
        return _recognise(path)
    if path.stem in VARIANTS:
        return path.stem
    raise ConfigError(f"cfg is {cfg!r}: no such file, and none of {', '.join(VARIANTS)}")


def _recognise(path: Path) -> str:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        layers: list[Any] = [*raw["backbone"], *raw["head"]]
        rows = [_row(index, row) for index, row in enumerate(layers[:-1])]
        head = layers[-1]
        module, levels = str(head[2]), tuple(int(level) for level in head[0])
        scales = [float(raw.get(key, 1)) for key in ("depth_multiple", "width_multiple")]
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path}: not a model file with backbone and head ({type(error).__name__}: {error})"
        ) from error
    if module not in _HEADS:
        raise ConfigError(f"{path}: its head is a {module}, known are {' and '.join(_HEADS)}")
    if scales != [1, 1]:
        raise ConfigError(
            f"{path}: depth_multiple and width_multiple are {scales[0]:g} and {scales[1]:g}: both must be 1"
        )
    for variant in VARIANTS.values():
        if rows == _rows(variant) and levels == (*variant.auxiliary, *variant.main):
            return variant.name
    raise ConfigError(f"{path}: {_difference(rows, levels)}; known are {', '.join(VARIANTS)}")


def _row(index: int, row: Sequence[Any]) -> _Row:
    source, repeats, module, arguments = row
    kind = _KINDS.get(str(module))
    if kind is None or repeats != 1:
        raise ValueError(f"layer {index} is {repeats} x {module}, which no known variant has")
    sources = (source,) if isinstance(source, int) else tuple(int(one) for one in source)
    layer = Layer(kind, _numbers(str(module), arguments), sources)
    return kind, layer.numbers, absolute(layer, index)


def _numbers(module: str, arguments: Sequence[Any]) -> tuple[int, ...]:
    if module in ("nn.Upsample", "Concat", "Silence"):
        return ()
    flat = arguments[0] if module in ("CBLinear", "CBFuse") else arguments
    numbers = tuple(int(number) for number in flat)
    return (*numbers, 0) if module == "ELAN1" else numbers


def _rows(variant: Variant) -> list[_Row]:
    return [(layer.kind, layer.numbers, absolute(layer, i)) for i, layer in enumerate(variant.layers)]


def _difference(rows: list[_Row], levels: tuple[int, ...]) -> str:
    """Where the layers leave the variant that they follow longest."""

    def alike(variant: Variant) -> int:
        pairs = zip(rows, _rows(variant), strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(rows), len(variant.layers)))

    nearest = max(VARIANTS.values(), key=lambda variant: (alike(variant), len(variant.layers) == len(rows)))
    index = alike(nearest)
    if index == len(rows) == len(nearest.layers):
        return f"its head reads layers {list(levels)}, that of {nearest.name} {[*nearest.auxiliary, *nearest.main]}"
    return f"its layers are those of {nearest.name} up to layer {index}, which differs"
