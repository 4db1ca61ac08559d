"""Layers of the YOLOv9 family: convolution blocks, CSP-ELAN blocks, down-sampling, reversible branch, detection head.

Owns the shapes and the order of parameters inside each block. Knows nothing of variants, layer indices, losses or data.
Shape symbols: B batch, C channels, H and W height and width, P cells of all levels, K classes.

The order in which sub-modules are registered is part of the format: reference checkpoints are matched by order and
shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BINS = 16
"""Distances of a box side are distributions over 0..15 cells."""

NORM_EPS = 1e-3
NORM_MOMENTUM = 0.03


def round_up(value: int, divisor: int) -> int:
    """The smallest multiple of `divisor` that is not below `value`."""
    return -(-value // divisor) * divisor


class Conv(nn.Module):
    """Convolution without bias, batch norm, SiLU; "same" padding: (B, c_in, H, W) -> (B, c_out, H / s, W / s)."""

    def __init__(
        self, c_in: int, c_out: int, kernel: int = 1, stride: int = 1, *, groups: int = 1, active: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(c_out, eps=NORM_EPS, momentum=NORM_MOMENTUM)
        # Not in place: autograd would clone the input of an in-place SiLU, which costs more than it saves.
        self.act: nn.Module = nn.SiLU() if active else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        return cast(Tensor, self.act(self.bn(self.conv(x))))


class RepConv(nn.Module):
    """SiLU of a 3 x 3 and a 1 x 1 branch, each with its norm; folds into one 3 x 3 convolution after training."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.conv1 = Conv(c_in, c_out, 3, active=False)
        self.conv2 = Conv(c_in, c_out, 1, active=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, c_in, H, W) -> (B, c_out, H, W)."""
        return F.silu(self.conv1(x) + self.conv2(x))


class RepNBottleneck(nn.Module):
    """x + Conv3x3(RepConv(x)), all widths equal."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cv1 = RepConv(width, width)
        self.cv2 = Conv(width, width, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(B, width, H, W) -> the same shape."""
        return cast(Tensor, x + self.cv2(self.cv1(x)))


class RepNCSP(nn.Module):
    """Two half-width paths, one through `depth` bottlenecks, joined by a 1 x 1 convolution."""

    def __init__(self, c_in: int, c_out: int, depth: int) -> None:
        super().__init__()
        half = c_out // 2
        self.cv1 = Conv(c_in, half)
        self.cv2 = Conv(c_in, half)
        self.cv3 = Conv(2 * half, c_out)
        self.m = nn.Sequential(*(RepNBottleneck(half) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, c_in, H, W) -> (B, c_out, H, W)."""
        return cast(Tensor, self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1)))


