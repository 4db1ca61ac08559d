"""The training loss: class BCE, CIoU and distribution focal loss on task-aligned positives, for both heads.

Owns gains and normalisation. Knows nothing of models' insides, optimisers or data. Shape symbols: B batch, P cells, K
classes, A positives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from remote.yolov9.assigner import Targets, assign
from remote.yolov9.blocks import BINS, Prediction
from remote.yolov9.boxes import Grid, ciou, decode

GAINS = (7.5, 0.5, 1.5)
"""Of the box, class and DFL terms."""
AUXILIARY_WEIGHT = 0.25


def at_least_one(total: Tensor) -> Tensor:
    """What the terms are divided by: the sum of soft targets, or 1."""
    return total.clamp(min=1)


class Weighing(NamedTuple):
    """How positives weigh in the class term, and what all terms are divided by."""

    positive: float = 1.0
    normaliser: Callable[[Tensor], Tensor] = at_least_one
    """From the sum of soft targets of this process."""


class Loss(NamedTuple):
    """What to minimise, and the main head's terms for the log."""

    total: Tensor
    """Scalar: gains x terms of both heads, times the batch size."""
    terms: Tensor
    """(3,), detached: box, class and DFL term of the main head, gains included."""


def detection_loss(
    main: Prediction, auxiliary: Prediction | None, targets: Targets, grid: Grid, weighing: Weighing | None = None
) -> Loss:
    """The loss of a batch; each head is assigned from its own predictions."""
    terms = head_terms(main, targets, grid, weighing)
    total = terms.sum()
    if auxiliary is not None:
        total = total + AUXILIARY_WEIGHT * head_terms(auxiliary, targets, grid, weighing).sum()
    return Loss(total * len(main.class_logits), terms.detach())


def head_terms(prediction: Prediction, targets: Targets, grid: Grid, weighing: Weighing | None = None) -> Tensor:
    """(3,): box, class and DFL term of one head, gains included, each over max(sum of soft targets, 1)."""
    positive_weight, normalise = weighing or Weighing()
    logits = prediction.class_logits.float()
    boxes = decode(prediction.distances, grid)
    positives = assign(logits.detach().sigmoid(), boxes.detach(), grid.centres, targets)
    image, cell, target, weight = positives
    normaliser = normalise(weight.sum())
    # BCE with logits x against soft target t is (1 - t) softplus(x) + p t softplus(-x), with softplus(-x) being
    # softplus(x) - x; and t is zero everywhere but at the positives.
    hit = logits[image, cell, targets.classes[target]]
    class_term = F.softplus(logits).sum() - (positive_weight * hit * weight).sum()
    if positive_weight != 1:
        class_term = class_term + (positive_weight - 1) * (F.softplus(hit) * weight).sum()
    goal = targets.boxes[target]  # (A, 4)
    box_term = ((1 - ciou(boxes[image, cell], goal)) * weight).sum()
    centres, strides = grid.centres[cell], grid.strides[cell]
    sides = torch.cat((centres - goal[:, :2], goal[:, 2:] - centres), -1) / strides
    dfl_term = (dfl_loss(prediction.box_logits[image, cell].float(), sides) * weight).sum()
    gains = logits.new_tensor(GAINS)
    return torch.stack((box_term, class_term, dfl_term)) * gains / normaliser


def dfl_loss(logits: Tensor, distances: Tensor) -> Tensor:
    """Cross entropy against the two bins beside each distance (arXiv 2006.04388), mean over the four sides.

    logits (A, 4 * BINS), distances (A, 4) in cells -> (A,).
    """
    distances = distances.clamp(0, BINS - 1 - 0.01)
    low = distances.floor().long()
    share = distances - low
    log_p = logits.view(-1, 4, BINS).log_softmax(-1)
    near = log_p.gather(-1, low[..., None])[..., 0]
    far = log_p.gather(-1, low[..., None] + 1)[..., 0]
    return -(near * (1 - share) + far * share).mean(-1)
