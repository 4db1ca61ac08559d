"""What of a run is saved, and when. Owns the keys of last.pt and best.pt; the file is `checkpoint`'s.

last.pt is copied at a step boundary and written beside the training; at the end, when the process is about to go, it is
written in place. `restore` is the way back.
"""

from __future__ import annotations

import time
from functools import partial

from torch import Tensor

from remote.yolov9 import checkpoint, optim
from remote.yolov9.report import EpochRow
from remote.yolov9.run import Run


class NonFiniteLoss(Exception):
    """The loss or the weights are no longer finite; the last checkpoint on disk is from before."""


def check_finite(run: Run) -> None:
    """Raise NonFiniteLoss if any loss of this epoch so far was not finite."""
    if not bool(run.state.losses.isfinite().all()):
        place = f"epoch {run.state.epoch + 1}, step {run.state.step}"
        raise NonFiniteLoss(f"the loss is not finite at {place}; try a lower lr0, or amp off")


def save_if_due(run: Run) -> None:
    """At a step boundary: copy what a resume needs, where it is time, or was asked for, and the copy before is written.

    Training stands still for the copy alone, and for so long the next save counts. Raises NonFiniteLoss instead of
    overwriting a good checkpoint.
    """
    if run.ranks.leads and run.paths.save_request.exists():
        run.paths.save_request.unlink(missing_ok=True)
        run.pace.hurry()
    if not run.pace.due(time.monotonic()) or run.writer.busy(run.paths.last):
        return
    check_finite(run)  # waits for a GPU, which is no part of a save
    started = time.monotonic()
    state = _finite_content(run)
    if run.ranks.leads:
        told = partial(run.reporter.saved, run.batches_done, run.state.epoch)
        run.writer.write(run.paths.last, run.host.take(state), keep_previous=True, written=told)
    now = time.monotonic()
    run.pace.saved(now, now - started)
    run.reporter.saves_every(run.pace.seconds)


def save_after_epoch(run: Run) -> None:
    """The first epoch is saved whatever the time is, so that there is something early; later ones where it is due."""
    if run.state.epoch == 1:
        run.pace.hurry()
    save_if_due(run)


def save_last(run: Run) -> None:
    """Write last.pt before going on, when nothing else is under way. Raises NonFiniteLoss, or OSError."""
    check_finite(run)
    state = _finite_content(run)
    if run.ranks.leads:
        run.writer.write_now(run.paths.last, state, keep_previous=True)
        run.reporter.saved(run.batches_done, run.state.epoch)


def save_epoch(run: Run) -> None:
    """Have epochN.pt, which is never written over, written beside the training where its epoch is one to keep."""
    period, number = run.job.config.save_period, run.state.epoch + 1
    if run.ranks.leads and period and number % period == 0:
        content = _weights_content(run, run.state.rows[-1], checkpoint.half(run.ema.model.state_dict()))
        run.writer.write(run.paths.weights / f"epoch{number}.pt", content)


def save_best(run: Run) -> None:
    """Have best.pt written beside the training."""
    if run.ranks.leads and run.state.best is not None:
        run.writer.write(run.paths.best, _weights_content(run, run.state.best, run.state.best_weights))


def ensure_best(run: Run) -> None:
    """At the end: write best.pt if that did not succeed before. Raises OSError."""
    if run.state.best is not None and run.writer.failed(run.paths.best):
        run.writer.write_now(run.paths.best, _weights_content(run, run.state.best, run.state.best_weights))


def content(run: Run) -> checkpoint.State:
    """Everything a resume needs. The tensors are those of the run: they change with its next step."""
    state = run.state
    return {
        "run": identity(run),
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


def _weights_content(run: Run, row: EpochRow, weights: dict[str, Tensor]) -> checkpoint.State:
    """What is needed to run the detector, and nothing else; its tensors never change."""
    return {
        "model": run.job.config.model,
        "names": list(run.job.names),
        "image_size": run.job.config.image_size,
        "epoch": row.epoch,
        "map50": row.map50,
        "map50_95": row.map50_95,
        "weights": weights,
    }


def identity(run: Run) -> checkpoint.State:
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
        **({"freeze": list(config.freeze)} if config.freeze else {}),
    }


def _finite_content(run: Run) -> checkpoint.State:
    state = content(run)
    if not optim.all_finite(state["model"].values()):
        raise NonFiniteLoss(f"the weights are not finite at epoch {run.state.epoch + 1}, step {run.state.step}")
    return state
