import logging
import math
from dataclasses import replace
from pathlib import Path

from remote import protocol
from remote.protocol import TaskPaths, TaskProgress
from remote.yolov9.report import EpochRow, Reporter, results_text

ROW = EpochRow(0, 1.5, 2.25, 1.0, 0.5, 0.25, 0.4, 0.2, 1.1, 0.9, 1.0, 0.001, 0.002, 0.003)
UNSEEN = replace(ROW, epoch=1, precision=math.nan, recall=math.nan, map50=math.nan, map50_95=math.nan)


def test_results_have_the_documented_columns_padded_to_twenty():
    header, first, second = results_text([ROW, UNSEEN]).splitlines()
    assert [name.strip() for name in header.split(",")] == [
        "epoch", "train/box_loss", "train/cls_loss", "train/dfl_loss", "metrics/precision", "metrics/recall",
        "metrics/mAP_0.5", "metrics/mAP_0.5:0.95", "val/box_loss", "val/cls_loss", "val/dfl_loss", "x/lr0", "x/lr1",
        "x/lr2",
    ]  # fmt: skip
    assert {len(cell) for line in (header, first) for cell in line.split(",")} <= {20, 21}
    assert [float(cell) for cell in first.split(",")][:4] == [0, 1.5, 2.25, 1]
    assert math.isnan(float(second.split(",")[6]))


def test_a_row_survives_the_checkpoint():
    assert EpochRow.from_dict(ROW.to_dict()) == ROW


def reporter(path: Path, *, leads: bool = True) -> Reporter:
    return Reporter(TaskPaths(path), epochs=5, steps=50, leads=leads)


def test_progress_is_written_at_once_and_then_once_a_second(tmp_path: Path):
    report = reporter(tmp_path)
    report.start_epoch()
    report.stepped(1, 8)
    report.beat(3.0)
    report.stepped(2, 8)
    report.beat(2.0)
    progress = protocol.read(tmp_path / "progress.json", TaskProgress)
    assert (progress.step, progress.steps, progress.loss) == (1, 50, 3.0)
    assert progress.peak_memory_gib > 0


def test_the_end_of_an_epoch_is_always_written(tmp_path: Path):
    report = reporter(tmp_path)
    report.beat(3.0)
    report.finished_epoch([ROW, UNSEEN], 20, ROW)
    progress = protocol.read(tmp_path / "progress.json", TaskProgress)
    assert (progress.epoch, progress.step, progress.map50, progress.best_map50_95) == (2, 20, 0.4, 0.2)
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 3


def test_other_ranks_write_nothing(tmp_path: Path):
    report = reporter(tmp_path, leads=False)
    report.beat(3.0)
    report.finished_epoch([ROW], 10, ROW)
    assert list(tmp_path.iterdir()) == []


def test_an_epoch_is_one_log_line(tmp_path: Path, caplog):
    with caplog.at_level(logging.INFO, "yolov9"):
        reporter(tmp_path).log_epoch(ROW)
        reporter(tmp_path).log_epoch(UNSEEN)
    first, second = caplog.messages
    assert first == "epoch 1/5  box 1.500 cls 2.250 dfl 1.000  mAP50 0.400 mAP50-95 0.200  0.0 img/s"
    assert "mAP" not in second
