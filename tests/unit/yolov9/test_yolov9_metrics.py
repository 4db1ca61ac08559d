import numpy as np
import pytest

from remote.yolov9.metrics import THRESHOLDS, Matches, average_precision, join, match, score, score_classes


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
