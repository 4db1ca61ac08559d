"""Pictures at training size, training and validation sets, the order of an epoch, and batches.

Owns which picture is seen when: order and augmentation are functions of (seed, epoch, position), so that a resumed
run needs no replay, and the world size changes neither. Knows nothing of models. Shape symbols: B batch, N objects of
the batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from remote.dataset import Sample, load_image
from remote.yolov9 import augment
from remote.yolov9.assigner import Targets
from remote.yolov9.augment import Labelled, Labels, Outline
from remote.yolov9.config import IMAGE_STEP, Hyp
from remote.yolov9.interrupt import Interrupt

CACHE_SHARE = 0.25
"""Of the available memory; pictures beyond it are read from their files each time."""
VAL_BATCH = 16
_ORDER, _DRAW, _SIZE = 0, 1, 2
"""Random streams: the order of an epoch, one picture's augmentation, and the size of a batch."""


class Source(Protocol):
    """Where resized pictures come from; safe to read from several threads and from forked workers."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Labelled: ...

    def shape(self, index: int) -> tuple[int, int]:
        """Height and width of what `[index]` gives."""


class Pictures:
    """The pictures of a split, upright, the longer side resized to `size`; kept decoded in memory where they fit."""

    def __init__(self, samples: Sequence[Sample], size: int, cache_bytes: int) -> None:
        self._samples = samples
        self._size = size
        self._cache: list[Labelled] | None = None
        if len(samples) * size * size * 3 <= cache_bytes:
            with ThreadPoolExecutor(min(8, cores())) as pool:
                self._cache = list(pool.map(self._read, samples))

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Labelled:
        return self._cache[index] if self._cache is not None else self._read(self._samples[index])

    def shape(self, index: int) -> tuple[int, int]:
        """Height and width of a resized picture, without reading it where its size is known."""
        sample = self._samples[index]
        if self._cache is not None or sample.size is None:
            height, width = self[index].picture.shape[:2]
            return height, width
        return _fitted(sample.size, self._size)[::-1]

    def _read(self, sample: Sample) -> Labelled:
        image = resized(load_image(sample.image), self._size)
        return Labelled(np.asarray(image), pixel_labels(sample, image.width, image.height), _outlines(sample, image))


def resized(image: Image.Image, size: int) -> Image.Image:
    """The picture with its longer side at `size`; itself where it is so already."""
    fitted = _fitted(image.size, size)
    return image if fitted == image.size else image.resize(fitted, Image.Resampling.BILINEAR)


def _fitted(sides: tuple[int, int], size: int) -> tuple[int, int]:
    """Width and height with the longer one at `size`."""
    scale = size / max(sides)
    width, height = (min(size, max(1, round(side * scale))) for side in sides)
    return width, height


def pixel_labels(sample: Sample, width: int, height: int) -> Labels:
    """The sample's objects as rows of class, x1, y1, x2, y2 in a picture of that size."""
    rows = np.array([(o.cls, o.cx, o.cy, o.w, o.h) for o in sample.objects], np.float32).reshape(-1, 5)
    half = rows[:, 3:] / 2
    corners = np.concatenate((rows[:, 1:3] - half, rows[:, 1:3] + half), 1) * np.array([width, height] * 2, np.float32)
    return np.concatenate((rows[:, :1], corners), 1).astype(np.float32)


def _outlines(sample: Sample, image: Image.Image) -> tuple[Outline, ...]:
    """The polygons of the sample's objects in pixels of the picture; none at all where no object has one."""
    if not any(thing.outline for thing in sample.objects):
        return ()
    sides = np.array(image.size, np.float32)
    return tuple(np.frombuffer(thing.outline, np.float32).reshape(-1, 2) * sides for thing in sample.objects)


