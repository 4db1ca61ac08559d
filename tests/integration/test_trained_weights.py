"""From a training to its weights in use: `val` says what the training said of them, for each class too."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny_training import make_squares, rows, settings, start

from remote.yolov9 import commands, engine


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
    return commands.main(["val", *fixed, *argv])


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
