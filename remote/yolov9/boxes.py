"""Box geometry: cell centres, decoding, IoU, CIoU and non-maximum suppression.

Owns every formula on boxes. Knows nothing of models, labels or losses. Boxes are (x1, y1, x2, y2) in pixels unless
said otherwise. Shape symbols: B batch, P cells, N and M boxes, K candidates an image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

EPS = 1e-7


class Grid(NamedTuple):
    """The cells of all levels of one input size, levels one after the other, row by row."""

    centres: Tensor
    """(P, 2): x, y in pixels."""
    strides: Tensor
    """(P, 1): pixels a cell."""


def make_grid(height: int, width: int, strides: Sequence[int], device: torch.device | None = None) -> Grid:
    """The cells of an input of `height` x `width` pixels, both multiples of the largest stride."""
    centres, sizes = [], []
    for stride in strides:
        rows, columns = height // stride, width // stride
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        centres.append((torch.stack((x, y), -1).reshape(-1, 2) + 0.5) * stride)
        sizes.append(torch.full((rows * columns, 1), float(stride)))
    return Grid(torch.cat(centres).to(device), torch.cat(sizes).to(device))


def decode(distances: Tensor, grid: Grid) -> Tensor:
    """Distances in cells (B, P, 4) of left, top, right, bottom -> boxes in pixels (B, P, 4)."""
    pixels = distances * grid.strides
    return torch.cat((grid.centres - pixels[..., :2], grid.centres + pixels[..., 2:]), -1)


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """IoU of each box of `a` (..., N, 4) with each of `b` (..., M, 4) -> (..., N, M)."""
    low = torch.maximum(a[..., :, None, :2], b[..., None, :, :2])
    high = torch.minimum(a[..., :, None, 2:], b[..., None, :, 2:])
    overlap = (high - low).clamp_(min=0).prod(-1)
    area_a = (a[..., 2:] - a[..., :2]).prod(-1)
    area_b = (b[..., 2:] - b[..., :2]).prod(-1)
    return overlap / (area_a[..., :, None] + area_b[..., None, :] - overlap + EPS)


def ciou(a: Tensor, b: Tensor) -> Tensor:
    """Complete IoU of pairs, (..., 4) and (..., 4) broadcast -> (...). Zheng et al. 2020, arXiv 1911.08287.

    IoU less the squared centre distance over the squared diagonal of the hull, less the aspect term, whose weight has
    no gradient.
    """
    ax1, ay1, ax2, ay2 = a.unbind(-1)
    bx1, by1, bx2, by2 = b.unbind(-1)
    aw, ah, bw, bh = ax2 - ax1, ay2 - ay1 + EPS, bx2 - bx1, by2 - by1 + EPS
    overlap = (torch.minimum(ax2, bx2) - torch.maximum(ax1, bx1)).clamp(min=0) * (
        torch.minimum(ay2, by2) - torch.maximum(ay1, by1)
    ).clamp(min=0)
    iou = overlap / (aw * ah + bw * bh - overlap + EPS)
    hull_w = torch.maximum(ax2, bx2) - torch.minimum(ax1, bx1)
    hull_h = torch.maximum(ay2, by2) - torch.minimum(ay1, by1)
    diagonal = hull_w**2 + hull_h**2 + EPS
    distance = ((bx1 + bx2 - ax1 - ax2) ** 2 + (by1 + by2 - ay1 - ay2) ** 2) / 4
    aspect = (4 / math.pi**2) * (torch.atan(bw / bh) - torch.atan(aw / ah)) ** 2
    with torch.no_grad():
        weight = aspect / (aspect - iou + (1 + EPS))
    return iou - (distance / diagonal + aspect * weight)


class Detections(NamedTuple):
    """The surviving boxes of a batch, by descending score, padded with score 0."""

    boxes: Tensor
    """(B, D, 4)."""
    scores: Tensor
    """(B, D); 0 marks padding."""
    classes: Tensor
    """(B, D), int64."""


class NmsLimits(NamedTuple):
    """Thresholds of the suppression. The defaults are those of validation."""

    score: float = 0.001
    iou: float = 0.7
    candidates: int = 4096
    """Candidates an image that enter, by score."""
    detections: int = 300
    """Boxes an image that come out."""


_CLASS_OFFSET = 7680.0
_BLOCK = 256


def nms(boxes: Tensor, scores: Tensor, limits: NmsLimits) -> Detections:
    """Greedy suppression per class of all images at once.

    boxes (B, P, 4), scores (B, P, C) of each class; a cell may give several classes. Blocks of candidates are taken
    in order of score: each is first compared with what was kept, then with itself, so that work stops when enough is
    kept.
    """
    top, classes, chosen = _candidates(boxes, scores, limits)
    shifted = chosen + classes[..., None] * _CLASS_OFFSET
    kept = torch.zeros_like(top, dtype=torch.bool)
    survivors = shifted.new_zeros(len(shifted), limits.detections, 4)
    count = kept.new_zeros(len(kept), dtype=torch.long)
    for start in range(0, top.shape[1], _BLOCK):
        block = slice(start, start + _BLOCK)
        alive = (top[:, block] > limits.score) & (count < limits.detections)[:, None]
        if not alive.any():
            break
        alive &= ~(box_iou(shifted[:, block], survivors) > limits.iou).any(-1)
        kept[:, block] = _greedy(shifted[:, block], alive, limits.iou)
        kept[:, block] &= count[:, None] + kept[:, block].cumsum(1) <= limits.detections
        image, row = kept[:, block].nonzero(as_tuple=True)
        slot = (count[:, None] + kept[:, block].cumsum(1) - 1)[image, row]
        survivors[image, slot] = shifted[:, block][image, row]
        count = count + kept[:, block].sum(1)
    return _compact(chosen, top, classes, kept)


def _candidates(boxes: Tensor, scores: Tensor, limits: NmsLimits) -> tuple[Tensor, Tensor, Tensor]:
    """The best (cell, class) pairs of each image by score: scores (B, K), classes (B, K), boxes (B, K, 4)."""
    flat = scores.flatten(1)
    most = int((flat > limits.score).sum(1).max()) if flat.numel() else 0
    top, index = flat.topk(min(most, limits.candidates), dim=1)
    cell = index // scores.shape[2]
    chosen = boxes.gather(1, cell[..., None].expand(-1, -1, 4))
    return top, index % scores.shape[2], chosen


def _greedy(boxes: Tensor, alive: Tensor, iou: float) -> Tensor:
    """Greedy suppression inside one block, boxes (B, S, 4) by descending score -> kept (B, S).

    A box is kept when no kept box before it overlaps it: iterating that rule settles from the front, at least one box
    a round.
    """
    beats = (box_iou(boxes, boxes) > iou).triu(1) & alive[:, :, None]  # (B, S, S): row suppresses column
    kept = alive
    while True:
        after = alive & ~(beats & kept[:, :, None]).any(1)
        if torch.equal(after, kept):
            return kept
        kept = after


def _compact(boxes: Tensor, scores: Tensor, classes: Tensor, kept: Tensor) -> Detections:
    """Move the kept rows to the front, cut to the fullest image."""
    most = int(kept.sum(1).max()) if kept.numel() else 0
    order = kept.int().argsort(dim=1, descending=True, stable=True)[:, :most]
    return Detections(
        boxes.gather(1, order[..., None].expand(-1, -1, 4)),
        (scores * kept).gather(1, order),
        classes.gather(1, order),
    )
