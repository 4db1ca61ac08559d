"""Scores against pycocotools, the definition that everybody's published figures come from."""

import contextlib
import io

import numpy as np
import pytest
import torch

from remote.yolov9.assigner import Targets
from remote.yolov9.boxes import Detections
from remote.yolov9.evaluate import match_batch
from remote.yolov9.metrics import join, score

coco = pytest.importorskip("pycocotools.coco")
cocoeval = pytest.importorskip("pycocotools.cocoeval")

SIZE = 640.0
MOST = 100
"""COCO looks at so many detections of a picture."""


def boxes_around(rng, count):
    """Corners of boxes of all sizes inside the picture."""
    sides = np.exp(rng.uniform(np.log(8), np.log(300), (count, 2)))
    start = rng.uniform(0, 1, (count, 2)) * (SIZE - sides)
    return np.concatenate((start, start + sides), 1).astype(np.float32)


def a_picture(rng, classes, skill):
    """Ground truth and detections: truths found more or less well, some twice, some as another class, and noise."""
    truths = int(rng.integers(0, 25))
    boxes, labels = boxes_around(rng, truths), rng.integers(0, classes, truths)
    found = np.concatenate([np.flatnonzero(rng.random(truths) < share) for share in (skill, skill / 4)])
    moved = boxes[found] + rng.normal(0, 0.12, (len(found), 4)) * (boxes[found][:, 2:] - boxes[found][:, :2]).repeat(
        2, 1
    )
    moved = np.concatenate((np.minimum(moved[:, :2], moved[:, 2:] - 1), moved[:, 2:]), 1)
    said = np.where(rng.random(len(found)) < 0.1, rng.integers(0, classes, len(found)), labels[found])
    noise = int(rng.integers(0, 30))
    detected = np.concatenate((moved, boxes_around(rng, noise))).astype(np.float32)[:MOST]
    named = np.concatenate((said, rng.integers(0, classes, noise)))[:MOST]
    scores = np.concatenate((rng.beta(4, 2, len(found)), rng.beta(2, 5, noise)))[:MOST].astype(np.float32)
    order = np.argsort(-scores, kind="stable")
    return (boxes, labels), (detected[order], named[order], scores[order])


def ours(pictures, classes, batch=8):
    parts = []
    for begin in range(0, len(pictures), batch):
        some = pictures[begin : begin + batch]
        width = max(len(detected[2]) for _, detected in some)
        boxes, scores = torch.zeros(len(some), width, 4), torch.zeros(len(some), width)
        labels = torch.zeros(len(some), width, dtype=torch.int64)
        for row, (_, (detected, named, confident)) in enumerate(some):
            count = len(confident)
            boxes[row, :count] = torch.from_numpy(detected)
            scores[row, :count], labels[row, :count] = torch.from_numpy(confident), torch.from_numpy(named)
        targets = Targets(
            torch.tensor([row for row, (truth, _) in enumerate(some) for _ in truth[1]], dtype=torch.int64),
            torch.from_numpy(np.concatenate([truth[1] for truth, _ in some])).long(),
            torch.from_numpy(np.concatenate([truth[0] for truth, _ in some])),
        )
        parts.append(match_batch(Detections(boxes, scores, labels), targets, classes))
    return score(join(parts))


def theirs(pictures, classes):
    """mAP50-95 and mAP50 of pycocotools."""
    truths, results = [], []
    for image, ((boxes, labels), (detected, named, scores)) in enumerate(pictures):
        for box, label in zip(boxes.tolist(), labels.tolist(), strict=True):
            area = (box[2] - box[0]) * (box[3] - box[1])
            truth = {"id": len(truths) + 1, "image_id": image, "category_id": label, "iscrowd": 0, "area": area}
            truths.append({**truth, "bbox": as_xywh(box)})
        for box, label, confident in zip(detected.tolist(), named.tolist(), scores.tolist(), strict=True):
            results.append({"image_id": image, "category_id": label, "bbox": as_xywh(box), "score": confident})
    with contextlib.redirect_stdout(io.StringIO()):
        reference = coco.COCO()
        reference.dataset = {
            "info": {},
            "images": [{"id": image, "width": SIZE, "height": SIZE} for image in range(len(pictures))],
            "categories": [{"id": label, "name": str(label)} for label in range(classes)],
            "annotations": truths,
        }
        reference.createIndex()
        judge = cocoeval.COCOeval(reference, reference.loadRes(results), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge.stats[0], judge.stats[1]


def as_xywh(box):
    return [box[0], box[1], box[2] - box[0], box[3] - box[1]]


@pytest.mark.parametrize("seed", range(6))
def test_scores_agree_with_pycocotools(seed):
    rng = np.random.default_rng(seed)
    classes, skill = (1, 3, 10)[seed % 3], (0.5, 0.95)[seed % 2]
    pictures = [a_picture(rng, classes, skill) for _ in range(60)]
    found, (expected, expected50) = ours(pictures, classes), theirs(pictures, classes)
    assert 0.02 < expected < 0.98
    assert found.map50_95 == pytest.approx(expected, abs=0.001)
    assert found.map50 == pytest.approx(expected50, abs=0.001)
