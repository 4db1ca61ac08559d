import pytest
import torch
from torch.nn import functional

from remote.yolov9.assigner import Targets, assign
from remote.yolov9.blocks import Dfl, Prediction
from remote.yolov9.boxes import ciou, decode, make_grid
from remote.yolov9.loss import Weighing, detection_loss, dfl_loss, head_terms

GRID = make_grid(64, 64, (8, 16, 32))
CELLS = len(GRID.centres)


def prediction(seed: int, images: int = 2, classes: int = 3) -> Prediction:
    gen = torch.Generator().manual_seed(seed)
    logits = torch.randn(images, CELLS, 64, generator=gen, requires_grad=True)
    return Prediction(logits, Dfl()(logits), torch.randn(images, CELLS, classes, generator=gen, requires_grad=True))


TARGETS = Targets(
    torch.tensor([0, 0, 1]),
    torch.tensor([0, 2, 1]),
    torch.tensor([[4.0, 4.0, 40.0, 36.0], [20.0, 18.0, 60.0, 60.0], [0.0, 0.0, 62.0, 30.0]]),
)


def slow_terms(p: Prediction, targets: Targets, positive_weight: float = 1.0) -> list[float]:
    """Dense class targets and loops over positives."""
    boxes = decode(p.distances, GRID)
    found = assign(p.class_logits.detach().sigmoid(), boxes.detach(), GRID.centres, targets)
    soft = torch.zeros_like(p.class_logits)
    box = dfl = 0.0
    for image, cell, target, weight in zip(*(x.tolist() for x in found), strict=True):
        soft[image, cell, targets.classes[target]] = weight
        box += (1 - ciou(boxes[image, cell], targets.boxes[target])).item() * weight
        x, y = (GRID.centres[cell] / GRID.strides[cell]).tolist()
        x1, y1, x2, y2 = (targets.boxes[target] / GRID.strides[cell]).tolist()
        sides = 0.0
        for side, distance in enumerate((x - x1, y - y1, x2 - x, y2 - y)):
            d = min(max(distance, 0.0), 14.99)
            low = int(d)
            log_p = p.box_logits[image, cell, 16 * side : 16 * side + 16].log_softmax(0)
            sides -= (log_p[low] * (low + 1 - d) + log_p[low + 1] * (d - low)).item()
        dfl += sides / 4 * weight
    norm = max(found.weight.sum().item(), 1)
    weight = torch.tensor(positive_weight)
    cls = functional.binary_cross_entropy_with_logits(p.class_logits, soft, pos_weight=weight, reduction="sum").item()
    return [7.5 * box / norm, 0.5 * cls / norm, 1.5 * dfl / norm]


@pytest.mark.parametrize("seed", range(3))
def test_the_terms_equal_a_dense_loop_version(seed):
    p = prediction(seed)
    assert head_terms(p, TARGETS, GRID).tolist() == pytest.approx(slow_terms(p, TARGETS), rel=1e-4)


def test_positives_can_weigh_more_in_the_class_term():
    p = prediction(0)
    found = head_terms(p, TARGETS, GRID, Weighing(positive=2.5))
    assert found.tolist() == pytest.approx(slow_terms(p, TARGETS, 2.5), rel=1e-4)
    assert found[1] > 1.002 * head_terms(p, TARGETS, GRID)[1]


def test_the_auxiliary_head_counts_a_quarter_and_the_total_grows_with_the_batch():
    main, auxiliary = prediction(0), prediction(1)
    loss = detection_loss(main, auxiliary, TARGETS, GRID)
    parts = head_terms(main, TARGETS, GRID).sum() + 0.25 * head_terms(auxiliary, TARGETS, GRID).sum()
    assert loss.total.item() == pytest.approx(2 * parts.item(), rel=1e-6)
    assert loss.terms.tolist() == pytest.approx(head_terms(main, TARGETS, GRID).tolist())


def test_without_boxes_only_the_class_loss_remains():
    nothing = Targets(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0, 4))
    p = prediction(0)
    box, cls, dfl = head_terms(p, nothing, GRID)
    assert box == dfl == 0
    assert cls.item() == pytest.approx(0.5 * functional.softplus(p.class_logits).sum().item(), rel=1e-6)
    cls.backward()
    assert p.class_logits.grad.isfinite().all()


def test_dfl_is_least_at_the_distribution_between_the_two_bins():
    logits = torch.full((1, 64), -30.0)
    for side in range(4):
        logits[0, 16 * side + 3], logits[0, 16 * side + 4] = torch.tensor([0.75, 0.25]).log()
    best = dfl_loss(logits, torch.full((1, 4), 3.25)).item()
    assert best == pytest.approx(-(0.75 * torch.tensor(0.75).log() + 0.25 * torch.tensor(0.25).log()).item(), rel=1e-5)
    assert dfl_loss(logits + 0.1 * torch.randn(1, 64), torch.full((1, 4), 3.25)).item() > best


def test_dfl_has_its_numeric_gradient():
    torch.manual_seed(0)
    logits = torch.randn(3, 64, dtype=torch.float64, requires_grad=True)
    distances = torch.rand(3, 4, dtype=torch.float64) * 18 - 1
    assert torch.autograd.gradcheck(lambda x: dfl_loss(x, distances), (logits,))


def test_distances_are_the_expectation_over_the_bins():
    logits = torch.full((1, 1, 64), -40.0)
    logits[0, 0, [2, 16 + 5, 32 + 15, 48]] = 40.0
    assert Dfl()(logits)[0, 0].tolist() == pytest.approx([2, 5, 15, 0])
