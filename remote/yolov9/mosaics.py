"""Pictures of batches: what a training sees, what is labelled, and what a detector says, side by side.

Owns the layout of train_batchN.jpg, val_batchN_labels.jpg and val_batchN_pred.jpg. Pillow alone; boxes look as in
`detect`. Shape symbols: B batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor

from remote.yolov9 import metrics
from remote.yolov9.augment import FILL
from remote.yolov9.boxes import Detections, NmsLimits
from remote.yolov9.data import Batch, ValSet, collate, to_input
from remote.yolov9.detect import Found, drawn
from remote.yolov9.model import Detector
from remote.yolov9.whole import whole

SHOWN = 3
"""Batches that are drawn, of a training and of a validation."""
MOST = 16
"""Pictures of a batch that are shown."""
_SIDE = 1920
"""Of the mosaic, in pixels at most."""
_LEAST = 320
"""Of a picture: names would cover smaller ones."""


def draw_labels_of(batch: Batch, names: Sequence[str], path: Path) -> Path:
    """The pictures of a batch with their ground truth. Raises OSError."""
    return _draw(batch.images, labelled(batch), names, path, scores=False)


def draw_detections(images: Tensor, detections: Detections, names: Sequence[str], path: Path) -> Path:
    """Pictures (B, 3, H, W) uint8 with what a detector found on them. Raises OSError."""
    return _draw(images, detected(detections), names, path, scores=True)


def draw_batches(
    val: ValSet, groups: Sequence[Sequence[int]], model: Detector, names: Sequence[str], folder: Path, limits: NmsLimits
) -> None:
    """The first batches of a validation: ground truth, and of the detections those that are seen at a glance."""
    device = next(model.parameters()).device
    certain = limits._replace(score=max(limits.score, metrics.CONFUSED_SCORE))
    for number, group in enumerate(groups[:SHOWN]):
        shown = collate([val[index] for index in group[:MOST]])
        draw_labels_of(shown, names, folder / f"val_batch{number}_labels.jpg")
        found = model.detect(to_input(shown.images, device), certain)
        draw_detections(shown.images, found, names, folder / f"val_batch{number}_pred.jpg")


def labelled(batch: Batch) -> list[list[Found]]:
    """The ground truth of each picture of a batch."""
    found: list[list[Found]] = [[] for _ in batch.images]
    targets = batch.targets
    for image, cls, box in zip(targets.image.tolist(), targets.classes.tolist(), targets.boxes.tolist(), strict=True):
        found[image].append(Found(cls, 1.0, (box[0], box[1], box[2], box[3])))
    return found


def detected(detections: Detections) -> list[list[Found]]:
    """The detections of each picture, without the padding."""
    pictures = zip(detections.classes.tolist(), detections.scores.tolist(), detections.boxes.tolist(), strict=True)
    return [
        [Found(cls, score, (b[0], b[1], b[2], b[3])) for cls, score, b in zip(*one, strict=True) if score > 0]
        for one in pictures
    ]


def _draw(images: Tensor, found: Sequence[Sequence[Found]], names: Sequence[str], path: Path, *, scores: bool) -> Path:
    count = min(len(images), MOST)
    columns = math.ceil(math.sqrt(count))
    height, width = images.shape[2:]
    longer = min(max(height, width, _LEAST), _SIDE // columns)
    cell = (max(1, width * longer // max(height, width)), max(1, height * longer // max(height, width)))
    sheet = Image.new("RGB", (columns * cell[0], -(-count // columns) * cell[1]), (FILL,) * 3)
    for place in range(count):
        picture = Image.fromarray(images[place].permute(1, 2, 0).contiguous().cpu().numpy())
        small = picture.resize(cell, Image.Resampling.BILINEAR)
        boxes = [_scaled(one, cell[0] / width, cell[1] / height) for one in found[place]]
        row, column = divmod(place, columns)
        sheet.paste(drawn(small, boxes, names, scores=scores), (column * cell[0], row * cell[1]))
    with whole(path) as temporary:
        sheet.save(temporary, quality=90)
    return path


def _scaled(found: Found, x: float, y: float) -> Found:
    left, top, right, bottom = found.box
    return Found(found.cls, found.score, (left * x, top * y, right * x, bottom * y))
