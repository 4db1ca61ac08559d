"""Pictures of figures and of batches: which files appear, that they show what they are given, for any names."""

import json
import math
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from remote.dataset import Sample
from remote.dataset.values import Object
from remote.yolov9 import metrics, mosaics, plots
from remote.yolov9.assigner import Targets
from remote.yolov9.augment import FILL
from remote.yolov9.boxes import Detections
from remote.yolov9.data import Batch
from remote.yolov9.detect import Found, coco_rows, unique_stems
from remote.yolov9.metrics import Matches
from remote.yolov9.optional import MissingPackage
from remote.yolov9.report import EpochRow, results_text

NAMES = {
    1: ["one"],
    3: ["Größe $x^", "_細胞", "красный"],
    80: [f"class number {number}" for number in range(80)],
}
CURVES = ["F1_curve.png", "PR_curve.png", "P_curve.png", "R_curve.png"]
ROW = EpochRow(0, 1.5, 2.25, 1.0, 0.5, 0.25, 0.4, 0.2, 1.1, 0.9, 1.0, 0.001, 0.002, 0.003)
UNSEEN = replace(ROW, epoch=1, precision=math.nan, recall=math.nan, map50=math.nan, map50_95=math.nan)
needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
counts = pytest.mark.parametrize("classes", NAMES)


def matches(classes, skill=1.0):
    rng = np.random.default_rng(classes)
    scores = rng.random(40 * classes)
    hit = np.repeat((rng.random(len(scores)) < skill * scores)[:, None], 10, 1)
    return Matches(hit, scores, rng.integers(0, classes, len(scores)), np.full(classes, 30))


def pixels(path):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


@needs_matplotlib
@counts
def test_the_four_curves_are_written_whole_for_any_number_of_classes_and_any_names(tmp_path, classes):
    written = plots.draw_curves(metrics.curves(matches(classes)), NAMES[classes], tmp_path / "new")
    assert sorted(path.name for path in written) == CURVES
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == CURVES
    assert all(pixels(path).std() > 1 for path in written)


@needs_matplotlib
def test_other_scores_give_other_curves(tmp_path):
    for name, skill in (("good", 1.0), ("again", 1.0), ("bad", 0.2)):
        plots.draw_curves(metrics.curves(matches(3, skill)), NAMES[3], tmp_path / name)
    good, again, bad = (pixels(tmp_path / name / "PR_curve.png") for name in ("good", "again", "bad"))
    assert np.array_equal(good, again)
    assert not np.array_equal(good, bad)


@needs_matplotlib
def test_curves_without_any_ground_truth_say_so_and_stop_nothing(tmp_path):
    nothing = Matches(np.zeros((0, 10), bool), np.zeros(0), np.zeros(0, int), np.zeros(3, int))
    assert len(plots.draw_curves(metrics.curves(nothing), NAMES[3], tmp_path)) == 4


@needs_matplotlib
@counts
def test_a_confusion_matrix_is_dark_where_the_share_is_large(tmp_path, classes):
    perfect = np.diag([*np.full(classes, 20), 0])
    shown = pixels(plots.draw_confusion(perfect, NAMES[classes], tmp_path / "perfect.png"))
    empty = pixels(plots.draw_confusion(np.zeros_like(perfect), NAMES[classes], tmp_path / "empty.png"))
    darkest = np.array([8, 48, 107])  # the end of the map
    assert (shown == darkest).all(-1).sum() > (empty == darkest).all(-1).sum() + 1000


@needs_matplotlib
def test_results_are_drawn_from_the_text_of_the_csv_with_epochs_that_were_not_validated(tmp_path):
    one = pixels(plots.draw_results(results_text([ROW, UNSEEN, replace(ROW, epoch=2)]), tmp_path / "one.png"))
    better = replace(ROW, epoch=2, map50=0.9)
    other = pixels(plots.draw_results(results_text([ROW, UNSEEN, better]), tmp_path / "other.png"))
    assert one.shape == other.shape
    assert not np.array_equal(one, other)


@needs_matplotlib
def test_results_without_a_row_yet_are_an_empty_picture(tmp_path):
    assert plots.draw_results(results_text([]), tmp_path / "results.png").exists()


