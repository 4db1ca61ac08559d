import numpy as np
import pytest

from remote.yolov9 import augment
from remote.yolov9.augment import FILL, Labelled
from remote.yolov9.config import Hyp

RED = (250, 10, 10)
PLAIN = Hyp(hsv_h=0, hsv_s=0, hsv_v=0, scale=0, translate=0, fliplr=0, mosaic=0, mixup=0)


def painted(height: int, width: int, box: tuple[int, int, int, int], cls: int = 0) -> Labelled:
    """A dark picture with a red rectangle exactly at its label."""
    picture = np.full((height, width, 3), 30, np.uint8)
    x1, y1, x2, y2 = box
    picture[y1:y2, x1:x2] = RED
    return Labelled(picture, np.array([[cls, *box]], np.float32))


def red_box(picture: augment.Picture) -> tuple[int, int, int, int]:
    """Where the red is."""
    rows, columns = np.nonzero((picture[..., 0] > 140) & (picture[..., 1] < 80))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


@pytest.mark.parametrize("seed", range(20))
def test_a_label_stays_on_its_object_through_a_zoom_and_shift(seed):
    rng = np.random.default_rng(seed)
    part = painted(128, 128, (40, 50, 90, 80))
    matrix = augment.warp_matrix(128, 128, 128, Hyp(scale=0.5, translate=0.1), rng)
    warped = augment.warp(part, matrix, 128)
    assert warped.labels[0, 1:] == pytest.approx(red_box(warped.picture), abs=1.6)


@pytest.mark.parametrize("hyp", [Hyp(degrees=30, shear=10, scale=0.2), Hyp(perspective=0.0005, scale=0.2)])
def test_a_turned_object_lies_inside_its_new_label(hyp):
    for seed in range(10):
        part = painted(128, 128, (50, 55, 75, 70))
        warped = augment.warp(part, augment.warp_matrix(128, 128, 128, hyp, np.random.default_rng(seed)), 128)
        x1, y1, x2, y2 = red_box(warped.picture)
        _, lx1, ly1, lx2, ly2 = warped.labels[0]
        assert min(x1 - lx1, y1 - ly1, lx2 - x2, ly2 - y2) >= -1.6


def test_mosaic_keeps_each_label_on_its_object():
    rng = np.random.default_rng(3)
    parts = [painted(48, 64, (10, 10, 40, 30), cls) for cls in range(4)]
    whole = augment.mosaic(parts, 64, rng)
    assert whole.picture.shape == (128, 128, 3)
    for _, x1, y1, x2, y2 in whole.labels.astype(int):
        if x2 > x1 and y2 > y1:
            assert (whole.picture[y1:y2, x1:x2] == RED).all()
    assert (whole.picture == FILL).all(-1).any()


def outlined(*boxes: tuple[int, int, int, int], width: int = 128) -> Labelled:
    """Red rectangles on a dark picture, each with its corners as outline."""
    picture = np.full((64, width, 3), 30, np.uint8)
    outlines = []
    for x1, y1, x2, y2 in boxes:
        picture[y1:y2, x1:x2] = RED
        outlines.append(np.array([(x1, y1), (x2 - 1, y1), (x2 - 1, y2 - 1), (x1, y2 - 1)], np.float32))
    labels = np.array([(cls, *box) for cls, box in enumerate(boxes)], np.float32)
    return Labelled(picture, labels, tuple(outlines))


def test_outlined_objects_are_pasted_once_more_mirrored():
    part = outlined((10, 20, 30, 50))
    pasted = augment.copy_paste(part, 1.0, np.random.default_rng(0))
    assert pasted.labels.tolist() == [[0, 10, 20, 30, 50], [0, 98, 20, 118, 50]]
    assert red_box(pasted.picture[:, 64:]) == pytest.approx((98 - 64, 20, 118 - 64, 50), abs=1)
    assert (pasted.picture[:, :64] == part.picture[:, :64]).all()
    assert pasted.outlines == ()


def test_nothing_is_pasted_over_another_object():
    part = outlined((10, 20, 30, 50), (90, 20, 110, 50))  # mirrored, each would lie mostly on the other
    pasted = augment.copy_paste(part, 1.0, np.random.default_rng(0))
    assert pasted.labels.tolist() == part.labels.tolist()
    assert (pasted.picture == part.picture).all()


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.3, 1), (1.0, 4)])
def test_as_many_are_pasted_as_the_share_says(share, count):
    boxes = [(4 + 20 * i, 4 + 14 * i, 14 + 20 * i, 14 + 14 * i) for i in range(4)]
    part = outlined(*boxes, width=256)
    pasted = augment.copy_paste(part, share, np.random.default_rng(0))
    assert len(pasted.labels) == 4 + count