def available_memory() -> int:
    """Bytes that can be taken without swapping; 4 GiB where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123 - not a path of ours
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4 * 2**30


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Draw(NamedTuple):
    """One picture of one epoch."""

    epoch: int
    position: int
    """In the epoch, over all ranks."""
    picture: int
    """Index of the picture."""
    mosaic: bool


class TrainSet(Dataset[Labelled]):
    """Augmented training pictures of `size` x `size`."""

    def __init__(self, source: Source, size: int, hyp: Hyp, seed: int) -> None:
        self._source = source
        self._size = size
        self._hyp = hyp
        self._seed = seed

    def __getitem__(self, draw: Draw) -> Labelled:
        rng = np.random.default_rng((self._seed, _DRAW, draw.epoch, draw.position))
        mosaic = draw.mosaic and rng.random() < self._hyp.mosaic
        part = self._mosaic(draw.picture, rng) if mosaic else self._single(draw.picture, rng)
        if mosaic and rng.random() < self._hyp.mixup:
            part = augment.mixup(part, self._mosaic(int(rng.integers(len(self._source))), rng), rng)
        return augment.colours_and_flips(part, self._hyp, rng)

    def _mosaic(self, index: int, rng: augment.Rng) -> Labelled:
        others = rng.integers(len(self._source), size=3)
        chosen = rng.permutation([index, *others])
        canvas = augment.mosaic([self._source[int(i)] for i in chosen], self._size, rng)
        return self._warp(augment.copy_paste(canvas, self._hyp.copy_paste, rng), rng)

    def _single(self, index: int, rng: augment.Rng) -> Labelled:
        return self._warp(augment.letterbox(self._source[index], self._size, self._size), rng)

    def _warp(self, part: Labelled, rng: augment.Rng) -> Labelled:
        height, width = part.picture.shape[:2]
        return augment.warp(part, augment.warp_matrix(height, width, self._size, self._hyp, rng), self._size)


@dataclass(frozen=True, slots=True)
class Order:
    """How epochs are cut into batches. The last batch of an epoch is filled up from the start of the epoch's order."""

    pictures: int
    batch: int
    """Over all ranks; a multiple of `world`."""
    seed: int
    epochs: int
    mosaic_epochs: int
    """The first so many epochs may draw mosaics."""
    rank: int = 0
    world: int = 1

    @property
    def steps_per_epoch(self) -> int:
        """Batches an epoch."""
        return -(-self.pictures // self.batch)

    def draws(self, epoch: int, step: int) -> list[Draw]:
        """This rank's part of one batch."""
        start = step * self.batch + self.rank * (self.batch // self.world)
        positions = range(start, start + self.batch // self.world)
        order = np.random.default_rng((self.seed, _ORDER, epoch)).permutation(self.pictures)
        return [Draw(epoch, p, int(order[p % self.pictures]), epoch < self.mosaic_epochs) for p in positions]

    def size(self, epoch: int, step: int, image_size: int) -> int:
        """A random size for one batch, the same on all ranks: from half to one and a half of `image_size`."""
        steps = image_size // IMAGE_STEP
        rng = np.random.default_rng((self.seed, _SIZE, epoch, step))
        return int(rng.integers(max(steps // 2, 1), steps + steps // 2, endpoint=True)) * IMAGE_STEP


class _Draws(Sampler[list[Draw]]):
    """All batches from one step to the end of the training, across epochs: the loader never runs dry between two."""

    def __init__(self, order: Order, epoch: int, step: int) -> None:
        self._order, self._epoch, self._step = order, epoch, step

    def __iter__(self) -> Iterator[list[Draw]]:
        first = self._step
        for epoch in range(self._epoch, self._order.epochs):
            for step in range(first, self._order.steps_per_epoch):
                yield self._order.draws(epoch, step)
            first = 0


class Batch(NamedTuple):
    """Pictures and their ground truth."""

    images: Tensor
    """(B, 3, H, W) uint8, channels_last in memory."""
    targets: Targets


def collate(parts: Sequence[Labelled]) -> Batch:
    """Stack pictures of one size; labels become one flat list."""
    images = torch.from_numpy(np.stack([part.picture for part in parts])).permute(0, 3, 1, 2)
    labels = torch.from_numpy(np.concatenate([part.labels for part in parts]))
    counts = torch.tensor([len(part.labels) for part in parts])
    image = torch.arange(len(parts)).repeat_interleave(counts)
    return Batch(images, Targets(image, labels[:, 0].long(), labels[:, 1:].contiguous()))


def to_input(images: Tensor, device: torch.device) -> Tensor:
    """uint8 pictures -> float32 in 0..1 on the device, channels_last."""
    moved = images.to(device, non_blocking=True)
    return moved.float().div_(255).contiguous(memory_format=torch.channels_last)


def rescale(images: Tensor, targets: Targets, size: int) -> tuple[Tensor, Targets]:
    """A batch of squares (B, 3, S, S) and its boxes at another size: (B, 3, size, size)."""
    factor = size / images.shape[-1]
    if factor == 1:
        return images, targets
    moved = F.interpolate(images, (size, size), mode="bilinear", align_corners=False)
    return moved, targets._replace(boxes=targets.boxes * factor)


@dataclass(frozen=True, slots=True)
class Loading:
    """How batches get to the device."""

    workers: int
    pinned: bool


Batches = Iterator[Batch]


def train_batches(train: TrainSet, order: Order, start: tuple[int, int], loading: Loading) -> Batches:
    """Batches of this rank from (epoch, step) to the end of the training."""
    return iter(_loader(train, _Draws(order, *start), loading))


class ValSet(Dataset[Labelled]):
    """Validation pictures, not augmented, each padded to the next multiple of 32."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitem__(self, index: int) -> Labelled:
        return augment.letterbox(self._source[index], *padded(*self._source.shape(index)))

    def groups(self, batch: int, rank: int = 0, world: int = 1) -> list[list[int]]:
        """This rank's batches: pictures of one padded shape each, so that no result depends on a picture's company."""
        shapes: dict[tuple[int, int], list[int]] = {}
        for index in range(rank, len(self._source), world):
            shapes.setdefault(padded(*self._source.shape(index)), []).append(index)
        return [group[i : i + batch] for group in shapes.values() for i in range(0, len(group), batch)]


def padded(height: int, width: int) -> tuple[int, int]:
    """The sides of the smallest input that holds such a picture: multiples of 32."""
    return -(-height // IMAGE_STEP) * IMAGE_STEP, -(-width // IMAGE_STEP) * IMAGE_STEP


def val_batches(val: ValSet, groups: list[list[int]], loading: Loading) -> DataLoader[Labelled]:
    """The validation batches; may be iterated once an epoch."""
    return _loader(val, groups, loading)


def _loader(
    data: Dataset[Labelled], batches: Sampler[list[Draw]] | list[list[int]], loading: Loading
) -> DataLoader[Labelled]:
    return DataLoader(
        data,
        batch_sampler=batches,
        num_workers=loading.workers,
        worker_init_fn=Interrupt.outlive_a_request,
        collate_fn=collate,
        # A loader draws a seed when it starts; from here, so that a resumed run leaves the global generator alone.
        generator=torch.Generator(),
        pin_memory=loading.pinned,
        prefetch_factor=4 if loading.workers else None,
    )