@needs_matplotlib
@pytest.mark.parametrize("classes", [*NAMES, 0])
def test_labels_are_drawn_also_where_there_are_none(tmp_path, classes):
    rng = np.random.default_rng(0)
    objects = [Object(int(rng.integers(0, classes)), *rng.uniform(0.2, 0.3, 4)) for _ in range(30) if classes]
    samples = [Sample(Path("picture.jpg"), None, tuple(objects)), Sample(Path("background.jpg"), None, ())]
    path = plots.draw_labels(samples, NAMES.get(classes, ["one"]), tmp_path / "labels.jpg")
    with Image.open(path) as picture:
        assert picture.format == "JPEG"
    assert [each.name for each in tmp_path.iterdir()] == ["labels.jpg"]


def test_without_matplotlib_there_is_one_typed_error_and_no_file(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackage, match=r"pip install 'gpucost\[plots\]'"):
        plots.draw_results(results_text([ROW]), tmp_path / "results.png")
    assert not list(tmp_path.iterdir())


def a_batch(pictures, height=320, width=480):
    images = torch.full((pictures, 3, height, width), 200, dtype=torch.uint8)
    boxes = torch.tensor([[50.0, 100.0, 250.0, 300.0]]).repeat(pictures, 1)
    return Batch(images, Targets(torch.arange(pictures), torch.zeros(pictures, dtype=torch.long), boxes))


@pytest.mark.parametrize(
    ("pictures", "size"), [(1, (480, 320)), (3, (960, 640)), (16, (1920, 1280)), (20, (1920, 1280))], ids=str
)
def test_a_mosaic_shows_up_to_sixteen_pictures_with_their_boxes(tmp_path, pictures, size):
    path = mosaics.draw_labels_of(a_batch(pictures), NAMES[3], tmp_path / "train_batch0.jpg")
    shown = pixels(path)
    assert shown.shape[:2] == size[::-1]
    assert abs(shown[10, 450] - 200).max() < 12, "the picture"
    assert abs(shown[200, 50] - 200).max() > 60, "the left side of the first box"
    if pictures == 3:
        assert abs(shown[-5, -5] - FILL).max() < 12, "nothing in the last place"


def test_large_pictures_are_shown_smaller_and_their_boxes_with_them(tmp_path):
    shown = pixels(mosaics.draw_labels_of(a_batch(4, 1280, 1280), NAMES[3], tmp_path / "batch.jpg"))
    assert shown.shape == (1920, 1920, 3)
    assert abs(shown[150, 37] - 200).max() > 60, "50, 200 of the first picture, three quarters as large"


def test_small_pictures_are_enlarged_until_names_leave_something_of_them(tmp_path):
    assert pixels(mosaics.draw_labels_of(a_batch(1, 32, 64), NAMES[3], tmp_path / "batch.jpg")).shape == (160, 320, 3)


def test_padding_of_detections_is_not_drawn_and_ground_truth_is_as_it_is_labelled():
    boxes = torch.tensor([[[1.0, 2, 3, 4], [0, 0, 0, 0]]])
    found = Detections(boxes, torch.tensor([[0.5, 0.0]]), torch.tensor([[2, 0]]))
    assert mosaics.detected(found) == [[Found(2, 0.5, (1.0, 2.0, 3.0, 4.0))]]
    assert mosaics.labelled(a_batch(2))[1] == [Found(0, 1.0, (50.0, 100.0, 250.0, 300.0))]


def test_coco_rows_have_corner_and_size_and_the_number_of_the_picture():
    found = [Found(2, 0.123456, (1.0, 2.0, 4.5, 8.0))]
    (row,) = json.loads(json.dumps(coco_rows(found, "000042")))
    assert row == {"image_id": 42, "category_id": 2, "bbox": [1.0, 2.0, 3.5, 6.0], "score": 0.12346}
    assert coco_rows(found, "street")[0]["image_id"] == "street"


def test_a_name_that_comes_again_gets_a_number():
    assert unique_stems([Path("a.jpg"), Path("b.jpg"), Path("c/a.png")]) == ["a", "b", "a-2"]
