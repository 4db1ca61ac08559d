import numpy as np
import pytest
import torch

from remote.yolov9.assigner import Targets
from remote.yolov9.boxes import Detections
from remote.yolov9.evaluate import match_batch
from remote.yolov9.metrics import (
    CONFUSED_IOU,
    RECALLS,
    THRESHOLDS,
    Matches,
    average_precision,
    confusion,
    curves,
    join,
    match,
    score,
    score_classes,
)


def slow_match(iou, valid):
    hit = np.zeros((*iou.shape[:2], len(THRESHOLDS)), bool)
    for b in range(len(iou)):
        for t, threshold in enumerate(THRESHOLDS):
            free = set(range(iou.shape[2]))
            for d in range(iou.shape[1]):
                best = max(free, key=lambda g, d=d, b=b: iou[b, d, g], default=None)
                if valid[b, d] and best is not None and iou[b, d, best] >= threshold:
                    hit[b, d, t] = True
                    free.remove(best)
    return hit


@pytest.mark.parametrize("seed", range(4))
def test_matching_equals_the_greedy_loop(seed):
    rng = np.random.default_rng(seed)
    iou = rng.random((3, 15, 6)) * (rng.random((3, 15, 6)) < 0.5)
    valid = rng.random((3, 15)) < 0.8
    assert np.array_equal(match(iou, valid), slow_match(iou, valid))


def slow_ap(hit, truths):
    """101-point interpolation of one threshold, as COCO defines it."""
    points = [(sum(hit[: i + 1]) / truths, sum(hit[: i + 1]) / (i + 1)) for i in range(len(hit))]
    return sum(max((p for r, p in points if r >= level), default=0.0) for level in np.linspace(0, 1, 101)) / 101


@pytest.mark.parametrize("seed", range(4))
def test_average_precision_equals_the_definition(seed):
    rng = np.random.default_rng(seed)
    hit = rng.random((40, 10)) < 0.4
    got = average_precision(hit, 30)
    assert got.tolist() == pytest.approx([slow_ap(hit[:, t].tolist(), 30) for t in range(10)])


def perfect(classes=(0, 1, 1)) -> Matches:
    n = len(classes)
    return Matches(
        np.ones((n, 10), bool), np.linspace(0.9, 0.5, n), np.array(classes), np.bincount(classes, minlength=3)
    )


def test_finding_everything_scores_one_and_absent_classes_do_not_count():
    result = score(perfect())
    assert (result.map50, result.map50_95, result.precision, result.recall) == (1, 1, 1, 1)


def test_a_class_that_is_never_found_scores_zero():
    missed = Matches(perfect().hit, perfect().scores, perfect().classes, np.array([1, 2, 5]))
    assert score(missed).map50 == pytest.approx(2 / 3)


def test_boxes_at_iou_06_count_for_three_thresholds():
    hit = np.zeros((1, 10), bool)
    hit[:, :3] = True
    result = score(Matches(hit, np.array([0.8]), np.array([0]), np.array([1])))
    assert result.map50 == 1
    assert result.map50_95 == pytest.approx(0.3)


def test_false_detections_below_every_true_one_cost_nothing():
    noisy = Matches(np.zeros((4, 10), bool), np.full(4, 0.1), np.zeros(4, int), np.zeros(3, int))
    assert score(join([perfect(), noisy])).map50 == 1


def test_no_ground_truth_and_no_detections_are_zeros():
    nothing = Matches(np.zeros((0, 10), bool), np.zeros(0), np.zeros(0, int), np.zeros(3, int))
    assert score(nothing).map50 == 0
    assert score(Matches(nothing.hit, nothing.scores, nothing.classes, np.array([3, 0, 0]))).map50_95 == 0


def test_the_scores_are_the_means_of_those_of_the_classes_that_are_there():
    rng = np.random.default_rng(5)
    n = 200
    hit = np.sort(rng.random((n, 10)) < 0.5, axis=1)[:, ::-1]
    matches = Matches(hit, rng.random(n), rng.integers(0, 3, n), np.array([80, 0, 60]))
    each = score_classes(matches)
    assert [(found.cls, found.truths) for found in each] == [(0, 80), (2, 60)]
    whole = score(matches)
    for name in ("precision", "recall", "map50", "map50_95"):
        assert getattr(whole, name) == pytest.approx(np.mean([getattr(found.scores, name) for found in each]))


