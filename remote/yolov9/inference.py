"""The inference form of a detector: auxiliary branch dropped, RepConv and norms folded into plain convolutions.

Owns what a training form becomes once training is over, and its cost. The folded form gives the same boxes but for
rounding: norms in evaluation mode and parallel linear branches are one linear map (RepVGG, arXiv 2101.03697).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from remote.yolov9.blocks import Conv, RepConv
from remote.yolov9.model import Detector
from remote.yolov9.variants import Variant, main_layers, without_auxiliary

Net = TypeVar("Net", bound=nn.Module)
_MAIN_BRANCHES = {"cv4": "cv2", "cv5": "cv3", "dfl2": "dfl"}
"""Names in a dual head, and what the same parts are called in a single one."""


class Folded(nn.Module):
    """One convolution with bias in the place of convolutions and their norms: the same function, fewer steps."""

    def __init__(self, conv: nn.Conv2d, act: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        """(B, c_in, H, W) -> (B, c_out, H / s, W / s)."""
        result: Tensor = self.act(self.conv(x))
        return result


def inference_form(model: Detector) -> Detector:
    """A converted and folded copy in evaluation mode, on the model's device; the model stays as it is."""
    return fold(convert(model))


def convert(model: Detector) -> Detector:
    """The gelan form of a training form: a copy with the main branch alone. A gelan form is copied as it is."""
    variant = without_auxiliary(model.variant) if model.variant.auxiliary else model.variant
    # Random states stay: converting between two epochs must not change what the next one draws.
    with torch.random.fork_rng(devices=[]):
        made = Detector(variant, model.classes, model.class_width)
    made.load_state_dict(main_state(model))
    first = next(model.parameters())
    return made.to(first.device, first.dtype).eval()


def main_state(model: Detector) -> dict[str, Tensor]:
    """The state of the main branch, by the names that it has in the gelan form."""
    state = model.state_dict()
    return {name: state[old] for old, name in main_names(model.variant, state).items()}


def main_names(variant: Variant, names: Iterable[str]) -> dict[str, str]:
    """What the tensors of the main branch are called in a variant, and in its gelan form; in order, others left out."""
    if not variant.auxiliary:
        return {name: name for name in names}
    kept, head = main_layers(variant), len(variant.layers)
    position = {old: new for new, old in enumerate((*kept, head))}
    renamed = {}
    for name in names:
        _, index, rest = name.split(".", 2)
        if int(index) == head:
            part, _, tail = rest.partition(".")
            if part not in _MAIN_BRANCHES:
                continue
            rest = f"{_MAIN_BRANCHES[part]}.{tail}"
        if int(index) in position:
            renamed[name] = f"layers.{position[int(index)]}.{rest}"
    return renamed


def fold(model: Net) -> Net:
    """Fold in place: each Conv and RepConv becomes one convolution. The model is returned, in evaluation mode."""
    model.eval()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, RepConv):
                setattr(module, name, Folded(_folded_pair(child), nn.SiLU()))
            elif isinstance(child, Conv):
                setattr(module, name, Folded(_with_norm(child), child.act))
    return model


@torch.no_grad()
def _with_norm(block: Conv) -> nn.Conv2d:
    """y = g (W x - m) / s + b as one convolution: W g / s, and b - g m / s."""
    conv, norm = block.conv, block.bn
    assert norm.running_mean is not None  # noqa: S101 - all norms here keep statistics
    assert norm.running_var is not None  # noqa: S101
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return _plain(conv, conv.weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale)


@torch.no_grad()
def _folded_pair(block: RepConv) -> nn.Conv2d:
    """The sum of a 3 x 3 and a 1 x 1 convolution: the latter is the middle of a 3 x 3."""
    wide, narrow = _with_norm(block.conv1), _with_norm(block.conv2)
    assert wide.bias is not None  # noqa: S101 - both have just been given one
    assert narrow.bias is not None  # noqa: S101
    return _plain(wide, wide.weight + F.pad(narrow.weight, (1, 1, 1, 1)), wide.bias + narrow.bias)


def _plain(like: nn.Conv2d, weight: Tensor, bias: Tensor) -> nn.Conv2d:
    made = nn.utils.skip_init(  # type: ignore[no-untyped-call]
        nn.Conv2d, like.in_channels, like.out_channels, like.kernel_size, like.stride, like.padding, groups=like.groups
    )
    made.weight, made.bias = nn.Parameter(weight), nn.Parameter(bias)
    return cast(nn.Conv2d, made)


def gflops(model: Detector, size: int = 640) -> float:
    """Billions of operations of one forward pass over a `size` x `size` picture; a multiply-add is two.

    Convolutions only, as counted by torch; in the model's present mode, so that a training form in training mode counts
    its auxiliary branch.
    """
    first = next(model.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, size, size, device=first.device, dtype=first.dtype))
    return float(counter.get_total_flops()) / 1e9
