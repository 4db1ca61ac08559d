"""The training loop: train epoch by epoch, validate, save, stop when asked.

Owns the order of things. Every decision that needs numbers is made elsewhere: `recipe`, `optim`, `loss`, `evaluate`.
A run that is interrupted at any step and resumed takes the same steps as one that was not.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from enum import Enum

import torch

from remote.yolov9 import checkpoint, data, optim, snapshot
from remote.yolov9.data import Batch, Batches
from remote.yolov9.evaluate import Validation, evaluate, summarise
from remote.yolov9.loss import Loss, Weighing, detection_loss
from remote.yolov9.report import EpochRow, results_text
from remote.yolov9.run import Run


class Ending(Enum):
    """How a training ended."""

    DONE = "done"
    INTERRUPTED = "interrupted"


def fit(run: Run) -> Ending:
    """Train to the end, to the early stop or to an interruption; always leaves a resumable last.pt.

    Raises NonFiniteLoss, or OSError where the last files cannot be written; those on disk are then from the last save.
    """
    run.reporter.saves_every(run.pace.seconds)
    _try_validation(run)
    try:
        ending = _epochs(run)
    finally:
        run.writer.wait()
    snapshot.ensure_best(run)
    run.reporter.finish()
    if ending is Ending.DONE:
        run.gallery.validated(data.ValSet(run.job.val), run.ema.model)
        run.gallery.end(results_text(run.state.rows), run.validation.matches if run.validation else None)
    return ending


def _try_validation(run: Run) -> None:
    """One batch before anything is trained: what is wrong with the validation shows in the first minute."""
    if not run.batches_done:
        evaluate(run.ema.model, itertools.islice(run.val, 1), run.device, run.amp, lambda: True)


def _epochs(run: Run) -> Ending:
    state = run.state
    batches = data.train_batches(run.train, run.order, (state.epoch, state.step), run.loading)
    while not _at_the_end(run):
        validation = validate(run) if train_one_epoch(run, batches) else None
        stop = _asked_to_stop(run)
        if stop and validation is None:
            snapshot.save_last(run)
            return Ending.INTERRUPTED
        row = close_epoch(run, validation)
        if stop or _at_the_end(run):
            snapshot.save_last(run)
        else:
            snapshot.save_after_epoch(run)
        run.reporter.finished_epoch(state.rows, run.batches_done, state.best)
        run.reporter.log_epoch(row)
        if stop and not _at_the_end(run):
            return Ending.INTERRUPTED
    return Ending.DONE


def train_one_epoch(run: Run, batches: Batches) -> bool:
    """Train the rest of the present epoch. False: asked to stop before its end, and stopped at an optimiser step."""
    state, spe = run.state, run.order.steps_per_epoch
    run.network.train()
    run.reporter.start_epoch()
    waiting = 0
    while state.step < spe:
        run.schedule.apply(run.optimizer, run.batches_done)
        # An optimiser step never spans two epochs, so that the end of an epoch is a place to resume from.
        updates = waiting + 1 >= run.schedule.accumulate(run.batches_done) or state.step + 1 == spe
        batch = next(batches)
        run.gallery.trained(run.batches_done, batch)
        loss = backward(run, batch, synchronise=updates)
        state.losses += loss.terms
        state.step += 1
        waiting = 0 if updates else waiting + 1
        if updates:
            optim.gradient_step(run.model, run.optimizer, run.scaler)
            run.ema.update()
        _after_step(run, loss)
        if updates and state.step < spe and _asked_to_stop(run):
            return False
        if updates:
            snapshot.save_if_due(run)
    return True


def backward(run: Run, batch: Batch, *, synchronise: bool = True) -> Loss:
    """Forward and backward of one batch; gradients are averaged over ranks when `synchronise`."""
    images, targets = data.to_input(batch.images, run.device), batch.targets.to(run.device)
    config, state = run.job.config, run.state
    if config.multi_scale:
        images, targets = data.rescale(images, targets, run.order.size(state.epoch, state.step, config.image_size))
    quiet = contextlib.nullcontext() if synchronise or run.ranks.world == 1 else run.network.no_sync()  # type: ignore[operator]
    with quiet:
        with torch.autocast(run.device.type, run.amp, enabled=run.amp is not None):
            outputs = run.network(images)
        grid = run.model.grid(images.shape[2], images.shape[3], run.device)
        weighing = Weighing(run.job.recipe.hyp.cls_pw, run.ranks.share)
        loss = detection_loss(outputs.main, outputs.auxiliary, targets, grid, weighing)
        run.scaler.scale(loss.total * run.ranks.world).backward()  # type: ignore[no-untyped-call]
    return loss


def _after_step(run: Run, loss: Loss) -> None:
    """Progress, and the check for a loss that is not finite: each step on a CPU, about once a second on a GPU."""
    run.reporter.stepped(run.batches_done, run.order.batch)
    if run.device.type == "cpu" or run.reporter.due():
        snapshot.check_finite(run)
        run.reporter.beat(float(loss.terms.sum()))


def validate(run: Run) -> Validation | None:
    """Validation of the averaged weights, where this epoch has one. None also when asked to stop in between.

    The first epoch has one too: what is wrong with it shows early.
    """
    number, interval = run.state.epoch + 1, run.job.recipe.val_interval
    if number % interval and number not in (1, run.job.config.epochs):
        return None
    run.ranks.broadcast(t for t in run.ema.model.state_dict().values() if t.is_floating_point())

    def go_on() -> bool:
        run.reporter.beat()
        return not run.job.interrupt.requested

    part = evaluate(run.ema.model, run.val, run.device, run.amp, go_on)
    if run.ranks.any(part is None, run.device) or part is None:
        return None
    return summarise(part, run.ranks)


def _asked_to_stop(run: Run) -> bool:
    return run.ranks.any(run.job.interrupt.requested, run.device)


def close_epoch(run: Run, validation: Validation | None) -> EpochRow:
    """Close the present epoch: its row, the best weights, and on to the next."""
    state = run.state
    snapshot.check_finite(run)
    row = _row(run, validation)
    state.rows.append(row)
    run.gallery.epoch(row)
    run.validation = validation or run.validation
    if validation is not None and (state.best is None or row.fitness > state.best.fitness):
        state.best = row
        state.best_weights = checkpoint.half(run.ema.model.state_dict())
        snapshot.save_best(run)
    snapshot.save_epoch(run)
    state.epoch, state.step = state.epoch + 1, 0
    state.losses.zero_()
    return row


def _row(run: Run, validation: Validation | None) -> EpochRow:
    losses = torch.stack(run.ranks.gather(run.state.losses.cpu())).mean(0)
    box, cls, dfl = (losses / run.order.steps_per_epoch).tolist()
    biases, weights, norms = (float(group["lr"]) for group in run.optimizer.param_groups)
    scores = validation.scores if validation else None
    val_box, val_cls, val_dfl = validation.losses if validation else (math.nan,) * 3
    return EpochRow(
        epoch=run.state.epoch,
        train_box=box,
        train_cls=cls,
        train_dfl=dfl,
        precision=scores.precision if scores else math.nan,
        recall=scores.recall if scores else math.nan,
        map50=scores.map50 if scores else math.nan,
        map50_95=scores.map50_95 if scores else math.nan,
        val_box=val_box,
        val_cls=val_cls,
        val_dfl=val_dfl,
        lr_biases=biases,
        lr_weights=weights,
        lr_norms=norms,
    )


def _at_the_end(run: Run) -> bool:
    """Whether all epochs are done, or the last ones brought nothing better."""
    config, state = run.job.config, run.state
    waited = 0 if state.best is None else state.epoch - 1 - state.best.epoch
    return state.epoch >= config.epochs or 0 < config.patience <= waited
