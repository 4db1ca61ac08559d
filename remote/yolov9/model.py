"""Assembly of a variant into a module: layers by index, the head, and which layers a forward pass needs.

Owns state-dict names (`layers.INDEX...`, in the order of the reference's layer tables). Knows nothing of losses or
data.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from remote.yolov9 import blocks
from remote.yolov9.blocks import Prediction
from remote.yolov9.boxes import Detections, Grid, NmsLimits, decode, make_grid, nms
from remote.yolov9.variants import STRIDES, VARIANTS, Layer, Variant, absolute, needed


class Outputs(NamedTuple):
    """Predictions of the main head and, in training, of the auxiliary head."""

    main: Prediction
    auxiliary: Prediction | None


class Detector(nn.Module):
    """A YOLOv9 or GELAN detector. Input (B, 3, H, W) in 0..1, H and W multiples of 32.

    `class_width` is the least width of the class branches' hidden layers; none: as many as go with the classes. Where
    weights of other classes are built on, it is theirs.
    """

    def __init__(self, variant: Variant, classes: int, class_width: int | None = None) -> None:
        super().__init__()
        self.variant = variant
        self.classes = classes
        self.class_width = class_width
        body, widths = _body(variant.layers)
        heads = [[cast(int, widths[i]) for i in levels] for levels in (variant.auxiliary, variant.main) if levels]
        self.layers = nn.ModuleList([*body, blocks.Head(classes, heads, class_width)])
        self.head.initialise_biases(STRIDES)
        self._sources = [absolute(layer, i) for i, layer in enumerate(variant.layers)]
        self._needed = needed(variant.layers, variant.main)
        self._grids: dict[tuple[int, int, torch.device], Grid] = {}
        self._frozen: tuple[nn.Module, ...] = ()

    @property
    def head(self) -> blocks.Head:
        """The last layer."""
        return cast(blocks.Head, self.layers[-1])

    def forward(self, images: Tensor) -> Outputs:
        """Training mode runs everything; evaluation mode leaves out whatever only the auxiliary head needs."""
        everything = self.training and self.variant.auxiliary
        outputs: list[Any] = []
        for index, sources in enumerate(self._sources):
            if everything or index in self._needed:
                outputs.append(_apply(self.layers[index], [images if s < 0 else outputs[s] for s in sources]))
            else:
                outputs.append(None)
        read = (*self.variant.auxiliary, *self.variant.main) if everything else self.variant.main
        return Outputs(*self.head([outputs[i] for i in read]))

    def freeze(self, layers: Iterable[int]) -> None:
        """Keep weights and norm statistics of these layers as they are. Raises IndexError for one that is not there."""
        self._frozen = tuple(self.layers[index] for index in layers)
        for layer in self._frozen:
            layer.requires_grad_(requires_grad=False)
        self.train(self.training)

    def train(self, mode: bool = True) -> Detector:
        """As torch does, but for frozen layers, which stay in evaluation mode."""
        super().train(mode)
        for layer in self._frozen:
            layer.eval()
        return self

    def grid(self, height: int, width: int, device: torch.device) -> Grid:
        """Cells of an input of that size, made once."""
        key = (height, width, device)
        if key not in self._grids:
            self._grids[key] = make_grid(height, width, STRIDES, device)
        return self._grids[key]

    @torch.no_grad()
    def detect(self, images: Tensor, limits: NmsLimits | None = None) -> Detections:
        """Boxes of a batch in pixels of the input, after suppression. The model must be in evaluation mode."""
        prediction = self(images).main
        grid = self.grid(images.shape[2], images.shape[3], images.device)
        boxes = decode(prediction.distances, grid)
        return nms(boxes, prediction.class_logits.float().sigmoid(), limits or NmsLimits())


def build(name: str, nc: int, class_width: int | None = None) -> Detector:
    """A fresh detector for `nc` classes. Raises ValueError for an unknown name, with the nearest known one."""
    if name not in VARIANTS:
        near = difflib.get_close_matches(name, VARIANTS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(VARIANTS)}"
        raise ValueError(f"unknown model {name!r}{hint}")
    if nc < 1:
        raise ValueError(f"a detector needs at least one class, not {nc}")
    return Detector(VARIANTS[name], nc, class_width)


def _apply(layer: nn.Module, inputs: list[Any]) -> Any:  # noqa: ANN401 - a tensor, or a tuple of them from CBLinear
    if isinstance(layer, blocks.CBFuse):
        return layer(inputs[:-1], inputs[-1])
    if isinstance(layer, _Concat):
        return layer(inputs)
    return layer(inputs[0])


class _Concat(nn.Module):
    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(inputs), 1)


_Width = int | tuple[int, ...]


def _body(layers: Sequence[Layer]) -> tuple[list[nn.Module], list[_Width]]:
    """The modules of a table and the output width of each (of each part, after a CBLinear)."""
    modules: list[nn.Module] = []
    widths: list[_Width] = []
    for index, layer in enumerate(layers):
        inputs = [3 if s < 0 else widths[s] for s in absolute(layer, index)]
        module, width = _make(layer, inputs)
        modules.append(module)
        widths.append(width)
    return modules, widths


def _make(layer: Layer, inputs: list[_Width]) -> tuple[nn.Module, _Width]:
    numbers = layer.numbers
    if layer.kind == "cblinear":
        return blocks.CBLinear(cast(int, inputs[0]), numbers), numbers
    if layer.kind == "cbfuse":
        return blocks.CBFuse(numbers), inputs[-1]
    plain = [cast(int, width) for width in inputs]
    if layer.kind in ("silence", "upsample", "concat"):
        return _PASSIVE[layer.kind](), sum(plain)
    out = blocks.round_up(numbers[0], 8)
    return _ACTIVE[layer.kind](plain[0], out, *numbers[1:]), out


_PASSIVE: dict[str, Any] = {
    "silence": nn.Identity,
    "upsample": lambda: nn.Upsample(scale_factor=2, mode="nearest"),
    "concat": _Concat,
}
_ACTIVE: dict[str, Any] = {
    "conv": blocks.Conv,
    "aconv": blocks.AConv,
    "adown": blocks.ADown,
    "elan": blocks.Elan,
    "sppelan": blocks.SPPELAN,
}
