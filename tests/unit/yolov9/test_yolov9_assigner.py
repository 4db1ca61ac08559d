import pytest
import torch

from remote.yolov9.assigner import Targets, assign
from remote.yolov9.boxes import ciou, make_grid

GRID = make_grid(96, 96, (8, 16, 32))


def scene(seed: int, counts: list[int]) -> tuple[torch.Tensor, torch.Tensor, Targets]:
    """Predictions near the ground truth of each image, so that boxes compete for cells."""
    gen = torch.Generator().manual_seed(seed)
    images, cells, classes = len(counts), len(GRID.centres), 3
    low = torch.rand(sum(counts), 2, generator=gen) * 60
    boxes = torch.cat((low, low + 8 + torch.rand(sum(counts), 2, generator=gen) * 40), 1)
    image = torch.arange(images).repeat_interleave(torch.tensor(counts))
    targets = Targets(image, torch.randint(0, classes, (sum(counts),), generator=gen), boxes)
    around = GRID.centres[None].expand(images, -1, -1)
    size = 4 + 25 * torch.rand(images, cells, 4, generator=gen)
    predicted = torch.cat((around - size[..., :2], around + size[..., 2:]), -1)
    return torch.rand(images, cells, classes, generator=gen), predicted, targets


def slow_assign(scores, boxes, targets):
    """The rule as written, with loops: {(image, cell): (target, weight)}."""
    result = {}
    for image in range(len(scores)):
        rows = [n for n in range(len(targets.boxes)) if targets.image[n] == image]
        if not rows:
            continue
        overlap = {n: ciou(targets.boxes[n], boxes[image]).clamp(min=0) for n in rows}
        metric = {n: scores[image, :, targets.classes[n]] ** 0.5 * overlap[n] ** 6 for n in rows}
        claims: dict[int, list[int]] = {}
        for n in rows:
            x1, y1, x2, y2 = targets.boxes[n].tolist()
            inside = [
                p for p, (x, y) in enumerate(GRID.centres.tolist()) if x1 < x < x2 and y1 < y < y2 and metric[n][p] > 0
            ]
            for p in sorted(inside, key=lambda p, n=n: -metric[n][p].item())[:10]:
                claims.setdefault(p, []).append(n)
        owner = {}
        for p, claimants in claims.items():
            owner[p] = claimants[0] if len(claimants) == 1 else max(rows, key=lambda n, p=p: overlap[n][p].item())
        for n in rows:
            mine = [p for p, o in owner.items() if o == n]
            for p in mine:
                top = max(metric[n][q].item() for q in mine)
                best = max(overlap[n][q].item() for q in mine)
                result[image, p] = (n, metric[n][p].item() / (top + 1e-9) * best)
    return result


@pytest.mark.parametrize("seed", range(6))
def test_the_assignment_equals_the_loop_version(seed):
    scores, boxes, targets = scene(seed, [7, 0, 1, 12])
    found = assign(scores, boxes, GRID.centres, targets)
    expected = slow_assign(scores, boxes, targets)
    got = {(i, p): (t, w) for i, p, t, w in zip(*(part.tolist() for part in found), strict=True)}
    assert got.keys() == expected.keys()
    for key, (target, weight) in expected.items():
        assert got[key][0] == target
        assert got[key][1] == pytest.approx(weight, rel=1e-4, abs=1e-7)


def test_crowded_boxes_do_compete_in_the_scenes_above():
    scores, boxes, targets = scene(0, [30])
    found = assign(scores, boxes, GRID.centres, targets)
    assert len(found.cell) < 30 * 10


def test_no_boxes_give_no_positives():
    scores, boxes, _ = scene(0, [1])
    nothing = Targets(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0, 4))
    assert len(assign(scores, boxes, GRID.centres, nothing).cell) == 0


def test_a_box_without_a_cell_centre_inside_gets_none():
    scores, boxes, _ = scene(0, [1])
    tiny = Targets(torch.tensor([0]), torch.tensor([0]), torch.tensor([[5.0, 5.0, 7.0, 7.0]]))
    assert len(assign(scores, boxes, GRID.centres, tiny).cell) == 0