def test_a_mosaic_of_boxes_and_outlines_pastes_the_outlined_ones():
    """Where some pictures have polygons and some have boxes alone, each outline stays with its own object."""
    parts = [painted(64, 64, (5, 5, 25, 25), 3), outlined((4, 8, 20, 24), width=64), painted(64, 64, (1, 1, 9, 9), 2)]
    whole = augment.mosaic([*parts, painted(64, 64, (30, 30, 40, 40), 1)], 64, np.random.default_rng(1))
    assert [len(outline) for outline in whole.outlines] == [0, 4, 0, 0]
    _, x1, y1, x2, y2 = whole.labels[1]
    assert whole.outlines[1].min(0) == pytest.approx((x1, y1))
    assert whole.outlines[1].max(0) == pytest.approx((x2 - 1, y2 - 1))
    pasted = augment.copy_paste(whole, 1.0, np.random.default_rng(0))
    assert [row[0] for row in pasted.labels] == [3, 0, 2, 1, 0]


def test_pictures_without_outlines_draw_nothing_from_the_generator():
    rng = np.random.default_rng(0)
    part = painted(64, 64, (5, 5, 25, 25))
    assert augment.copy_paste(part, 1.0, rng) is part
    assert rng.random() == np.random.default_rng(0).random()


def test_objects_cut_to_less_than_a_tenth_are_dropped():
    part = painted(64, 64, (0, 0, 40, 40))
    matrix = np.eye(3)
    matrix[0, 2] = -35.0  # five of forty columns are left
    assert len(augment.warp(part, matrix, 64).labels) == 1
    matrix[0, 2] = -37.0
    assert len(augment.warp(part, matrix, 64).labels) == 0


def test_letterbox_centres_the_picture():
    boxed = augment.letterbox(painted(32, 64, (0, 0, 10, 10)), 64, 64)
    assert boxed.labels[0].tolist() == [0, 0, 16, 10, 26]
    assert (boxed.picture[:16] == FILL).all()
    assert red_box(boxed.picture) == (0, 16, 10, 26)


def test_flips_mirror_picture_and_label():
    part = painted(32, 64, (4, 6, 20, 16))
    for horizontal, vertical in ((True, False), (False, True), (True, True)):
        flipped = augment.flip(part, horizontal=horizontal, vertical=vertical)
        assert flipped.labels[0, 1:].tolist() == list(red_box(flipped.picture))
    assert part.labels[0].tolist() == [0, 4, 6, 20, 16]


def test_colours_change_without_moving_anything():
    part = painted(32, 32, (8, 8, 24, 24))
    recoloured = augment.hsv(part.picture, Hyp(), np.random.default_rng(1))
    assert recoloured.shape == part.picture.shape
    assert not np.array_equal(recoloured, part.picture)
    assert np.abs(augment.hsv(part.picture, PLAIN, np.random.default_rng(1)).astype(int) - part.picture).max() <= 6


def test_mixup_carries_the_labels_of_both():
    a, b = painted(32, 32, (0, 0, 16, 16), 0), painted(32, 32, (16, 16, 32, 32), 1)
    mixed = augment.mixup(a, b, np.random.default_rng(0))
    assert mixed.labels[:, 0].tolist() == [0, 1]
    assert 30 < mixed.picture[4, 4, 0] < 250


def test_the_same_generator_gives_the_same_picture():
    part = painted(64, 64, (10, 10, 30, 30))
    one, two = (augment.colours_and_flips(part, Hyp(), np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one.picture, two.picture)
    assert np.array_equal(one.labels, two.labels)


def test_backgrounds_pass_through_everything():
    empty = Labelled(np.zeros((32, 32, 3), np.uint8), np.zeros((0, 5), np.float32))
    rng = np.random.default_rng(0)
    canvas = augment.mosaic([empty] * 4, 32, rng)
    warped = augment.warp(canvas, augment.warp_matrix(64, 64, 32, Hyp(), rng), 32)
    assert augment.colours_and_flips(warped, Hyp(), rng).labels.shape == (0, 5)
