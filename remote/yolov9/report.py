"""What a run tells while it lasts: progress.json, results.csv and one log line an epoch.

Owns their columns and pace. Knows nothing of models; the rows themselves belong to the run's state, so that a resumed
run on another machine writes the whole file again.
"""

from __future__ import annotations

import logging
import math
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from remote import protocol
from remote.protocol import TaskPaths, TaskProgress
from remote.yolov9.config import TrainConfig
from remote.yolov9.recipe import Recipe

log = logging.getLogger("yolov9")

PROGRESS_SECONDS = 1.0
_NOTES = 20
_WINDOW = 20
"""Steps that the shown speed is an average over."""


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One line of results.csv. NaN: no validation in this epoch."""

    epoch: int
    """From 0."""
    train_box: float
    train_cls: float
    train_dfl: float
    precision: float
    recall: float
    map50: float
    map50_95: float
    val_box: float
    val_cls: float
    val_dfl: float
    lr_biases: float
    lr_weights: float
    lr_norms: float

    @property
    def fitness(self) -> float:
        """What "best" means: 0.1 mAP50 + 0.9 mAP50-95."""
        return 0.1 * self.map50 + 0.9 * self.map50_95

    @staticmethod
    def from_dict(raw: dict[str, Any]) -> EpochRow:
        """The inverse of `to_dict`."""
        return EpochRow(**raw)

    def to_dict(self) -> dict[str, Any]:
        """As simple values, for the checkpoint."""
        return asdict(self)


COLUMNS = (
    "epoch", "train/box_loss", "train/cls_loss", "train/dfl_loss", "metrics/precision", "metrics/recall",
    "metrics/mAP_0.5",
    "metrics/mAP_0.5:0.95", "val/box_loss", "val/cls_loss", "val/dfl_loss", "x/lr0", "x/lr1", "x/lr2",
)  # fmt: skip


def results_text(rows: Sequence[EpochRow]) -> str:
    """The whole of results.csv; columns are padded to 20 characters."""
    lines = [",".join(f"{name:>20}" for name in COLUMNS)]
    lines += [",".join(f"{value:20.5g}" for value in astuple(row)) for row in rows]
    return "\n".join(lines) + "\n"


class Reporter:
    """Writes the files of one task. A reporter that does not lead (another rank) writes nothing."""

    def __init__(self, paths: TaskPaths, epochs: int, steps: int, *, leads: bool) -> None:
        self._paths = paths
        self._leads = leads
        self._progress = TaskProgress(epoch=0, epochs=epochs, step=0, steps=steps, images_per_second=0.0)
        self._saved = (0, 0)
        self._written = -math.inf
        self._unwritten: dict[Path, str] = {}
        self._times: list[tuple[float, int]] = []

    @property
    def images_per_second(self) -> float:
        """Training speed over the last steps."""
        if len(self._times) < 2:
            return 0.0
        seconds = self._times[-1][0] - self._times[0][0]
        return sum(pictures for _, pictures in self._times[1:]) / seconds if seconds > 0 else 0.0

    def due(self) -> bool:
        """Whether a second has passed since progress was written."""
        return time.monotonic() - self._written >= PROGRESS_SECONDS

    def start_epoch(self) -> None:
        """Speed is not measured across a validation."""
        self._times = [(time.monotonic(), 0)]

    def stepped(self, step: int, pictures: int) -> None:
        """One batch is done: `step` batches since the start of the training."""
        self._times = [*self._times[-_WINDOW:], (time.monotonic(), pictures)]
        self._progress = replace(self._progress, step=step)

    def saves_every(self, seconds: float) -> None:
        """How far checkpoints are apart from now on."""
        self._progress = replace(self._progress, checkpoint_seconds=seconds)

    def saved(self, step: int, epoch: int) -> None:
        """last.pt is of this step now, with so many epochs finished; told with the next progress. From any thread."""
        self._saved = (step, epoch)

    def beat(self, loss: float | None = None) -> None:
        """Write progress.json if it is due, with a fresh loss where there is one."""
        if self.due():
            self._write(self._progress if loss is None else replace(self._progress, loss=loss))

    def resumed(self, rows: Sequence[EpochRow], step: int, best: EpochRow | None) -> None:
        """Write both files as of the checkpoint that this attempt begins with."""
        self._progress = replace(self._progress, resumed_step=step)
        self.saved(step, len(rows))
        self.finished_epoch(rows, step, best)

    def finished_epoch(self, rows: Sequence[EpochRow], step: int, best: EpochRow | None) -> None:
        """Write both files after an epoch."""
        validated = [row for row in rows if not math.isnan(row.map50)]
        progress = replace(self._progress, epoch=len(rows), step=step)
        if rows:
            progress = replace(progress, loss=rows[-1].train_box + rows[-1].train_cls + rows[-1].train_dfl)
        if validated and best is not None:
            newest = validated[-1]
            progress = replace(progress, map50=newest.map50, map50_95=newest.map50_95, best_map50_95=best.map50_95)
        if rows or self._paths.results.exists():
            self._replace(self._paths.results, results_text(rows))
        self._write(progress)

    def finish(self) -> None:
        """Write progress as it is at the end, and what could not be written before. Raises OSError."""
        self._write(self._progress)
        for path, text in self._unwritten.items():
            protocol.write_text(path, text)

    def log_epoch(self, row: EpochRow) -> None:
        """One line on stderr."""
        if not self._leads:
            return
        losses = f"box {row.train_box:.3f} cls {row.train_cls:.3f} dfl {row.train_dfl:.3f}"
        validated = "" if math.isnan(row.map50) else f"  mAP50 {row.map50:.3f} mAP50-95 {row.map50_95:.3f}"
        speed = self.images_per_second
        log.info("epoch %d/%d  %s%s  %.1f img/s", row.epoch + 1, self._progress.epochs, losses, validated, speed)

    def _write(self, progress: TaskProgress) -> None:
        step, epoch = self._saved
        self._progress = replace(
            progress,
            saved_step=step,
            saved_epoch=epoch,
            images_per_second=self.images_per_second,
            peak_memory_gib=peak_memory_gib(),
            at=time.time(),
        )
        self._written = time.monotonic()
        self._replace(self._paths.progress, protocol.encode(self._progress))

    def _replace(self, path: Path, text: str) -> None:
        """Write a file; a full disk is a warning and no reason to end a training."""
        if not self._leads:
            return
        try:
            protocol.write_text(path, text)
        except OSError as error:
            if path not in self._unwritten:
                log.warning("warning: %s cannot be written, training goes on (%s)", path, error)
            self._unwritten[path] = text
        else:
            self._unwritten.pop(path, None)


def write_config(path: Path, config: TrainConfig) -> None:
    """opt.yaml: the configuration, as `TrainConfig.from_file` reads it."""
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    _write_yaml(path, {key: str(value) if isinstance(value, Path) else value for key, value in plain.items()})


def write_hyp(path: Path, recipe: Recipe) -> None:
    """hyp.yaml: the hyper-parameters that are used."""
    _write_yaml(path, asdict(recipe.hyp))


def _write_yaml(path: Path, content: Mapping[str, object]) -> None:
    protocol.write_text(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def log_notes(notes: Sequence[object]) -> None:
    """The first remarks about the data set, and how many more there are."""
    for note in notes[:_NOTES]:
        log.info("note: %s", note)
    if len(notes) > _NOTES:
        log.info("note: and %d more about the data set", len(notes) - _NOTES)


def peak_memory_gib() -> float:
    """Most memory so far: reserved on the GPU where one is used, else of this process."""
    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_reserved() / 2**30)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
