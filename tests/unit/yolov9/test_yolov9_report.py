import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest

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


def test_what_is_saved_is_told_beside_where_the_training_is(tmp_path: Path):
    report = reporter(tmp_path)
    report.saved(12, 1)
    report.finished_epoch([ROW, UNSEEN], 20, ROW)
    progress = protocol.read(tmp_path / "progress.json", TaskProgress)
    assert (progress.saved_epoch, progress.saved_step) == (1, 12)


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


def read(path: Path) -> TaskProgress:
    return protocol.read(path / "progress.json", TaskProgress)


def test_a_resumed_attempt_tells_where_it_began_and_drops_rows_from_after_it(tmp_path: Path):
    (tmp_path / "results.csv").write_text(results_text([ROW, UNSEEN]))
    report = reporter(tmp_path)
    report.resumed([], 3, None)
    assert (read(tmp_path).resumed_step, read(tmp_path).step, read(tmp_path).epoch) == (3, 3, 0)
    assert (tmp_path / "results.csv").read_text() == results_text([])
    report.finished_epoch([ROW], 10, ROW)
    assert (read(tmp_path).resumed_step, read(tmp_path).step) == (3, 10)


def test_a_run_that_begins_resumed_nothing_and_has_no_results_yet(tmp_path: Path):
    report = reporter(tmp_path)
    report.saves_every(42.5)
    report.beat(3.0)
    assert (read(tmp_path).resumed_step, read(tmp_path).checkpoint_seconds) == (None, 42.5)
    assert not (tmp_path / "results.csv").exists()


def test_files_that_cannot_be_written_are_said_once_and_written_at_the_end(tmp_path: Path, caplog):
    blocked = tmp_path / "task"
    blocked.write_text("a file where the folder should be")
    report = reporter(blocked)
    with caplog.at_level(logging.WARNING, "yolov9"):
        report.finished_epoch([ROW], 10, ROW)
        report.finished_epoch([ROW, UNSEEN], 20, ROW)
    assert [message.split(" cannot")[0] for message in caplog.messages] == [
        f"warning: {blocked / name}" for name in ("results.csv", "progress.json")
    ]
    with pytest.raises(OSError, match="task"):
        report.finish()
    blocked.unlink()
    report.finish()
    assert (blocked / "results.csv").read_text() == results_text([ROW, UNSEEN])
    assert read(blocked).step == 20
