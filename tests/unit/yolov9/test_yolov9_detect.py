"""Detection on files: boxes in the picture's own pixels, label files, drawn pictures, flags."""

import numpy as np
import pytest
import torch
from PIL import Image

from remote.yolov9 import checkpoint, commands
from remote.yolov9.boxes import Detections, NmsLimits
from remote.yolov9.detect import Found, detect, drawn, find_pictures, label_text
from remote.yolov9.model import build
from remote.yolov9.trained import Trained, load_trained

NAMES = ("disc", "square")


class FindsRed(torch.nn.Module):
    """A detector that finds what is red: its box in pixels of the input, as class 1."""

    def __init__(self):
        super().__init__()
        self.nothing = torch.nn.Parameter(torch.zeros(1))
        self.shapes = []

    def detect(self, images, _limits):
        self.shapes.append(tuple(images.shape))
        red = (images[0, 0] > 0.8) & (images[0, 1] < 0.4)
        rows, columns = red.any(1).nonzero()[:, 0], red.any(0).nonzero()[:, 0]
        box = torch.stack((columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)).float()
        return Detections(box[None, None], torch.tensor([[0.9]]), torch.tensor([[1]]))


def painted(width, height, box):
    canvas = np.full((height, width, 3), 230, np.uint8)
    canvas[box[1] : box[3], box[0] : box[2]] = (255, 0, 0)
    return Image.fromarray(canvas)


@pytest.mark.parametrize(
    ("width", "height", "box", "shape"),
    [
        pytest.param(200, 100, (20, 30, 80, 90), (1, 3, 64, 128), id="shrunk-and-padded"),
        pytest.param(60, 90, (10, 5, 50, 85), (1, 3, 128, 96), id="enlarged-upright"),
        pytest.param(128, 128, (0, 0, 128, 40), (1, 3, 128, 128), id="as-it-is-to-the-border"),
        pytest.param(1000, 37, (900, 0, 1000, 37), (1, 3, 32, 128), id="very-flat"),
    ],
)
def test_boxes_are_those_of_the_picture_whatever_its_size(width, height, box, shape):
    model = FindsRed()
    (found,) = detect(Trained(model, NAMES, 128), painted(width, height, box), 128, NmsLimits())
    assert model.shapes == [shape]
    assert (found.cls, found.score) == (1, pytest.approx(0.9))
    assert found.box == pytest.approx(box, abs=1.5 * max(width, height) / 128)
    assert 0 <= found.box[0] < found.box[2] <= width
    assert 0 <= found.box[1] < found.box[3] <= height


def test_a_label_file_has_shares_of_the_picture_and_scores_if_asked():
    found = [Found(1, 0.75, (20.0, 30.0, 80.0, 90.0)), Found(0, 0.5, (0.0, 0.0, 200.0, 100.0))]
    assert label_text(found, (200, 100)) == "1 0.25 0.6 0.3 0.6\n0 0.5 0.5 1 1\n"
    assert label_text(found, (200, 100), scores=True).splitlines()[0] == "1 0.25 0.6 0.3 0.6 0.75"
    assert label_text([], (200, 100)) == ""


def test_drawing_changes_a_copy_where_the_box_is():
    picture = painted(200, 100, (0, 0, 1, 1))
    shown = drawn(picture, [Found(0, 0.5, (50.0, 40.0, 150.0, 90.0))], NAMES)
    before, after = np.asarray(picture), np.asarray(shown)
    assert (after[40, 60:140] != before[40, 60:140]).any(-1).all()
    assert (after[60:80, 70:130] == before[60:80, 70:130]).all()


def test_a_name_is_drawn_inside_the_picture_also_where_the_box_is_at_its_right():
    narrow = np.asarray(drawn(painted(200, 100, (0, 0, 1, 1)), [Found(0, 0.5, (190.0, 40.0, 199.0, 90.0))], NAMES))
    assert (narrow[28:38, 150:185] != 230).any(), "it begins left of the box"


