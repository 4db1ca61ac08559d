"""From a training to its weights in use: `val` says what the training said of them, for each class too."""

import json
import sys
from pathlib import Path

import pytest
from tiny_training import make_squares, rows, settings, start

from remote.yolov9 import commands, engine

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A best.pt, and the row of results.csv that it belongs to."""
    folder = tmp_path_factory.mktemp("trained")
    raw = settings(make_squares(folder / "squares"), folder / "out", epochs=12, hyp={"lr0": 0.01})
    engine.fit(start(raw))
    best = max(
        rows(raw), key=lambda row: 0.1 * float(row["metrics/mAP_0.5"]) + 0.9 * float(row["metrics/mAP_0.5:0.95"])
    )
    return folder, best


def val(folder: Path, *argv: str) -> int:
    fixed = ["--data", str(folder / "squares"), "--weights", str(folder / "out/weights/best.pt"), "--device", "cpu"]
    return commands.main(["val", *fixed, "--project", str(folder / "runs"), *argv])


def test_val_says_of_the_weights_what_the_training_said(trained, capsys):
    folder, best = trained
    assert val(folder) == 0
    head, whole, *each = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[-1] == "mAP50-95"
    assert (whole[0], [line[0] for line in each]) == ("all", ["bright", "dark"])
    assert float(best["metrics/mAP_0.5"]) > 0.1, "it has learned something"
    assert int(whole[2]) == sum(int(line[2]) for line in each)
    for column, name in ((-2, "metrics/mAP_0.5"), (-1, "metrics/mAP_0.5:0.95")):
        assert float(whole[column]) == pytest.approx(float(best[name]), abs=0.02)
        assert float(whole[column]) == pytest.approx(sum(float(line[column]) for line in each) / 2, abs=0.001)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--task", "test"], "--task test: the data set has no such pictures"),
        (["--batch", "0"], "--batch 0: expected at least 1"),
        (["--data", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_of_val_is_one_line_and_exit_code_2(trained, caplog, argv, said):
    assert val(trained[0], *argv) == 2
    assert said in caplog.messages[-1]


def test_a_data_set_of_other_classes_is_refused_by_their_names(trained, tmp_path, caplog):
    other = make_squares(tmp_path / "other")
    file = other / "data.yaml"
    file.write_text(file.read_text().replace("dark", "black"))
    assert val(trained[0], "--data", str(other)) == 2
    assert "its classes are bright, black, those of the weights bright, dark" in caplog.messages[-1]


def test_val_writes_figures_and_pictures_where_it_is_told_to(trained, tmp_path):
    pytest.importorskip("matplotlib")
    assert val(trained[0], "--project", str(tmp_path), "--name", "first") == 0
    assert {path.name for path in (tmp_path / "first").iterdir()} == {
        "F1_curve.png", "PR_curve.png", "P_curve.png", "R_curve.png", "confusion_matrix.png",
        "val_batch0_labels.jpg", "val_batch0_pred.jpg",
    }  # fmt: skip


def test_val_without_plots_writes_nothing_or_the_files_that_were_asked_for(trained, tmp_path):
    assert val(trained[0], "--project", str(tmp_path / "runs"), "--noplots") == 0
    assert not (tmp_path / "runs").exists()
    assert val(trained[0], "--project", str(tmp_path / "runs"), "--noplots", "--save-txt", "--save-json") == 0
    folder = tmp_path / "runs" / "exp"
    assert {path.name for path in folder.iterdir()} == {"labels", "best_predictions.json"}
    rows = json.loads((folder / "best_predictions.json").read_text())
    lines = [line for path in (folder / "labels").iterdir() for line in path.read_text().splitlines()]
    assert len(rows) == len(lines) > 0
    assert {str(row["category_id"]) for row in rows} == {line.split()[0] for line in lines}


def test_val_without_matplotlib_scores_all_the_same_with_one_note(trained, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert val(trained[0], "--project", str(tmp_path)) == 0
    assert len([m for m in caplog.messages if m.startswith("note: no curves")]) == 1
    assert {path.suffix for path in (tmp_path / "exp").iterdir()} == {".jpg"}
