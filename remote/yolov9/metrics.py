"""Average precision as COCO defines it: greedy matching by score, 101 recall points, ten IoU thresholds.

Owns matching and integration; NumPy only. Shape symbols: B images, D detections an image, G ground truths an image,
T thresholds, N detections of all images, K classes, S confidences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)
RECALLS: Floats = np.linspace(0, 1, 101)
CONFIDENCES: Floats = np.linspace(0, 1, 1001)


@dataclass(frozen=True, slots=True)
class Matches:
    """What happened to the detections of some images."""

    hit: Bools
    """(N, T): matched a ground truth of its class at that threshold."""
    scores: Floats
    """(N,)."""
    classes: Ints
    """(N,)."""
    truths: Ints
    """(K,): ground truths of each class."""
    confusion: Ints | None = None
    """(K + 1, K + 1), as `confusion` has it; None where it was not counted."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The figures of one validation, means over the classes that have ground truth."""

    precision: float
    """At IoU 0.5 and the confidence with the best F1."""
    recall: float
    map50: float
    map50_95: float


@dataclass(frozen=True, slots=True)
class ClassScores:
    """The figures of one class that has ground truth."""

    cls: int
    truths: int
    scores: Scores
    """Precision and recall at the confidence that is best for all classes together."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Figures at IoU 0.5 of each class that has ground truth, by confidence and by recall; K of them."""

    classes: Ints
    """(K,)."""
    precision: Floats
    """(K, S): at each of `CONFIDENCES`, when everything below it is left out."""
    recall: Floats
    """(K, S)."""
    envelope: Floats
    """(K, 101): the best precision at each of `RECALLS` or beyond; its mean is the average precision."""

    @property
    def f1(self) -> Floats:
        """(K, S)."""
        result: Floats = 2 * self.precision * self.recall / np.maximum(self.precision + self.recall, 1e-12)
        return result


CONFUSED_SCORE, CONFUSED_IOU = 0.25, 0.45
"""What counts in a confusion matrix: detections of at least that score, over a truth by more than that IoU."""


def match(iou: Floats, valid: Bools) -> Bools:
    """Greedy matching at all thresholds.

    iou (B, D, G) with detections by descending score and 0 where classes differ or one side is padding; valid (B, D)
    -> hit (B, D, T). Each detection takes the free ground truth of the highest IoU at or above the threshold.
    """
    hit = np.zeros((*iou.shape[:2], len(THRESHOLDS)), bool)
    possible = valid & (iou.max(2, initial=0) >= THRESHOLDS[0])
    rows = np.argsort(~possible, axis=1, kind="stable")[:, : int(possible.sum(1).max(initial=0))]
    images = np.arange(len(iou))
    free = np.ones((len(iou), len(THRESHOLDS), iou.shape[2]), bool)
    # One step a rank, not a detection: a later detection depends on what earlier ones took.
    for rank in range(rows.shape[1]):
        row = rows[:, rank]
        overlap = np.where(free, iou[images, row][:, None, :], 0)  # (B, T, G)
        best = overlap.argmax(2)
        taken = (overlap.max(2) >= THRESHOLDS) & possible[images, row][:, None]
        hit[images, row] |= taken
        image, threshold = np.nonzero(taken)
        free[image, threshold, best[image, threshold]] = False
    return hit


def confusion(iou: Floats, detected: Ints, truths: Ints, classes: int) -> Ints:
    """How often each class (row) was detected where each class (column) is; the last of both is the background.

    iou (B, D, G) of all pairs whatever their classes; detected (B, D) and truths (B, G) with -1 for padding. Pairs are
    made by descending IoU, each detection and each truth in one of them at most.
    """
    image, row, column = _pairs(np.where((detected >= 0)[:, :, None] & (truths >= 0)[:, None, :], iou, 0))
    said, true = detected.copy(), truths.copy()
    result = np.zeros((classes + 1, classes + 1), np.int64)
    np.add.at(result, (said[image, row], true[image, column]), 1)
    said[image, row] = true[image, column] = -1
    result[:classes, classes] += np.bincount(said[said >= 0], minlength=classes)
    result[classes, :classes] += np.bincount(true[true >= 0], minlength=classes)
    return result


