"""What "auto" becomes: the recipe of a run, from its configuration and the size of its data set. Pure.

Two recipes, chosen by the number of optimiser steps. Long runs follow the reference: SGD, linear decay, strong
augmentation. Short runs cannot afford its slow start: AdamW, cosine decay, milder augmentation, and averages that
turn over within the run. README.md of this package gives the measurements behind the numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from remote.yolov9.blocks import NORM_MOMENTUM
from remote.yolov9.config import Hyp, TrainConfig

NOMINAL_BATCH = 64
"""Gradients are accumulated to this many pictures in long runs; weight decay is meant for it."""
SHORT_STEPS = 10_000
"""Fewer batches than this: a short run."""
WARMUP_STEPS = 100
"""The warm-up of a long run is not shorter."""
WARMUP_SHARE = {"sgd": 0.5, "adamw": 0.1}
"""The warm-up takes at most this share of the steps."""
EMA_DECAY, EMA_RAMP = 0.9999, 2000.0
"""Of the average with SGD, as the reference has it: in a short run hardly an average. One over a tenth of the run lags
behind weights that still improve, and costs more there than it gains."""
SHORT_NORM_MOMENTUM = 0.1
"""Of the norm statistics in short runs: the usual 0.03 leaves them behind the weights."""
VAL_COST = 0.25
"""Time of a validation picture over that of a training picture."""
FEWEST_STEPS = 350
"""A batch is chosen such that a run has this many, where the data set allows."""
VAL_SHARE = 0.06
"""Validation may take this share of the training time before it gets rarer."""

LONG = Hyp()
SHORT = Hyp(lr0=0.004, momentum=0.9, weight_decay=0.01, scale=0.5, mixup=0.0, copy_paste=0.0)
"""`lr0` is for a batch of 16 or more; smaller ones get less, see `_short_hyp`."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that follows from configuration and data set size; steps are batches."""

    optimizer: str
    hyp: Hyp
    batch: int
    steps_per_epoch: int
    steps: int
    lr_schedule: str
    accumulate: int
    weight_decay: float
    warmup_steps: int
    warmup_bias_lr: float
    ema_decay: float
    ema_ramp: float
    """Optimiser steps."""
    norm_momentum: float
    mosaic_epochs: int
    """The first so many epochs draw mosaics."""
    val_interval: int


def choose(config: TrainConfig, train_pictures: int, val_pictures: int) -> Recipe:
    """The recipe for a data set of that size."""
    batch = config.batch or auto_batch(config.epochs, train_pictures)
    steps_per_epoch = -(-train_pictures // batch)
    steps = steps_per_epoch * config.epochs
    optimizer = _optimizer(config.optimizer, steps)
    adamw = optimizer == "adamw"
    hyp = replace(_short_hyp(batch) if adamw else LONG, **config.hyp)
    accumulate = config.accumulate or (1 if adamw else max(round(NOMINAL_BATCH / batch), 1))
    ema_decay, ema_ramp = _short_average(steps) if adamw else (EMA_DECAY, EMA_RAMP)
    return Recipe(
        optimizer=optimizer,
        hyp=hyp,
        batch=batch,
        steps_per_epoch=steps_per_epoch,
        steps=steps,
        lr_schedule=_schedule(config.lr_schedule, optimizer),
        accumulate=accumulate,
        weight_decay=hyp.weight_decay * (1 if adamw else batch * accumulate / NOMINAL_BATCH),
        warmup_steps=_warmup_steps(hyp, steps_per_epoch, int(steps * WARMUP_SHARE[optimizer])),
        warmup_bias_lr=0.0 if adamw else hyp.warmup_bias_lr,
        ema_decay=ema_decay,
        ema_ramp=ema_ramp,
        norm_momentum=SHORT_NORM_MOMENTUM if adamw else NORM_MOMENTUM,
        mosaic_epochs=config.epochs - _close_mosaic(config, short=steps < SHORT_STEPS),
        val_interval=config.val_interval or _val_interval(train_pictures, val_pictures),
    )


def _optimizer(wanted: str, steps: int) -> str:
    if wanted == "auto":
        return "adamw" if steps < SHORT_STEPS else "sgd"
    return wanted


def _schedule(wanted: str, optimizer: str) -> str:
    if wanted == "auto":
        return "cosine" if optimizer == "adamw" else "linear"
    return wanted


def auto_batch(epochs: int, train_pictures: int) -> int:
    """The largest of 4, 8, 16 that leaves `FEWEST_STEPS`: a run of fewer learns little however large its batches."""
    return next((b for b in (16, 8) if epochs * train_pictures >= FEWEST_STEPS * b), 4)


def _short_hyp(batch: int) -> Hyp:
    """With the rate that goes with the root of the batch, as Adam's noise does."""
    return replace(SHORT, lr0=SHORT.lr0 * min(1.0, math.sqrt(batch / 16)))


def _short_average(steps: int) -> tuple[float, float]:
    """Decay and ramp of an average over a tenth of the run, reached in a twentieth."""
    return max(0.0, min(EMA_DECAY, 1 - 10 / steps)), min(EMA_RAMP, max(steps / 20, 1.0))


def _warmup_steps(hyp: Hyp, steps_per_epoch: int, most: int) -> int:
    wanted = max(round(hyp.warmup_epochs * steps_per_epoch), WARMUP_STEPS) if hyp.warmup_epochs else 0
    return min(wanted, most)


def _close_mosaic(config: TrainConfig, *, short: bool) -> int:
    """Epochs at the end without mosaic: as asked, else a third of a short run, else 15."""
    wanted = config.close_mosaic
    if wanted is None:
        wanted = config.epochs // 3 if short else 15
    return min(wanted, config.epochs)


def _val_interval(train_pictures: int, val_pictures: int) -> int:
    return max(1, round(val_pictures * VAL_COST / (train_pictures * VAL_SHARE)))


def describe(recipe: Recipe) -> str:
    """The choices in one line, for the log."""
    return (
        f"{recipe.optimizer} lr {recipe.hyp.lr0:g} {recipe.lr_schedule.replace('_', ' ')}, batch {recipe.batch}"
        f" x {recipe.accumulate}, {recipe.steps} steps, warm-up {recipe.warmup_steps},"
        f" mosaic for {recipe.mosaic_epochs} epochs, validation every {recipe.val_interval}"
    )