def slow_confusion(iou, detected, truths, classes):
    result = np.zeros((classes + 1, classes + 1), int)
    for b in range(len(iou)):
        rows, columns = set(np.flatnonzero(detected[b] >= 0)), set(np.flatnonzero(truths[b] >= 0))
        pairs = sorted((-iou[b, d, g], d, g) for d in rows for g in columns if iou[b, d, g] > CONFUSED_IOU)
        for _, d, g in pairs:
            if d in rows and g in columns:
                result[detected[b, d], truths[b, g]] += 1
                rows.remove(d)
                columns.remove(g)
        for d in rows:
            result[detected[b, d], classes] += 1
        for g in columns:
            result[classes, truths[b, g]] += 1
    return result


@pytest.mark.parametrize("seed", range(6))
def test_the_confusion_matrix_equals_the_greedy_loop(seed):
    rng = np.random.default_rng(seed)
    iou = rng.random((4, 12, 7)) * (rng.random((4, 12, 7)) < 0.6)
    if seed % 2:
        iou = iou.round(1)  # with ties
    detected, truths = rng.integers(-1, 3, (4, 12)), rng.integers(-1, 3, (4, 7))
    assert np.array_equal(confusion(iou, detected, truths, 3), slow_confusion(iou, detected, truths, 3))


def test_every_detection_and_every_truth_is_in_the_confusion_matrix_once():
    matrix = confusion(np.array([[[0.9, 0.0], [0.8, 0.0]]]), np.array([[0, 1]]), np.array([[1, 0]]), 2)
    assert matrix.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert confusion(np.zeros((2, 0, 0)), np.zeros((2, 0), int), np.zeros((2, 0), int), 1).tolist() == [[0, 0], [0, 0]]


def test_joined_confusion_matrices_are_added_where_they_were_counted():
    nothing = perfect()
    counted = Matches(nothing.hit, nothing.scores, nothing.classes, nothing.truths, np.eye(4, dtype=int))
    assert join([counted, nothing, counted]).confusion.tolist() == (2 * np.eye(4)).tolist()
    assert join([nothing, nothing]).confusion is None


def test_the_curve_over_recall_has_the_average_precision_as_its_mean():
    rng = np.random.default_rng(7)
    hit = np.sort(rng.random((90, 10)) < 0.6, axis=1)[:, ::-1]
    matches = Matches(hit, rng.random(90), rng.integers(0, 3, 90), np.array([30, 0, 25]))
    found = curves(matches)
    assert found.classes.tolist() == [0, 2]
    assert found.envelope.shape == (2, len(RECALLS))
    assert found.envelope.mean() == pytest.approx(score(matches).map50)
    assert (np.diff(found.recall) <= 0).all()


def test_the_confusion_matrix_of_a_batch_counts_certain_detections_whatever_their_class():
    truth = torch.tensor([[0.0, 0, 10, 10], [20, 20, 40, 40], [50, 50, 60, 60]])
    targets = Targets(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), truth)
    boxes = torch.stack((truth[[0, 1, 1]], truth[[2, 0, 0]]))
    scores = torch.tensor([[0.9, 0.8, 0.7], [0.24, 0.0, 0.0]])  # found, taken for 0, found twice; not certain, padding
    found = match_batch(Detections(boxes, scores, torch.tensor([[0, 0, 1], [1, 0, 0]])), targets, 2)
    assert found.confusion.tolist() == [[1, 1, 0], [0, 0, 1], [0, 1, 0]]


def test_a_batch_without_detections_misses_every_truth():
    targets = Targets(torch.tensor([0]), torch.tensor([1]), torch.tensor([[0.0, 0, 10, 10]]))
    nothing = Detections(torch.zeros(1, 0, 4), torch.zeros(1, 0), torch.zeros(1, 0, dtype=torch.int64))
    assert match_batch(nothing, targets, 2).confusion.tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