class Elan(nn.Module):
    """1 x 1 to `split` channels, two halves; two stages on the second half; 1 x 1 over all four parts.

    A stage is one 3 x 3 convolution (ELAN1), or with `depth` a RepNCSP before it (RepNCSPELAN4).
    """

    def __init__(self, c_in: int, c_out: int, split: int, width: int, depth: int = 0) -> None:
        super().__init__()
        self.cv1 = Conv(c_in, split)
        self.cv2 = _elan_stage(split // 2, width, depth)
        self.cv3 = _elan_stage(width, width, depth)
        self.cv4 = Conv(split + 2 * width, c_out)

    def forward(self, x: Tensor) -> Tensor:
        """(B, c_in, H, W) -> (B, c_out, H, W)."""
        first, second = self.cv1(x).chunk(2, 1)
        third = self.cv2(second)
        return cast(Tensor, self.cv4(torch.cat((first, second, third, self.cv3(third)), 1)))


def _elan_stage(c_in: int, width: int, depth: int) -> nn.Module:
    if not depth:
        return Conv(c_in, width, 3)
    return nn.Sequential(RepNCSP(c_in, width, depth), Conv(width, width, 3))


class AConv(nn.Module):
    """2 x 2 average at stride 1, then a 3 x 3 convolution at stride 2: halves the size."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.cv1 = Conv(c_in, c_out, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(B, c_in, H, W) -> (B, c_out, H / 2, W / 2)."""
        return cast(Tensor, self.cv1(F.avg_pool2d(x, 2, 1)))


class ADown(nn.Module):
    """2 x 2 average, then half of the channels by a strided convolution and half by max pooling: halves the size."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.cv1 = Conv(c_in // 2, c_out // 2, 3, 2)
        self.cv2 = Conv(c_in // 2, c_out // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, c_in, H, W) -> (B, c_out, H / 2, W / 2)."""
        first, second = F.avg_pool2d(x, 2, 1).chunk(2, 1)
        return torch.cat((self.cv1(first), self.cv2(F.max_pool2d(second, 3, 2, 1))), 1)


class SPPELAN(nn.Module):
    """A 1 x 1 convolution and three 5 x 5 max pools in a row, all four joined by a 1 x 1 convolution."""

    def __init__(self, c_in: int, c_out: int, hidden: int) -> None:
        super().__init__()
        self.cv1 = Conv(c_in, hidden)
        self.cv5 = Conv(4 * hidden, c_out)

    def forward(self, x: Tensor) -> Tensor:
        """(B, c_in, H, W) -> (B, c_out, H, W)."""
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return cast(Tensor, self.cv5(torch.cat(parts, 1)))


class CBLinear(nn.Module):
    """A plain 1 x 1 convolution whose output is split into parts of the given widths."""

    def __init__(self, c_in: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = list(widths)
        self.conv = nn.Conv2d(c_in, sum(widths), 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, c_in, H, W) -> one (B, width, H, W) for each width."""
        return tuple(self.conv(x).split(self.widths, 1))


class CBFuse(nn.Module):
    """Adds the picked part of each CBLinear source, resized to the last input, to that last input."""

    def __init__(self, picks: Sequence[int]) -> None:
        super().__init__()
        self.picks = list(picks)

    def forward(self, sources: Sequence[tuple[Tensor, ...]], x: Tensor) -> Tensor:
        """Parts of any size and x (B, C, H, W) -> (B, C, H, W)."""
        size = x.shape[-2:]
        for parts, pick in zip(sources, self.picks, strict=True):
            x = x + F.interpolate(parts[pick], size=size, mode="nearest")
        return x


class Dfl(nn.Module):
    """The expectation over the bins, kept as a frozen 1 x 1 convolution because checkpoints hold its 16 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(BINS, 1, 1, bias=False).requires_grad_(requires_grad=False)
        self.conv.weight.copy_(torch.arange(BINS, dtype=torch.float32).view(1, BINS, 1, 1))

    def forward(self, logits: Tensor) -> Tensor:
        """Box logits (B, P, 4 * BINS), side-major -> distances in cells (B, P, 4): left, top, right, bottom."""
        bins = self.conv.weight.flatten().float()
        return logits.float().view(*logits.shape[:-1], 4, BINS).softmax(-1) @ bins


class Prediction(NamedTuple):
    """What one head says of every cell; levels one after the other (P3, P4, P5), row by row."""

    box_logits: Tensor
    """(B, P, 4 * BINS)."""
    distances: Tensor
    """(B, P, 4): left, top, right, bottom in cells, float32."""
    class_logits: Tensor
    """(B, P, K)."""


class Head(nn.Module):
    """The detection head, single or dual: for each branch set a box and a class branch per level and one DFL layer.

    In a dual head the auxiliary set comes first and is called cv2, cv3, dfl; the main set is cv4, cv5, dfl2. In a
    single head the main set is cv2, cv3, dfl.
    """

    def __init__(self, classes: int, widths: Sequence[Sequence[int]], class_width: int | None = None) -> None:
        super().__init__()
        self.classes = classes
        self.cv2 = _box_branches(widths[0])
        self.cv3 = _class_branches(widths[0], classes, class_width)
        self.dfl = Dfl()
        self.dual = len(widths) == 2
        if self.dual:
            self.cv4 = _box_branches(widths[1])
            self.cv5 = _class_branches(widths[1], classes, class_width)
            self.dfl2 = Dfl()

    def forward(self, levels: Sequence[Tensor]) -> tuple[Prediction, Prediction | None]:
        """Main level maps, or auxiliary and main level maps of a dual head -> (main, auxiliary or None)."""
        if not self.dual:
            return _predict(levels, self.cv2, self.cv3, self.dfl), None
        main = _predict(levels[-3:], self.cv4, self.cv5, self.dfl2)
        return main, _predict(levels[:3], self.cv2, self.cv3, self.dfl) if len(levels) == 6 else None

    def initialise_biases(self, strides: Sequence[int]) -> None:
        """Box biases 1; class biases such that about five objects are expected in a 640-pixel picture."""
        pairs = [(self.cv2, self.cv3)] + ([(self.cv4, self.cv5)] if self.dual else [])
        for boxes, classes in pairs:
            for box, cls, stride in zip(boxes, classes, strides, strict=True):
                _set_bias(box, 1.0)
                _set_bias(cls, math.log(5 / self.classes / (640 / stride) ** 2))


def _set_bias(branch: nn.Module, value: float) -> None:
    last = cast(nn.Sequential, branch)[-1]
    nn.init.constant_(cast(Tensor, last.bias), value)


def _box_branches(widths: Sequence[int]) -> nn.ModuleList:
    """One branch a level; the hidden width follows from the first level alone."""
    hidden = round_up(max(widths[0] // 4, 64, 16), 4)
    return nn.ModuleList(
        nn.Sequential(
            Conv(width, hidden, 3), Conv(hidden, hidden, 3, groups=4), nn.Conv2d(hidden, 4 * BINS, 1, groups=4)
        )
        for width in widths
    )


def _class_branches(widths: Sequence[int], classes: int, class_width: int | None) -> nn.ModuleList:
    """One branch a level; the hidden width follows from the first level and the number of classes, or is given."""
    hidden = max(widths[0], min(2 * classes, 128) if class_width is None else class_width)
    return nn.ModuleList(
        nn.Sequential(Conv(width, hidden, 3), Conv(hidden, hidden, 3), nn.Conv2d(hidden, classes, 1))
        for width in widths
    )


def _predict(levels: Sequence[Tensor], boxes: nn.ModuleList, classes: nn.ModuleList, dfl: nn.Module) -> Prediction:
    box_logits = torch.cat([_cells(branch(x)) for branch, x in zip(boxes, levels, strict=True)], 1)
    class_logits = torch.cat([_cells(branch(x)) for branch, x in zip(classes, levels, strict=True)], 1)
    return Prediction(box_logits, dfl(box_logits), class_logits)


def _cells(level: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, H * W, C); a view when the memory format is channels_last."""
    return level.permute(0, 2, 3, 1).flatten(1, 2)
