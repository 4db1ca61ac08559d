"""A trained detector from its weights, ready to be used: inference form, names, image size.

Owns what is needed to use weights. Knows nothing of trainings. Reading needs no trust: see `pretrained`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from remote.yolov9.inference import inference_form
from remote.yolov9.model import Detector
from remote.yolov9.pretrained import read_pretrained


@dataclass(frozen=True, slots=True)
class Trained:
    """A detector in its inference form, on its device."""

    model: Detector
    names: tuple[str, ...]
    """Of its classes, by number."""
    image_size: int
    """Longer side of the pictures that it was trained on, in pixels."""


def load_trained(path: Path, device: torch.device) -> Trained:
    """Read a checkpoint of this trainer or of the reference. Raises CheckpointError: the file and what is wrong."""
    weights = read_pretrained(path)
    return Trained(inference_form(weights.build().to(device)), weights.names, weights.image_size)