def test_ground_truth_is_drawn_without_a_score():
    found = [Found(0, 1.0, (50.0, 40.0, 150.0, 90.0))]
    with_score, without = (drawn(painted(200, 100, (0, 0, 1, 1)), found, NAMES, scores=on) for on in (True, False))
    changed = np.argwhere((np.asarray(with_score) != np.asarray(without)).any(-1))
    assert changed[:, 0].max() < 40, "the boxes are the same"
    assert (np.asarray(without)[28:38, 90:] == 230).all(), "behind the name is nothing"


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    (folder / "below").mkdir(parents=True)
    for name in ("b.png", "a.jpg", "below/c.JPG"):
        painted(64, 48, (10, 10, 30, 30)).save(folder / name)
    (folder / "notes.txt").write_text("no picture")
    return folder


@pytest.mark.parametrize(
    ("source", "names"),
    [("", ["a.jpg", "b.png"]), ("/b.png", ["b.png"]), ("/*.jpg", ["a.jpg"]), ("/**/*", ["a.jpg", "b.png", "c.JPG"])],
    ids=["folder", "file", "glob", "deep-glob"],
)
def test_pictures_are_those_of_a_folder_a_file_or_a_pattern(pictures, source, names):
    assert [path.name for path in find_pictures(f"{pictures}{source}")] == names


@pytest.fixture
def weights(tmp_path):
    """Of a detector that has learned nothing: it finds anything everywhere."""
    torch.manual_seed(3)
    model = build("yolov9-t", 2)
    state = {
        "model": "yolov9-t",
        "names": list(NAMES),
        "image_size": 64,
        "weights": checkpoint.half(model.state_dict()),
    }
    checkpoint.save(tmp_path / "best.pt", state)
    return tmp_path / "best.pt"


@pytest.fixture
def detect_in(tmp_path, weights, pictures, capsys):
    def run(*argv):
        fixed = ["--weights", str(weights), "--source", str(pictures), "--project", str(tmp_path / "runs")]
        code = commands.main(["detect", *fixed, "--device", "cpu", *argv])
        return code, capsys.readouterr().out

    return run


def test_the_command_writes_pictures_and_labels_and_never_over_an_earlier_run(tmp_path, detect_in):
    code, said = detect_in("--conf-thres", "0", "--max-det", "3", "--save-txt", "--save-conf")
    assert code == 0
    assert [line.split(": ")[0].rsplit("/", 1)[1] for line in said.splitlines()] == ["a.jpg", "b.png"]
    first = tmp_path / "runs" / "exp"
    assert {path.name for path in first.glob("*.jpg")} == {"a.jpg", "b.jpg"}
    rows = [line.split() for line in (first / "labels" / "a.txt").read_text().splitlines()]
    assert len(rows) == 3
    assert all(len(row) == 6 and 0 <= float(row[5]) <= 1 for row in rows)
    assert detect_in("--nosave")[0] == 0
    assert detect_in()[0] == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["exp", "exp2"]
    assert detect_in("--exist-ok", "--classes", "1")[0] == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["exp", "exp2"]


def test_the_loaded_detector_is_in_its_inference_form(weights):
    trained = load_trained(weights, torch.device("cpu"))
    assert (trained.model.variant.name, trained.names, trained.image_size) == ("gelan-t", NAMES, 64)
    assert not trained.model.training


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--img", "100"], "--img 100: expected a multiple of 32"),
        (["--conf-thres", "2"], "--conf-thres 2.0: expected a number from 0 to 1"),
        (["--max-det", "0"], "--max-det 0: expected at least 1"),
        (["--classes", "2"], "--classes 2: there are 0 to 1 (disc, square)"),
        (["--device", "0,1"], "--device 0,1: expected auto, cpu, cuda or the number of one GPU"),
        (["--source", "nowhere"], "--source nowhere: no picture there"),
        (["--weights", "nowhere.pt"], "nowhere.pt: no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(detect_in, caplog, argv, said):
    assert detect_in(*argv)[0] == 2
    assert said in caplog.messages[-1]


def test_a_file_that_is_no_best_pt_is_named_with_what_it_lacks(detect_in, tmp_path, caplog):
    checkpoint.save(tmp_path / "last.pt", {"epoch": 3})
    assert detect_in("--weights", str(tmp_path / "last.pt"))[0] == 2
    assert "last.pt: no weights of this trainer" in caplog.messages[-1]


def test_flags_of_the_reference_without_effect_are_accepted_with_one_warning(detect_in, caplog):
    assert detect_in("--line-thickness", "3", "--half", "--nosave")[0] == 0
    assert [m for m in caplog.messages if "without effect" in m] == ["without effect here: --line-thickness, --half"]
