"""A trained detector from its best.pt, ready to be used: inference form, names, image size.

Owns what is needed to use weights. Knows nothing of trainings. Reading needs no trust: see `checkpoint`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from remote.yolov9 import checkpoint
from remote.yolov9.checkpoint import CheckpointError
from remote.yolov9.inference import inference_form
from remote.yolov9.model import Detector, build


@dataclass(frozen=True, slots=True)
class Trained:
    """A detector in its inference form, on its device."""

    model: Detector
    names: tuple[str, ...]
    """Of its classes, by number."""
    image_size: int
    """Longer side of the pictures that it was trained on, in pixels."""


def load_trained(path: Path, device: torch.device) -> Trained:
    """Read a best.pt of this trainer. Raises CheckpointError, which names the file and what is wrong with it."""
    try:
        state = checkpoint.load(path)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file") from error
    try:
        names = tuple(str(name) for name in state["names"])
        model = build(str(state["model"]), len(names))
        model.load_state_dict(state["weights"])
        size = int(state["image_size"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        said = str(error).splitlines()[0]
        raise CheckpointError(f"{path}: no best.pt of this trainer ({type(error).__name__}: {said})") from error
    return Trained(inference_form(model.to(device)), names, size)
