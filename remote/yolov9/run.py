"""What a training works with, and where it is. Owns how a run is put together; the loop is in `engine`."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from remote.protocol import TaskPaths
from remote.yolov9 import data, optim
from remote.yolov9.config import ConfigError, TrainConfig
from remote.yolov9.data import Batch, Loading, Order, Source, TrainSet, ValSet
from remote.yolov9.distributed import Ranks
from remote.yolov9.evaluate import Validation
from remote.yolov9.gallery import Gallery
from remote.yolov9.interrupt import Interrupt
from remote.yolov9.interval import Pace
from remote.yolov9.model import Detector, build
from remote.yolov9.pretrained import Pretrained, transfer
from remote.yolov9.recipe import Recipe
from remote.yolov9.report import EpochRow, Reporter
from remote.yolov9.writer import HostCopy, Writer

log = logging.getLogger("yolov9")


@dataclass(slots=True)
class State:
    """Where a run is. Together with weights, optimiser and random states this is the whole checkpoint."""

    epoch: int = 0
    """The epoch that is being trained, from 0."""
    step: int = 0
    """Batches done in it; all of them: its validation is due."""
    losses: Tensor = field(default_factory=lambda: torch.zeros(3))
    """Sums over the batches of this epoch of the main head's box, class and DFL term."""
    rows: list[EpochRow] = field(default_factory=list)
    best: EpochRow | None = None
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    """Half precision; kept here so that best.pt can be written again on another machine."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to train on what: checked configuration, resolved recipe, pictures, and who takes part."""

    config: TrainConfig
    recipe: Recipe
    names: tuple[str, ...]
    train: Source
    val: Source
    ranks: Ranks
    device: torch.device
    interrupt: Interrupt
    weights: Pretrained | None = None
    """What the training begins with, where it does not begin from scratch."""


@dataclass(slots=True)
class Run:
    """Everything a training works with."""

    job: Job
    amp: torch.dtype | None
    model: Detector
    network: nn.Module
    """The model, wrapped where there are several ranks."""
    ema: optim.Ema
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    schedule: optim.Schedule
    order: Order
    loading: Loading
    train: TrainSet
    val: Iterable[Batch]
    paths: TaskPaths
    reporter: Reporter
    state: State
    pace: Pace
    """When last.pt is due."""
    gallery: Gallery
    validation: Validation | None = None
    """The last one of this process."""
    host: HostCopy = field(default_factory=HostCopy)
    """Where the snapshot of last.pt lies while it is written."""
    writer: Writer = field(default_factory=Writer)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.job.device

    @property
    def ranks(self) -> Ranks:
        """This process among all."""
        return self.job.ranks

    @property
    def batches_done(self) -> int:
        """Since the start of the training."""
        return self.state.epoch * self.order.steps_per_epoch + self.state.step


def build_run(job: Job) -> Run:
    """A fresh run; seeds the global generators. Raises ConfigError where batch and world size do not fit."""
    config, recipe, ranks, device = job.config, job.recipe, job.ranks, job.device
    if recipe.batch % ranks.world:
        raise ConfigError(f"batch is {recipe.batch}: not a multiple of the {ranks.world} processes")
    _seed(config.seed)
    model = _make_model(job)
    if config.sync_bn and ranks.world > 1:
        model = _synchronised(model, device)
    amp = amp_dtype(config.amp, device)
    paths = TaskPaths(config.output)
    loading = Loading(workers(config.workers, device), pinned=device.type == "cuda")
    val = ValSet(job.val)
    return Run(
        job=job,
        amp=amp,
        model=model,
        network=model if ranks.world == 1 else _wrap(model, device),
        ema=optim.Ema(model, recipe.ema_decay, recipe.ema_ramp),
        optimizer=optim.make_optimizer(model, recipe, scaled=amp == torch.float16),
        scaler=torch.amp.GradScaler(device.type, enabled=amp == torch.float16),
        schedule=optim.Schedule(recipe),
        order=_order(job),
        loading=loading,
        train=TrainSet(job.train, config.image_size, recipe.hyp, config.seed),
        val=data.val_batches(val, val.groups(data.VAL_BATCH, ranks.rank, ranks.world), loading),
        paths=paths,
        reporter=Reporter(paths, config.epochs, recipe.steps, leads=ranks.leads),
        state=State(losses=torch.zeros(3, device=device)),
        gallery=Gallery(config.output, job.names, open=config.plots and ranks.leads),
        pace=Pace(config.checkpoint_seconds, config.hazard_per_hour, time.monotonic()),
    )


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _order(job: Job) -> Order:
    return Order(
        pictures=len(job.train),
        batch=job.recipe.batch,
        seed=job.config.seed,
        epochs=job.config.epochs,
        mosaic_epochs=job.recipe.mosaic_epochs,
        rank=job.ranks.rank,
        world=job.ranks.world,
    )


def _make_model(job: Job) -> Detector:
    config, weights = job.config, job.weights
    model = build(config.model, len(job.names), weights.class_width if weights else None)
    if weights is not None:
        log.info("%s: %s", config.weights, transfer(model, weights))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = job.recipe.norm_momentum
    _freeze(model, config.freeze)
    model.to(job.device)
    # Worth 30 % on a CPU and 40 % on a GPU; the typed form of `to` does not know the keyword.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def _freeze(model: Detector, layers: Sequence[int]) -> None:
    try:
        model.freeze(layers)
    except IndexError:
        last = len(model.layers) - 1
        raise ConfigError(f"freeze has layer {max(layers)}: a {model.variant.name} has layers 0 to {last}") from None
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("freeze has every layer: there is nothing left to train")


def _synchronised(model: Detector, device: torch.device) -> Detector:
    """With norms that take their statistics over all GPUs."""
    if device.type != "cuda":
        log.warning("warning: sync_bn is without effect: it needs GPUs")
        return model
    made: Detector = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return made


def _wrap(model: Detector, device: torch.device) -> nn.Module:
    return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)


def amp_dtype(wanted: str, device: torch.device) -> torch.dtype | None:
    """bf16 where the GPU computes it, else fp16; none on a CPU unless asked for."""
    named = {"bf16": torch.bfloat16, "fp16": torch.float16, "off": None}
    if wanted in named:
        return named[wanted]
    if device.type == "cpu":
        return None
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def workers(wanted: int | None, device: torch.device) -> int:
    """As configured; else none on a CPU, where they would only take turns with the training, and up to eight a GPU."""
    if wanted is not None:
        return wanted
    return 0 if device.type == "cpu" else min(8, data.cores())
