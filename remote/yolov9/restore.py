"""How a run continues: from the newest checkpoint that is whole, of this run, and in agreement with itself.

Everything is checked before anything is restored, so that a run is never half of one checkpoint. `snapshot` owns the
keys; the shapes that are expected are those of the run as it was built.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from remote.yolov9 import checkpoint, snapshot
from remote.yolov9.checkpoint import CheckpointError
from remote.yolov9.config import ConfigError
from remote.yolov9.report import EpochRow
from remote.yolov9.run import Run, State

log = logging.getLogger("yolov9")

_FOREIGN = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)
"""What looking at parts raises that are missing or of another kind."""


def resume(run: Run) -> None:
    """Continue from last.pt, or from the one before where last.pt cannot be used; start afresh where there is neither.

    What cannot be used is said and set aside. Raises ConfigError where a checkpoint belongs to another run.
    """
    found, faults = checkpoint.load_newest(run.paths.last, partial(check, run))
    for fault in faults.values():
        log.warning("warning: %s", fault)
    if run.ranks.leads:
        checkpoint.set_aside(run.paths.last, faults)
    if found is not None:
        _restore(run, found)
        log.info("resuming at epoch %d, step %d", run.state.epoch + 1, run.state.step)
    elif faults:
        log.warning("warning: no usable checkpoint in %s: starting at the first epoch", run.paths.weights)


def check(run: Run, path: Path, found: checkpoint.State) -> None:
    """Raise ConfigError for a checkpoint of another run, CheckpointError for one whose parts do not agree."""
    try:
        mine, theirs = snapshot.identity(run), found["run"]
        for key in {**mine, **theirs}:
            if theirs.get(key) != mine.get(key):
                raise ConfigError(f"{key} is {mine.get(key)!r}, but {path} was made with {theirs.get(key)!r}")
        problem = next(_problems(run, found), None)
    except _FOREIGN as error:
        raise CheckpointError(f"{path}: not a checkpoint of this trainer ({type(error).__name__}: {error})") from error
    if problem is not None:
        raise CheckpointError(f"{path}: its parts do not agree: {problem}")


def _problems(run: Run, found: checkpoint.State) -> Iterator[str]:
    yield from _place(run, found)
    yield from _weights(run, found)
    yield from _updates(run, found)
    yield from _optimizer(run, found)
    checkpoint.try_random_state(found["random"])


def _place(run: Run, found: checkpoint.State) -> Iterator[str]:
    """Epoch, step and the rows that must be there by then."""
    epoch, step, last_step = found["epoch"], found["step"], run.order.steps_per_epoch
    if epoch < 0 or not 0 <= step <= last_step or epoch + step == 0:
        yield f"epoch {epoch}, step {step}, where an epoch has {last_step} steps"
    rows = [EpochRow.from_dict(row) for row in found["rows"]]
    if [row.epoch for row in rows] != list(range(epoch)):
        yield f"{len(rows)} rows of results after {epoch} epochs"
    losses = found["losses"]
    if losses.shape != run.state.losses.shape or not bool(losses.isfinite().all()):
        yield f"the sums of losses are {losses.tolist()}"
    best = found["best"] and EpochRow.from_dict(found["best"])
    if best is not None and rows[best.epoch].fitness != best.fitness:
        yield f"epoch {best.epoch} is the best with other figures than in its row"


def _weights(run: Run, found: checkpoint.State) -> Iterator[str]:
    """Model, average and best weights: the tensors of this model."""
    mine = run.model.state_dict()
    for name, state in (("model", found["model"]), ("ema", found["ema"]["model"])):
        if _layout(state) != _layout(mine):
            yield f"{name} has other tensors than a {run.job.config.model}"
    best = _layout(found["best_weights"])
    if best != ({} if found["best"] is None else _layout(checkpoint.half(mine))):
        yield "best_weights are not those of a best epoch"


def _layout(state: dict[str, Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in state.items()}


def _updates(run: Run, found: checkpoint.State) -> Iterator[str]:
    """Optimiser steps, as the average has counted them: as many batches, or as few as accumulation allows."""
    batches = found["epoch"] * run.order.steps_per_epoch + found["step"]
    updates = found["ema"]["updates"]
    if not -(-batches // run.job.recipe.accumulate) <= updates <= batches:
        yield f"the average has {updates} updates after {batches} steps"


def _optimizer(run: Run, found: checkpoint.State) -> Iterator[str]:
    """A state for each parameter, of its shape, and all of the same step."""
    saved, groups = found["optimizer"], run.optimizer.param_groups
    if [len(group["params"]) for group in saved["param_groups"]] != [len(group["params"]) for group in groups]:
        yield "the optimiser has other groups of parameters"
    if found["scaler"] and not saved["state"]:
        return  # all steps so far were left out because their gradients overflowed
    keys = ("exp_avg", "exp_avg_sq") if run.job.recipe.optimizer == "adamw" else ("momentum_buffer",)
    parameters = [parameter for group in groups for parameter in group["params"]]
    for number, parameter in enumerate(parameters):
        state = saved["state"].get(number, {})
        wrong = [key for key in keys if key not in state or state[key].shape != parameter.shape]
        if wrong:
            yield f"the optimiser has no {wrong[0]} for parameter {number} of shape {tuple(parameter.shape)}"
    steps = {int(state["step"]) for state in saved["state"].values() if "step" in state}
    if len(steps) > 1 or any(step > found["ema"]["updates"] for step in steps):
        yield f"the optimiser is at step {sorted(steps)}, the average has {found['ema']['updates']} updates"


def _restore(run: Run, found: checkpoint.State) -> None:
    run.model.load_state_dict(found["model"])
    run.ema.load_state_dict(found["ema"])
    run.optimizer.load_state_dict(found["optimizer"])
    if found["scaler"]:  # none where the machine before computed in another precision
        run.scaler.load_state_dict(found["scaler"])
    run.state = State(
        epoch=found["epoch"],
        step=found["step"],
        losses=found["losses"].to(run.device),
        rows=[EpochRow.from_dict(row) for row in found["rows"]],
        best=None if found["best"] is None else EpochRow.from_dict(found["best"]),
        best_weights=found["best_weights"],
    )
    _set_rates(run)
    checkpoint.restore_random_state(found["random"])
    snapshot.save_best(run)
    run.reporter.resumed(run.state.rows, run.batches_done, run.state.best)


def _set_rates(run: Run) -> None:
    """Learning rates are the schedule's at the last step, whatever the checkpoint has; a difference is said."""
    saved = [float(group["lr"]) for group in run.optimizer.param_groups]
    run.schedule.apply(run.optimizer, run.batches_done - 1)
    rates = [float(group["lr"]) for group in run.optimizer.param_groups]
    if rates != saved:
        told = (", ".join(f"{rate:.3g}" for rate in several) for several in (saved, rates))
        log.warning("warning: learning rates were %s and go on with %s: hyp or epochs have changed", *told)
