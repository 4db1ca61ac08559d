"""Task-aligned assignment: which cells answer for which ground-truth box, and how strongly (TOOD, arXiv 2108.07755).

Owns the choice of positives. Knows nothing of heads or loss terms. Works on lists of (box, cell) pairs instead of
dense one-hots, so its memory follows the number of cells inside boxes. Shape symbols: B batch, P cells, K classes, N
ground-truth boxes of the batch, E candidate pairs, A positives.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from remote.yolov9.boxes import ciou


class Targets(NamedTuple):
    """Ground truth of a batch as one flat list, sorted by image."""

    image: Tensor
    """(N,), int64: index in the batch."""
    classes: Tensor
    """(N,), int64."""
    boxes: Tensor
    """(N, 4), float32, pixels."""

    def to(self, device: torch.device) -> Targets:
        """The same on another device."""
        return Targets(*(part.to(device, non_blocking=True) for part in self))


class Assignment(NamedTuple):
    """The positives; a cell occurs at most once."""

    image: Tensor
    """(A,), int64."""
    cell: Tensor
    """(A,), int64."""
    target: Tensor
    """(A,), int64: row of `Targets`."""
    weight: Tensor
    """(A,): soft target in 0..1, which also weighs the box terms."""


class Alignment(NamedTuple):
    """Parameters of the assigner: candidates a box, and the powers of score and CIoU in the metric."""

    topk: int = 10
    alpha: float = 0.5
    beta: float = 6.0


_EPS = 1e-9


@torch.no_grad()
def assign(
    scores: Tensor, boxes: Tensor, centres: Tensor, targets: Targets, alignment: Alignment | None = None
) -> Assignment:
    """Positives of a batch.

    scores (B, P, K) class probabilities, boxes (B, P, 4) decoded, centres (P, 2), all float32. For each box the
    `topk` cells inside it with the largest score^alpha x CIoU^beta; a cell claimed by several boxes goes to the box
    of its image with the highest CIoU. The soft target is the metric over the largest metric of the box, times the
    largest CIoU of the box.
    """
    rule = alignment or Alignment()
    target, cell = _inside(centres, targets.boxes)
    metric, _ = _metric(scores, boxes, targets, target, cell, rule)
    chosen = _best(metric, target, len(targets.boxes), rule.topk)
    target, cell = _one_box_per_cell(boxes, targets, target[chosen], cell[chosen])
    metric, overlap = _metric(scores, boxes, targets, target, cell, rule)
    largest_metric = _largest(metric, target, len(targets.boxes))
    largest_overlap = _largest(overlap, target, len(targets.boxes))
    weight = metric / (largest_metric + _EPS)[target] * largest_overlap[target]
    return Assignment(targets.image[target], cell, target, weight)


def _inside(centres: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs (box, cell) whose centre lies inside, ordered by box: two (E,)."""
    x, y = centres[:, 0], centres[:, 1]
    x1, y1, x2, y2 = (side[:, None] for side in boxes.unbind(-1))
    inside = (x > x1 + _EPS) & (x < x2 - _EPS) & (y > y1 + _EPS) & (y < y2 - _EPS)  # (N, P)
    target, cell = inside.nonzero(as_tuple=True)
    return target, cell


def _metric(
    scores: Tensor, boxes: Tensor, targets: Targets, target: Tensor, cell: Tensor, rule: Alignment
) -> tuple[Tensor, Tensor]:
    """Alignment metric and clamped CIoU of the pairs: two (E,)."""
    image = targets.image[target]
    overlap = ciou(targets.boxes[target], boxes[image, cell]).clamp_(min=0)
    return scores[image, cell, targets.classes[target]] ** rule.alpha * overlap**rule.beta, overlap


def _best(metric: Tensor, target: Tensor, count: int, topk: int) -> Tensor:
    """Indices of the `topk` pairs of each target with the largest positive metric."""
    by_metric = metric.argsort(descending=True, stable=True)
    order = by_metric[target[by_metric].argsort(stable=True)]
    sizes = torch.bincount(target, minlength=count)
    starts = sizes.cumsum(0) - sizes
    rank = torch.arange(len(order), device=order.device) - starts[target[order]]
    return order[(rank < topk) & (metric[order] > 0)]


def _one_box_per_cell(boxes: Tensor, targets: Targets, target: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Give each cell that several boxes claim to the box of its image with the highest CIoU, claimant or not."""
    cells = boxes.shape[1]
    key = targets.image[target] * cells + cell
    keys, position, claims = torch.unique(key, return_inverse=True, return_counts=True)
    contested = keys[claims > 1]
    if not len(contested):
        return target, cell
    settled = _highest_overlap(boxes, targets, contested // cells, contested % cells)
    single = claims[position] == 1
    return torch.cat((target[single], settled)), torch.cat((cell[single], contested % cells))


def _highest_overlap(boxes: Tensor, targets: Targets, image: Tensor, cell: Tensor) -> Tensor:
    """For each of U cells the row of the best box in its image: (U,)."""
    sizes = torch.bincount(targets.image, minlength=boxes.shape[0])
    starts = sizes.cumsum(0) - sizes
    slot = torch.arange(int(sizes.max()), device=cell.device)
    valid = slot < sizes[image][:, None]  # (U, most boxes in an image)
    row = torch.where(valid, starts[image][:, None] + slot, 0)
    overlap = ciou(targets.boxes[row], boxes[image, cell][:, None]).masked_fill(~valid, -torch.inf)
    return row.gather(1, overlap.argmax(1, keepdim=True))[:, 0]


def _largest(values: Tensor, target: Tensor, count: int) -> Tensor:
    """The largest value of each target, 0 where it has none: (N,)."""
    return values.new_zeros(count).scatter_reduce(0, target, values, "amax")
