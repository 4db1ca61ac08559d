"""What a training shows beside its numbers: pictures of batches, labels and scores, and a file for TensorBoard.

Owns when which picture is made. None of it is worth the end of a training: what cannot be made is told once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from remote.dataset import Sample
from remote.yolov9 import metrics, mosaics, plots
from remote.yolov9.boxes import NmsLimits
from remote.yolov9.data import VAL_BATCH, Batch, ValSet
from remote.yolov9.metrics import Matches
from remote.yolov9.model import Detector
from remote.yolov9.optional import MissingPackage, required
from remote.yolov9.report import COLUMNS, EpochRow

log = logging.getLogger("yolov9")


class Gallery:
    """The pictures of one training; one that is not `open` (another rank, or none are wanted) makes none."""

    def __init__(self, folder: Path, names: Sequence[str], *, open: bool) -> None:  # noqa: A002 - as of a gallery
        self._folder = folder
        self._names = names
        self._open = open
        self._untold = True
        self._events: Any = None

    def labels(self, samples: Sequence[Sample]) -> None:
        """labels.jpg, of what is trained on."""
        self._make(lambda: plots.draw_labels(samples, self._names, self._folder / "labels.jpg"))

    def trained(self, number: int, batch: Batch) -> None:
        """train_batchN.jpg, of the first batches."""
        if number < mosaics.SHOWN:
            path = self._folder / f"train_batch{number}.jpg"
            self._make(lambda: mosaics.draw_labels_of(batch, self._names, path))

    def epoch(self, row: EpochRow) -> None:
        """One more step of the curves that TensorBoard shows."""
        self._make(lambda: self._log(row))

    def validated(self, val: ValSet, model: Detector) -> None:
        """val_batchN_labels.jpg and val_batchN_pred.jpg, of the first batches."""
        self._make(
            lambda: mosaics.draw_batches(val, val.groups(VAL_BATCH), model, self._names, self._folder, NmsLimits())
        )

    def end(self, results: str, matches: Matches | None) -> None:
        """results.png, and the curves and confusion matrix of the last validation."""
        self._make(lambda: plots.draw_results(results, self._folder / "results.png"))
        if matches is not None:
            self._make(lambda: plots.draw_curves(metrics.curves(matches), self._names, self._folder))
            confusion = matches.confusion
            if confusion is not None:
                path = self._folder / "confusion_matrix.png"
                self._make(lambda: plots.draw_confusion(confusion, self._names, path))
        if self._events is not None:
            self._events.close()

    def _make(self, draw: Callable[[], object]) -> None:
        if not self._open:
            return
        try:
            draw()
        except (MissingPackage, OSError) as error:
            if self._untold:
                log.warning("note: some pictures of this training are not made: %s", error)
            self._untold = False

    def _log(self, row: EpochRow) -> None:
        if self._events is None:
            self._events = required("torch.utils.tensorboard", "plots").SummaryWriter(str(self._folder))
        values = row.to_dict()
        for name, value in zip(COLUMNS[1:], list(values.values())[1:], strict=True):
            if value == value:  # nan: no validation in this epoch
                self._events.add_scalar(name, value, row.epoch)
        self._events.flush()