def _pairs(iou: Floats) -> tuple[Ints, Ints, Ints]:
    """Image, row and column of the greedy pairs: iou (B, D, G), not above the threshold: no pair."""
    left = np.where(iou > CONFUSED_IOU, iou, 0)
    found = [np.zeros((3, 0), np.int64)]
    # One step a round, not a pair: whatever is the best of its row and of its column is a greedy pair.
    while left.size and left.any():
        best = left.max(2) > 0  # (B, D)
        column = left.argmax(2)
        best &= np.take_along_axis(left.argmax(1), column, 1) == np.arange(left.shape[1])
        image, row = np.nonzero(best)
        found.append(np.stack((image, row, column[image, row])))
        left[image, row] = 0
        left[image, :, column[image, row]] = 0
    image, row, column = np.concatenate(found, 1)
    return image, row, column


def join(parts: Sequence[Matches]) -> Matches:
    """The matches of several batches as one; at least one part."""
    counted = [p.confusion for p in parts if p.confusion is not None]
    return Matches(
        np.concatenate([p.hit for p in parts]),
        np.concatenate([p.scores for p in parts]),
        np.concatenate([p.classes for p in parts]),
        np.sum([p.truths for p in parts], axis=0),
        np.sum(counted, axis=0) if counted else None,
    )


def score(matches: Matches) -> Scores:
    """Average precision and the best operating point, means over classes. No ground truth at all: zeros."""
    return mean_scores(score_classes(matches))


def mean_scores(classes: Sequence[ClassScores]) -> Scores:
    """The means over classes; zeros where there are none."""
    each = [found.scores for found in classes]
    if not each:
        return Scores(0.0, 0.0, 0.0, 0.0)
    precision, recall, map50, map50_95 = np.mean(
        [(s.precision, s.recall, s.map50, s.map50_95) for s in each], 0
    ).tolist()
    return Scores(precision, recall, map50, map50_95)


def score_classes(matches: Matches) -> list[ClassScores]:
    """The same for each class that has ground truth."""
    found = curves(matches)
    if not len(found.classes):
        return []
    order = np.argsort(-matches.scores, kind="stable")
    hit, classes = matches.hit[order], matches.classes[order]
    ap = np.stack([average_precision(hit[classes == cls], int(matches.truths[cls])) for cls in found.classes])
    best = int(found.f1.mean(0).argmax())
    rows = zip(
        found.precision[:, best].tolist(),
        found.recall[:, best].tolist(),
        ap[:, 0].tolist(),
        ap.mean(1).tolist(),
        strict=True,
    )
    return [
        ClassScores(int(cls), int(matches.truths[cls]), Scores(*row))
        for cls, row in zip(found.classes, rows, strict=True)
    ]


def curves(matches: Matches) -> Curves:
    """Precision and recall of each class that has ground truth."""
    order = np.argsort(-matches.scores, kind="stable")
    hit, scores, classes = matches.hit[order, :1], matches.scores[order], matches.classes[order]
    present = np.flatnonzero(matches.truths)
    precision, envelope = np.zeros((len(present), len(CONFIDENCES))), np.zeros((len(present), len(RECALLS)))
    recall = np.zeros_like(precision)
    for row, cls in enumerate(present):
        mine, truths = classes == cls, int(matches.truths[cls])
        envelope[row] = _envelope(hit[mine], truths)[:, 0]
        precision[row], recall[row] = _curves(hit[mine, 0], scores[mine], truths)
    return Curves(present, precision, recall, envelope)


def average_precision(hit: Bools, truths: int) -> Floats:
    """AP of one class at each threshold: hit (N, T) by descending score -> (T,)."""
    result: Floats = _envelope(hit, truths).mean(0)
    return result


def _envelope(hit: Bools, truths: int) -> Floats:
    """The best precision at each of 101 recalls or beyond: hit (N, T) by descending score -> (101, T)."""
    true = hit.cumsum(0)  # (N, T)
    precision = true / np.arange(1, len(hit) + 1)[:, None]
    envelope = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    padded = np.concatenate((envelope, np.zeros((1, hit.shape[1]))))
    # The first detection whose recall reaches each point; beyond the last one precision is 0.
    first = np.stack([np.searchsorted(true[:, t] / truths, RECALLS, side="left") for t in range(hit.shape[1])])
    result: Floats = np.take_along_axis(padded, first.T, 0)
    return result


def _curves(hit: Bools, scores: Floats, truths: int) -> tuple[Floats, Floats]:
    """Precision and recall of one class when everything below each confidence is left out."""
    kept = np.searchsorted(-scores, -CONFIDENCES, side="right")
    true = np.concatenate(([0], hit.cumsum()))[kept]
    return true / np.maximum(kept, 1), true / truths
