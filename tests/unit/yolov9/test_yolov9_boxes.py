import math

import pytest
import torch

from remote.yolov9.boxes import NmsLimits, box_iou, ciou, decode, make_grid, nms


def random_boxes(n: int, size: float = 100.0) -> torch.Tensor:
    low = torch.rand(n, 2, dtype=torch.float64) * size
    return torch.cat((low, low + 1 + torch.rand(n, 2, dtype=torch.float64) * size / 3), 1)


def slow_iou(a, b) -> float:
    w = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    h = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h
    return w * h / union


def slow_ciou(a, b) -> float:
    iou = slow_iou(a, b)
    hull = (max(a[2], b[2]) - min(a[0], b[0])) ** 2 + (max(a[3], b[3]) - min(a[1], b[1])) ** 2
    apart = ((a[0] + a[2] - b[0] - b[2]) / 2) ** 2 + ((a[1] + a[3] - b[1] - b[3]) / 2) ** 2
    angle_a, angle_b = (math.atan((x[2] - x[0]) / (x[3] - x[1])) for x in (a, b))
    v = 4 / math.pi**2 * (angle_b - angle_a) ** 2
    return iou - apart / hull - v * (v / (v - iou + 1) if v else 0.0)


def test_iou_and_ciou_agree_with_the_formulas():
    torch.manual_seed(0)
    a, b = random_boxes(40), random_boxes(30)
    matrix = box_iou(a, b)
    for i, x in enumerate(a.tolist()):
        for j, y in enumerate(b.tolist()):
            assert matrix[i, j].item() == pytest.approx(slow_iou(x, y), abs=1e-6)
            assert ciou(a[i], b[j]).item() == pytest.approx(slow_ciou(x, y), abs=1e-6)


def test_ciou_has_the_gradient_of_its_formula_with_the_weight_held_fixed():
    torch.manual_seed(1)
    a, b = random_boxes(6).requires_grad_(), random_boxes(6) + 5

    def aspect(x: torch.Tensor) -> torch.Tensor:
        return torch.atan((x[:, 2] - x[:, 0]) / (x[:, 3] - x[:, 1]))

    with torch.no_grad():
        v = 4 / math.pi**2 * (aspect(b) - aspect(a)) ** 2
        iou = box_iou(a[:, None], b[:, None])[:, 0, 0]
        weight = v / (v - iou + 1)
    # With a fixed weight the whole is differentiable in the ordinary sense, and finite differences apply.
    analytic = torch.autograd.grad(ciou(a, b).sum(), a)[0]
    step = 1e-5
    for k in range(4):
        ends = []
        for sign in (1, -1):
            moved = a.detach().clone()
            moved[:, k] += sign * step
            free = ciou(moved, b)
            v_moved = 4 / math.pi**2 * (aspect(b) - aspect(moved)) ** 2
            iou_moved = box_iou(moved[:, None], b[:, None])[:, 0, 0]
            ends.append(free + v_moved * (v_moved / (v_moved - iou_moved + 1)) - v_moved * weight)
        assert torch.allclose(analytic[:, k], (ends[0] - ends[1]) / (2 * step), atol=1e-5)


def test_a_box_has_a_ciou_of_one_with_itself():
    boxes = random_boxes(5)
    assert torch.allclose(ciou(boxes, boxes), torch.ones(5, dtype=torch.float64), atol=1e-6)


def test_cells_are_listed_level_by_level_and_row_by_row():
    grid = make_grid(64, 96, (8, 16, 32))
    assert grid.centres.shape == (8 * 12 + 4 * 6 + 2 * 3, 2)
    assert grid.centres[0].tolist() == [4, 4]
    assert grid.centres[1].tolist() == [12, 4]
    assert grid.centres[12].tolist() == [4, 12]
    assert grid.centres[96].tolist() == [8, 8]
    assert grid.strides[95:97, 0].tolist() == [8, 16]


def test_decoding_turns_cells_into_pixels():
    grid = make_grid(32, 32, (16,))
    distances = torch.tensor([[[0.5, 0.25, 1.0, 2.0]] * 4])
    assert decode(distances, grid)[0, 1].tolist() == [24 - 8, 8 - 4, 24 + 16, 8 + 32]


def slow_nms(boxes, scores, limits):
    pairs = [(s, c, i) for i, row in enumerate(scores.tolist()) for c, s in enumerate(row) if s > limits.score]
    pairs = sorted(pairs, reverse=True)[: limits.candidates]
    kept = []
    for s, c, i in pairs:
        if len(kept) < limits.detections and all(
            c != other or slow_iou(boxes[i].tolist(), boxes[j].tolist()) <= limits.iou for _, other, j in kept
        ):
            kept.append((s, c, i))
    return kept


@pytest.mark.parametrize("detections", [300, 20])
def test_suppression_equals_the_greedy_loop(detections):
    torch.manual_seed(detections)
    boxes = torch.stack([random_boxes(400, 60.0), random_boxes(400, 300.0)]).float()
    scores = torch.rand(2, 400, 3) ** 2
    limits = NmsLimits(score=0.05, iou=0.5, candidates=900, detections=detections)
    found = nms(boxes, scores, limits)
    for image in range(2):
        expected = slow_nms(boxes[image], scores[image], limits)
        valid = found.scores[image] > 0
        assert int(valid.sum()) == len(expected)
        assert found.scores[image, valid].tolist() == [s for s, _, _ in expected]
        assert found.classes[image, valid].tolist() == [c for _, c, _ in expected]
        assert torch.equal(found.boxes[image, valid], boxes[image, [i for _, _, i in expected]])


def test_nothing_above_the_threshold_gives_no_detections():
    found = nms(torch.rand(2, 10, 4), torch.zeros(2, 10, 3), NmsLimits())
    assert found.boxes.shape == (2, 0, 4)
