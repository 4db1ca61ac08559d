"""What the trainer really stores against what plans and budgets take it for."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the trainer: pip install 'gpucost[train]'")

import torch

from pricing.extras import BEST_BYTES, CHECKPOINT_BYTES, PART_BYTES
from pricing.models import MODELS
from remote.transfer import s3
from remote.yolov9 import checkpoint
from remote.yolov9.model import build
from remote.yolov9.optim import Ema

NAME = "yolov9-t"


@pytest.mark.parametrize(
    ("optimizer", "least"),
    [
        pytest.param(lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9), 14.0, id="SGD"),
        pytest.param(lambda weights: torch.optim.AdamW(weights, lr=0.01), 18.0, id="AdamW"),
    ],
)
def test_a_checkpoint_is_no_larger_than_planned(tmp_path, optimizer, least):
    """Of the smallest detector, where names and shapes weigh the most; 80 classes."""
    model = build(NAME, 80)
    chosen = optimizer(list(model.parameters()))
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    chosen.step()
    ema = Ema(model, 0.9999, 2000)
    best = checkpoint.half(ema.model.state_dict())
    state = {
        "model": model.state_dict(),
        "ema": ema.state_dict(),
        "optimizer": chosen.state_dict(),
        "best_weights": best,
        "random": checkpoint.random_state(),
    }
    assert least < stored(tmp_path / "last.pt", state) <= CHECKPOINT_BYTES
    assert 2.0 < stored(tmp_path / "best.pt", {"weights": best}) <= BEST_BYTES


def stored(path, state):
    """Bytes per parameter of a file."""
    checkpoint.save(path, state)
    return path.stat().st_size / MODELS[NAME].parameters


def test_large_objects_go_in_parts_of_the_size_that_is_charged():
    assert s3.PART_BYTES == PART_BYTES
