"""What of a data set is trained on: all classes as one, or no picture with too few objects, as configured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from remote.dataset import Dataset, Sample
from remote.yolov9.config import ConfigError, TrainConfig

ONE_CLASS = ("item",)
"""What several classes are called as one."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Class names and the pictures of both splits."""

    names: tuple[str, ...]
    train: Sequence[Sample]
    val: Sequence[Sample]


def select(dataset: Dataset, config: TrainConfig) -> Selection:
    """Raises ConfigError where nothing is left."""
    names, splits = dataset.names, (dataset.train, dataset.val)
    if config.single_cls and len(names) > 1:
        names, splits = ONE_CLASS, (_one_class(splits[0]), _one_class(splits[1]))
    train, val = (tuple(s for s in split if len(s.objects) >= config.min_items) for split in splits)
    if not train or not val:
        which = "val" if train else "train"
        raise ConfigError(f"min_items is {config.min_items}: no picture of {which} has so many objects")
    return Selection(names, train, val)


def _one_class(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    return tuple(replace(s, objects=tuple(replace(thing, cls=0) for thing in s.objects)) for s in samples)
