"""Validation: a model over the validation batches, to losses and scores.

Owns what is measured and how ranks share the work. Knows nothing of optimisers and files. Shape symbols as in
`metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remote.yolov9 import metrics
from remote.yolov9.assigner import Targets
from remote.yolov9.boxes import Detections, NmsLimits, box_iou, decode, nms
from remote.yolov9.data import Batch, to_input
from remote.yolov9.distributed import Ranks
from remote.yolov9.loss import head_terms
from remote.yolov9.metrics import Ints, Matches, Scores
from remote.yolov9.model import Detector


@dataclass(frozen=True, slots=True)
class Validation:
    """The outcome of one validation."""

    scores: Scores
    losses: tuple[float, float, float]
    """Box, class and DFL term of the main head, mean over pictures."""
    matches: Matches
    """What the scores were made of."""


@torch.no_grad()
def evaluate(
    model: Detector,
    batches: Iterable[Batch],
    device: torch.device,
    amp: torch.dtype | None,
    go_on: Callable[[], bool],
    limits: NmsLimits | None = None,
) -> tuple[Matches, Tensor] | None:
    """This rank's matches and loss sums (4,): three terms times pictures, and pictures. None when `go_on` says stop."""
    sums = torch.zeros(4, device=device)
    found = [Matches(*_NOTHING, np.zeros(model.classes, np.int64))]
    for batch in batches:
        if not go_on():
            return None
        images, targets = to_input(batch.images, device), batch.targets.to(device)
        with torch.autocast(device.type, amp, enabled=amp is not None):
            prediction = model(images).main
        grid = model.grid(images.shape[2], images.shape[3], device)
        sums[:3] += head_terms(prediction, targets, grid) * len(images)
        sums[3] += len(images)
        scores = prediction.class_logits.float().sigmoid()
        found.append(
            match_batch(nms(decode(prediction.distances, grid), scores, limits or NmsLimits()), targets, model.classes)
        )
    return metrics.join(found), sums


_NOTHING = (np.zeros((0, len(metrics.THRESHOLDS)), bool), np.zeros(0), np.zeros(0, np.int64))


def summarise(part: tuple[Matches, Tensor], ranks: Ranks) -> Validation:
    """All ranks' parts as one result, the same on every rank."""
    parts = ranks.gather((part[0], part[1].cpu()))
    sums = torch.stack([s for _, s in parts]).sum(0)
    box, cls, dfl = (sums[:3] / sums[3].clamp(min=1)).tolist()
    matches = metrics.join([m for m, _ in parts])
    return Validation(metrics.score(matches), (box, cls, dfl), matches)


def match_batch(detections: Detections, targets: Targets, classes: int) -> Matches:
    """Matches of one batch."""
    boxes, labels = _padded(targets, len(detections.boxes))
    same = detections.classes[:, :, None] == labels[:, None, :]  # (B, D, G)
    overlap = box_iou(detections.boxes, boxes)
    iou = (overlap * same).double().cpu().numpy()
    valid = (detections.scores > 0).cpu().numpy()
    hit = metrics.match(iou, valid)
    truths = np.bincount(targets.classes.cpu().numpy(), minlength=classes)
    return Matches(
        hit[valid],
        detections.scores.double().cpu().numpy()[valid],
        detections.classes.cpu().numpy()[valid],
        truths.astype(np.int64),
        _confusion(detections, overlap, labels, classes),
    )


def _confusion(detections: Detections, overlap: Tensor, labels: Tensor, classes: int) -> Ints:
    """overlap (B, D, G), labels (B, G) with -1 for padding -> (K + 1, K + 1)."""
    certain = detections.scores >= metrics.CONFUSED_SCORE
    most = int(certain.sum(1).max()) if certain.numel() else 0  # by descending score: the first so many
    said = torch.where(certain, detections.classes, -1)[:, :most]
    return metrics.confusion(
        overlap[:, :most].double().cpu().numpy(), said.cpu().numpy(), labels.cpu().numpy(), classes
    )


def _padded(targets: Targets, images: int) -> tuple[Tensor, Tensor]:
    """Boxes (B, G, 4) and classes (B, G), padded with class -1."""
    counts = torch.bincount(targets.image, minlength=images)
    slot = torch.arange(len(targets.image), device=counts.device) - (counts.cumsum(0) - counts)[targets.image]
    most = int(counts.max()) if len(counts) else 0
    boxes = targets.boxes.new_zeros(images, most, 4)
    labels = targets.classes.new_full((images, most), -1)
    boxes[targets.image, slot] = targets.boxes
    labels[targets.image, slot] = targets.classes
    return boxes, labels
