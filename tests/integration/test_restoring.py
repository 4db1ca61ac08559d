"""Which checkpoints are taken, and that one that is not taken leaves no trace in the run."""

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import build, settings

from remote import protocol
from remote.protocol import TaskProgress
from remote.yolov9 import checkpoint, engine, restore
from remote.yolov9.checkpoint import CheckpointError
from remote.yolov9.config import ConfigError
from remote.yolov9.run import Run

pytestmark = pytest.mark.usefixtures("one_thread")

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def saved(squares: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The checkpoint of a run that was stopped in the second epoch, after step 4 of 6."""
    run = build(settings(squares, tmp_path_factory.mktemp("saved")), stop_after=4)
    engine.fit(run)
    return checkpoint.load(run.paths.last)


@pytest.fixture(scope="module")
def fresh(squares: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return build(settings(squares, tmp_path_factory.mktemp("fresh")))


def changed(saved: dict[str, Any], change: Change) -> dict[str, Any]:
    found = copy.deepcopy(saved)
    change(found)
    return found


def assign(*keys: Any, value: Any) -> Change:
    def change(found: dict[str, Any]) -> None:
        for key in keys[:-1]:
            found = found[key]
        found[keys[-1]] = value

    return change


def first_parameter(found: dict[str, Any]) -> dict[str, Any]:
    return found["optimizer"]["state"][0]


def test_a_checkpoint_of_this_run_is_taken(fresh, saved):
    restore.check(fresh, Path("last.pt"), saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (assign("step", value=4), "epoch 1, step 4, where an epoch has 3 steps"),
        (assign("epoch", value=2), "1 rows of results after 2 epochs"),
        (assign("epoch", value=-1), "epoch -1, step 1"),
        (lambda found: found["rows"].clear(), "0 rows of results after 1 epochs"),
        (assign("rows", 0, "epoch", value=3), "1 rows of results after 1 epochs"),
        (assign("rows", 0, "map50_95", value=0.9), "epoch 0 is the best with other figures"),
        (assign("losses", value=torch.tensor([1.0, torch.nan, 1.0])), "the sums of losses are"),
        (assign("losses", value=torch.ones(2)), "the sums of losses are"),
        (assign("best_weights", value={}), "best_weights are not those of a best epoch"),
        (assign("best", value=None), "best_weights are not those of a best epoch"),
        (lambda found: found["model"].popitem(), "model has other tensors than a yolov9-t"),
        (lambda found: found["ema"]["model"].popitem(), "ema has other tensors than a yolov9-t"),
        (assign("ema", "updates", value=3), "the average has 3 updates after 4 steps"),
        (assign("ema", "updates", value=5), "the average has 5 updates after 4 steps"),
        (lambda found: found["optimizer"]["state"].pop(7), "no exp_avg for parameter 7 of shape"),
        (lambda found: found["optimizer"]["state"].clear(), "no exp_avg for parameter 0 of shape"),
        (lambda found: first_parameter(found).update(exp_avg_sq=torch.ones(1)), "no exp_avg_sq for parameter 0"),
        (lambda found: first_parameter(found)["step"].sub_(1), r"the optimiser is at step \[3, 4\]"),
        (lambda found: found["optimizer"]["param_groups"].pop(), "the optimiser has other groups"),
        (assign("random", "torch", value=torch.zeros(3, dtype=torch.uint8)), "RuntimeError"),
        (assign("random", "python", value=(3, (1, 2), None)), "ValueError"),
        (lambda found: found["random"].pop("numpy"), "KeyError: 'numpy'"),
        (lambda found: found.pop("optimizer"), "KeyError: 'optimizer'"),
        (lambda found: found.pop("run"), "KeyError: 'run'"),
        (assign("epoch", value="1"), "TypeError"),
    ],
)  # fmt: skip
def test_one_whose_parts_do_not_agree_is_named_with_what_does_not(fresh, saved, change, message):
    with pytest.raises(CheckpointError, match=rf"^last\.pt: .*{message}"):
        restore.check(fresh, Path("last.pt"), changed(saved, change))


def test_one_of_another_run_is_an_error_and_not_a_fault(fresh, saved):
    with pytest.raises(ConfigError, match=r"seed is 0, but last\.pt was made with 1"):
        restore.check(fresh, Path("last.pt"), changed(saved, assign("run", "seed", value=1)))


def test_steps_that_a_scaler_left_out_are_no_disagreement(fresh, saved):
    def overflowed(found: dict[str, Any]) -> None:
        found["scaler"] = {"scale": 2.0}
        found["optimizer"]["state"].clear()

    restore.check(fresh, Path("last.pt"), changed(saved, overflowed))


def test_the_one_before_is_taken_the_other_set_aside_and_nothing_of_it_restored(squares, tmp_path, saved, caplog):
    run = build(settings(squares, tmp_path))
    checkpoint.save(run.paths.last, saved)
    wrong = changed(saved, assign("ema", "updates", value=99))
    for tensor in wrong["model"].values():
        tensor.zero_()
    checkpoint.save(run.paths.last, wrong, keep_previous=True)
    with caplog.at_level(logging.WARNING, "yolov9"):
        restore.resume(run)
    assert "last.pt: its parts do not agree: the average has 99 updates after 4 steps" in caplog.text
    assert all(torch.equal(t, saved["model"][name]) for name, t in run.model.state_dict().items())
    names = {path.name for path in run.paths.weights.iterdir()}
    assert names >= {"last.pt", "last.previous.pt", "last.unusable.pt"}
    assert checkpoint.load(run.paths.last)["ema"]["updates"] == 4
    assert protocol.read(run.paths.progress, TaskProgress).resumed_step == 4


def test_a_good_checkpoint_is_never_dropped_for_one_that_was_refused(squares, tmp_path, saved):
    run = build(settings(squares, tmp_path), stop_after=5)
    checkpoint.save(run.paths.last, saved)
    run.paths.last.rename(run.paths.previous)
    run.paths.last.write_bytes(b"torn")
    restore.resume(run)
    engine.fit(run)
    assert checkpoint.load(run.paths.last)["step"] == 2
    assert checkpoint.load(checkpoint.previous(run.paths.last))["step"] == 1


def test_where_both_are_refused_the_run_begins_again_as_it_was_built(squares, tmp_path, saved, caplog):
    run, untouched = build(settings(squares, tmp_path)), build(settings(squares, tmp_path / "other"))
    for keep in (False, True):
        checkpoint.save(run.paths.last, changed(saved, lambda found: found.pop("scaler")), keep_previous=keep)
    random_before = torch.get_rng_state()
    with caplog.at_level(logging.WARNING, "yolov9"):
        restore.resume(run)
    assert "no usable checkpoint in" in caplog.text
    assert checkpoint.digest(run.model.state_dict()) == checkpoint.digest(untouched.model.state_dict())
    assert torch.equal(torch.get_rng_state(), random_before)
    assert (run.batches_done, run.ema.updates, run.optimizer.state_dict()["state"]) == (0, 0, {})


def test_a_resumed_run_has_the_optimiser_the_rates_the_average_and_the_random_states(squares, tmp_path, saved):
    run = build(settings(squares, tmp_path))
    checkpoint.save(run.paths.last, saved)
    restore.resume(run)
    assert (run.state.epoch, run.state.step, run.ema.updates) == (1, 1, 4)
    assert checkpoint.digest(run.optimizer.state_dict()) == checkpoint.digest(saved["optimizer"])
    assert checkpoint.digest(checkpoint.random_state()) == checkpoint.digest(saved["random"])
    rates = [group["lr"] for group in run.optimizer.param_groups]
    assert rates == [group["lr"] for group in saved["optimizer"]["param_groups"]]
    run.schedule.apply(run.optimizer, 3)
    assert rates == [group["lr"] for group in run.optimizer.param_groups]


def test_changed_learning_rates_are_said(squares, tmp_path, saved, caplog):
    run = build(settings(squares, tmp_path, hyp={"lr0": 0.5}))
    checkpoint.save(run.paths.last, saved)
    with caplog.at_level(logging.WARNING, "yolov9"):
        restore.resume(run)
    assert "hyp or epochs have changed" in caplog.text


def test_a_checkpoint_of_another_precision_is_taken(squares, tmp_path, saved):
    """A machine with bf16 is taken away, the next one has fp16 and a scaler: the checkpoint has no scaler's state."""
    run = build(settings(squares, tmp_path))
    run.scaler = torch.amp.GradScaler("cpu", enabled=True)
    checkpoint.save(run.paths.last, saved)
    restore.resume(run)
    assert run.batches_done == 4
