"""Weights to begin with: read from a checkpoint of this trainer or of the reference, and copied where they fit.

Owns which variant a list of tensors is, and what a detector of other classes can take from it. Tensors of foreign files
are told by their order and shapes alone; `foreign` reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from remote.yolov9 import checkpoint
from remote.yolov9.blocks import BINS
from remote.yolov9.checkpoint import CheckpointError
from remote.yolov9.foreign import Foreign, read_foreign
from remote.yolov9.inference import main_names
from remote.yolov9.model import Detector, build
from remote.yolov9.variants import VARIANTS

log = logging.getLogger("yolov9")

LICENCE = (
    "weights of another trainer: those of the reference's authors come under GPL-3.0;"
    " make sure that this allows what you do with them, and with weights trained from them"
)
_FOREIGN_SIZE = 640
"""Pixels, where a foreign file does not say: what the published weights were trained on."""


@dataclass(frozen=True, slots=True)
class Pretrained:
    """The weights of a detector, by the names of its variant's tensors."""

    model: str
    """Name of the variant."""
    names: tuple[str, ...]
    """Of the classes."""
    image_size: int
    state: Mapping[str, Tensor]

    @property
    def class_width(self) -> int:
        """Hidden width of the class branches: it can be other than what goes with the number of classes."""
        return _class_width(self.state.values())

    def build(self) -> Detector:
        """The detector that has these weights. Raises RuntimeError where they are not those of its variant."""
        made = build(self.model, len(self.names), self.class_width)
        made.load_state_dict(self.state)
        return made


@dataclass(frozen=True, slots=True)
class Transfer:
    """What became of the tensors of a detector."""

    copied: int
    fresh: tuple[str, ...]
    """Those that stay as they are, because the weights have none of that name and shape."""

    def __str__(self) -> str:
        layers = sorted({name.rsplit(".", 1)[0] for name in self.fresh})
        some = f": {', '.join(layers[:4])}{', ...' if len(layers) > 4 else ''}" if layers else ""
        return f"{self.copied} tensors copied, {len(self.fresh)} begin afresh{some}"


def read_pretrained(path: Path) -> Pretrained:
    """Read a best.pt or last.pt of this trainer, or a checkpoint of the reference.

    Raises CheckpointError, which names the file and what is wrong with it.
    """
    try:
        return _own(path, checkpoint.load(path))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file") from error
    except CheckpointError as error:
        try:
            foreign = read_foreign(path)
        except CheckpointError:
            raise error from None
    found = _recognised(path, foreign)
    log.warning("warning: %s: %s", path, LICENCE)
    return found


def transfer(model: Detector, weights: Pretrained) -> Transfer:
    """Copy what has the same name and shape, in place; between a yolov9 and its gelan form too, whose names differ.

    Raises CheckpointError where the weights are those of another variant.
    """
    theirs = _their_names(model, weights)
    fresh = []
    mine = model.state_dict()
    with torch.no_grad():
        for name, tensor in mine.items():
            given = weights.state.get(theirs.get(name, ""))
            if given is None or given.shape != tensor.shape:
                fresh.append(name)
            else:
                tensor.copy_(given)
    return Transfer(len(mine) - len(fresh), tuple(fresh))


def _their_names(model: Detector, weights: Pretrained) -> Mapping[str, str]:
    """For tensors of the model the name of the same tensor among the weights."""
    mine, theirs = model.variant, VARIANTS[weights.model]
    if mine.name == theirs.name:
        return {name: name for name in weights.state}
    if mine.name.partition("-")[2] != theirs.name.partition("-")[2]:
        raise CheckpointError(f"the weights are those of a {theirs.name}, the model is a {mine.name}")
    if mine.auxiliary:
        return main_names(mine, model.state_dict())
    return {new: old for old, new in main_names(theirs, weights.state).items()}


def _own(path: Path, state: checkpoint.State) -> Pretrained:
    try:
        about = state.get("run", state)
        weights = state["ema"]["model"] if "run" in state else state["weights"]
        names = tuple(str(name) for name in about["names"])
        found = Pretrained(str(about["model"]), names, int(about["image_size"]), weights)
        with torch.device("meta"):
            expected = build(found.model, len(names), found.class_width).state_dict()
        if {name: slot.shape for name, slot in expected.items()} != {name: t.shape for name, t in weights.items()}:
            raise ValueError(f"its tensors are not those of a {found.model}")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        said = str(error).splitlines()[0]
        raise CheckpointError(f"{path}: no weights of this trainer ({type(error).__name__}: {said})") from error
    return found


def _recognised(path: Path, found: Foreign) -> Pretrained:
    """Raises CheckpointError where no variant has such tensors."""
    tensors = [tensor for tensor in found.tensors if not _is_projection(tensor)]
    try:
        classes, width = len([tensor for tensor in tensors if tensor.ndim == 1][-1]), _class_width(tensors)
    except IndexError:
        raise CheckpointError(f"{path}: there are no convolutions in it") from None
    for name in VARIANTS:
        with torch.device("meta"):
            slots = build(name, classes, width).state_dict()
        expected = [key for key, slot in slots.items() if not _is_projection(slot)]
        if [slots[key].shape for key in expected] == [tensor.shape for tensor in tensors]:
            mapped = dict(zip(expected, tensors, strict=True))
            state = {key: mapped[key] if key in mapped else _projection() for key in slots}
            names = found.names if len(found.names) == classes else tuple(map(str, range(classes)))
            return Pretrained(name, names, found.image_size or _FOREIGN_SIZE, state)
    raise CheckpointError(f"{path}: its {len(found.tensors)} tensors are not those of any of {', '.join(VARIANTS)}")


def _class_width(tensors: Iterable[Tensor]) -> int:
    """Inputs of the last convolution, which is one of the class branches. Raises IndexError without one."""
    return [tensor for tensor in tensors if tensor.ndim == 4 and not _is_projection(tensor)][-1].shape[1]


def _is_projection(tensor: Tensor) -> bool:
    return tensor.shape == (1, BINS, 1, 1)


def _projection() -> Tensor:
    """What the DFL layers multiply by: it is the same in all files, and some hold it at another place."""
    return torch.arange(BINS, dtype=torch.float32).view(1, BINS, 1, 1)
