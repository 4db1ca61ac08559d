"""What of a run is saved, and how it continues. Owns the keys of last.pt and best.pt; `checkpoint` owns the file."""

from __future__ import annotations

import logging
import time

from remote.yolov9 import checkpoint, optim
from remote.yolov9.config import ConfigError
from remote.yolov9.report import EpochRow
from remote.yolov9.run import Run, State

log = logging.getLogger("yolov9")


class NonFiniteLoss(Exception):
    """The loss or the weights are no longer finite; the last checkpoint on disk is from before."""


def check_finite(run: Run) -> None:
    """Raise NonFiniteLoss if any loss of this epoch so far was not finite."""
    if not bool(run.state.losses.isfinite().all()):
        place = f"epoch {run.state.epoch + 1}, step {run.state.step}"
        raise NonFiniteLoss(f"the loss is not finite at {place}; try a lower lr0, or amp off")


def save_last(run: Run) -> None:
    """Write last.pt with everything a resume needs. Raises NonFiniteLoss instead of overwriting a good one."""
    check_finite(run)
    if not optim.all_finite(run.model.state_dict().values()):
        raise NonFiniteLoss(f"the weights are not finite at epoch {run.state.epoch + 1}, step {run.state.step}")
    run.saved_at = time.monotonic()
    if run.ranks.leads:
        checkpoint.save(run.paths.last, _content(run), keep_previous=True)


def save_best(run: Run) -> None:
    """Write best.pt: what is needed to run the detector, and nothing else."""
    best = run.state.best
    if not run.ranks.leads or best is None:
        return
    content = {
        "model": run.job.config.model,
        "names": list(run.job.names),
        "image_size": run.job.config.image_size,
        "epoch": best.epoch,
        "map50": best.map50,
        "map50_95": best.map50_95,
        "weights": run.state.best_weights,
    }
    checkpoint.save(run.paths.best, content)


def resume(run: Run) -> None:
    """Continue from last.pt, or from the one before where last.pt is damaged; start afresh where there is neither.

    Raises ConfigError where the checkpoint belongs to another run.
    """
    found, faults = checkpoint.load_newest(run.paths.last)
    for fault in faults:
        log.warning("warning: %s", fault)
    if found is None:
        if faults:
            log.warning("warning: no usable checkpoint in %s: starting at the first epoch", run.paths.weights)
        return
    for key, mine in _identity(run).items():
        if found["run"].get(key) != mine:
            raise ConfigError(f"{key} is {mine!r}, but {run.paths.last} was made with {found['run'].get(key)!r}")
    _restore(run, found)
    log.info("resuming at epoch %d, step %d", run.state.epoch + 1, run.state.step)


def _content(run: Run) -> checkpoint.State:
    state = run.state
    return {
        "run": _identity(run),
        "epoch": state.epoch,
        "step": state.step,
        "losses": state.losses,
        "rows": [row.to_dict() for row in state.rows],
        "best": None if state.best is None else state.best.to_dict(),
        "best_weights": state.best_weights,
        "model": run.model.state_dict(),
        "ema": run.ema.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "scaler": run.scaler.state_dict(),
        "random": checkpoint.random_state(),
    }


def _identity(run: Run) -> checkpoint.State:
    """What must be the same for a checkpoint to continue this run."""
    config = run.job.config
    return {
        "model": config.model,
        "names": list(run.job.names),
        "image_size": config.image_size,
        "seed": config.seed,
        "batch": run.job.recipe.batch,
        "optimizer": run.job.recipe.optimizer,
        "pictures": run.order.pictures,
    }


def _restore(run: Run, found: checkpoint.State) -> None:
    run.model.load_state_dict(found["model"])
    run.ema.load_state_dict(found["ema"])
    run.optimizer.load_state_dict(found["optimizer"])
    run.scaler.load_state_dict(found["scaler"])
    run.state = State(
        epoch=found["epoch"],
        step=found["step"],
        losses=found["losses"].to(run.device),
        rows=[EpochRow.from_dict(row) for row in found["rows"]],
        best=None if found["best"] is None else EpochRow.from_dict(found["best"]),
        best_weights=found["best_weights"],
    )
    checkpoint.restore_random_state(found["random"])
    save_best(run)
    if run.state.rows:
        run.reporter.finished_epoch(run.state.rows, run.batches_done, run.state.best)
