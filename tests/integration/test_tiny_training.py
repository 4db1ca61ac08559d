"""The trainer from its entry point to its files, on small pictures: learning, resuming, two processes, bad input."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import ROOT, SIZE, assert_same, command, last, rows, start, train

from remote import protocol
from remote.protocol import EXIT_BAD_INPUT, EXIT_DONE, EXIT_INTERRUPTED, TaskProgress
from remote.yolov9 import engine

pytestmark = pytest.mark.usefixtures("one_thread")

Config = Callable[..., dict[str, Any]]


def test_a_run_stopped_at_any_step_and_resumed_equals_one_that_was_not(config):
    whole = config("whole")
    assert engine.fit(start(whole)) is engine.Ending.DONE
    expected = last(whole)
    for step in range(1, 6):  # three steps an epoch: 3 stops inside the validation
        broken = config(f"broken{step}", checkpoint_seconds=0)
        assert engine.fit(start(broken, stop_after=step)) is engine.Ending.INTERRUPTED
        run = start(broken)
        assert run.batches_done == step
        assert engine.fit(run) is engine.Ending.DONE
        assert_same(last(broken), expected)
        assert rows(broken) == rows(whole)


def test_accumulated_gradients_are_never_lost_between_two_starts(config):
    whole, broken = (config(name, optimizer="sgd", batch=2, hyp={"warmup_epochs": 0}) for name in ("whole", "broken"))
    engine.fit(start(whole))
    # Gradients are gathered over the whole epoch here, so the first place to stop is its end, whatever is asked.
    assert engine.fit(start(broken, stop_after=1)) is engine.Ending.INTERRUPTED
    run = start(broken)
    assert run.batches_done == 6
    engine.fit(run)
    assert_same(last(broken), last(whole))


def test_a_finished_run_resumes_to_its_end_at_once_and_rewrites_its_files(config):
    raw = config(epochs=1)
    engine.fit(start(raw))
    output = Path(raw["output"])
    before = last(raw)
    for name in ("results.csv", "weights/best.pt", "progress.json"):
        (output / name).unlink()
    assert engine.fit(start(raw)) is engine.Ending.DONE
    assert_same(last(raw), before)
    assert len(rows(raw)) == 1
    assert (output / "weights" / "best.pt").exists()
    assert protocol.read(output / "progress.json", TaskProgress).epoch == 1


def test_a_torn_last_checkpoint_costs_one_epoch_and_no_more(config):
    whole, raw = config("whole"), config("torn")
    engine.fit(start(whole))
    engine.fit(start(raw))
    path = Path(raw["output"]) / "weights" / "last.pt"
    path.write_bytes(path.read_bytes()[:1000])
    run = start(raw)
    assert run.state.epoch == 1
    engine.fit(run)
    assert_same(last(raw), last(whole))


def test_a_checkpoint_of_another_run_is_refused_by_name(config):
    engine.fit(start(config(epochs=1)))
    with pytest.raises(Exception, match=r"batch is 6, but .*last\.pt was made with 4"):
        start(config(epochs=1, batch=6))


def test_training_stops_early_without_patience(config):
    raw = config(epochs=6, patience=1, hyp={"lr0": 0.0})
    assert engine.fit(start(raw)) is engine.Ending.DONE
    assert len(rows(raw)) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_sigterm_to_all_its_processes_saves_and_exits_75_and_the_next_start_finishes(config, tmp_path, workers):
    """A machine that goes down asks every process to stop, loaders too."""
    whole, broken = (config(name, epochs=3, workers=workers) for name in ("whole", "broken"))
    process = subprocess.Popen(
        command(broken, tmp_path), cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    progress = Path(broken["output"]) / "progress.json"
    deadline = time.monotonic() + 120
    while not progress.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == EXIT_INTERRUPTED, errors
    assert "Traceback" not in errors
    assert train(broken, tmp_path).returncode == EXIT_DONE
    done = train(whole, tmp_path)
    assert done.returncode == EXIT_DONE, done.stderr
    assert_same(last(broken), last(whole))
    assert [row["epoch"] for row in rows(broken)] == ["0", "1", "2"]
    assert len([line for line in done.stderr.splitlines() if line.startswith("epoch ")]) == 3


def test_best_pt_is_a_plain_half_precision_file_and_validation_losses_are_real(config):
    raw = config(epochs=1)
    engine.fit(start(raw))
    best = torch.load(Path(raw["output"]) / "weights" / "best.pt", weights_only=True)
    assert (best["model"], best["names"], best["image_size"]) == ("yolov9-t", ["bright", "dark"], SIZE)
    assert {t.dtype for t in best["weights"].values()} == {torch.float16, torch.int64}
    assert all(float(rows(raw)[0][f"val/{name}_loss"]) > 0 for name in ("box", "cls", "dfl"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 3}, "error: unknown key 'epoch'; did you mean 'epochs'?"),
        ({"image_size": 100}, "error: image_size is 100: expected a multiple of 32, such as 96 or 128"),
        ({"data": "/nowhere/set"}, "/nowhere/set"),
        ({"device": "cuda"}, "error: device is 'cuda': process 0 sees 0 CUDA devices"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(config, tmp_path, changes, message):
    if changes.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = train(config(**changes), tmp_path)
    assert done.returncode == EXIT_BAD_INPUT
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_loss_that_is_not_finite_stops_and_keeps_the_good_checkpoint(config, tmp_path):
    raw = config(epochs=3)
    assert engine.fit(start(raw, stop_after=2)) is engine.Ending.INTERRUPTED
    kept = last(raw)
    done = train({**raw, "hyp": {"lr0": 1e30, "warmup_epochs": 0}}, tmp_path)
    assert done.returncode == 1
    assert "error: the " in done.stderr
    assert "not finite" in done.stderr
    assert "Traceback" not in done.stderr
    assert_same(last(raw), kept)


def test_two_processes_train_one_model(config, tmp_path):
    raw = config("ddp")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = train(raw, tmp_path, *launcher)
    assert done.returncode == EXIT_DONE, done.stderr
    assert [row["epoch"] for row in rows(raw)] == ["0", "1"]
    assert all(float(row[f"{part}/cls_loss"]) > 0 for row in rows(raw) for part in ("train", "val"))
    assert last(raw)["step"] == 0
    refused = train(config("odd", batch=5), tmp_path, *launcher)
    assert refused.returncode != EXIT_DONE
    assert "error: batch is 5: not a multiple of the 2 processes" in refused.stderr


def test_the_probe_prints_one_line_of_json():
    argv = [sys.executable, "-m", "remote.yolov9.probe", "--image-size", "64", "--batch", "4", "--seconds", "0.5"]
    done = subprocess.run(
        [*argv, "--device", "cpu", "--threads", "1"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    answer = json.loads(done.stdout)
    assert min(answer[key] for key in ("images_per_second", "val_images_per_second", "peak_memory_gib")) > 0


@pytest.mark.slow
def test_it_learns_to_find_the_squares(config):
    raw = config(epochs=50, val_interval=10)
    engine.fit(start(raw))
    assert float(rows(raw)[-1]["metrics/mAP_0.5"]) >= 0.5
