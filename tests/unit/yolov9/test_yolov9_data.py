from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from remote.dataset import Object, Sample
from remote.yolov9 import data
from remote.yolov9.augment import Labelled
from remote.yolov9.config import Hyp
from remote.yolov9.data import Draw, Loading, Order, Pictures, TrainSet, ValSet

LOADING = Loading(workers=0, pinned=False)


class Shades:
    """Pictures of one shade each, of two shapes."""

    def __init__(self, count: int, size: int = 32) -> None:
        self._count, self._size = count, size

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Labelled:
        labels = np.array([[index % 3, 2, 2, 20, 14]], np.float32)
        return Labelled(np.full((*self.shape(index), 3), index * 5, np.uint8), labels)

    def shape(self, index: int) -> tuple[int, int]:
        return (self._size, self._size) if index % 2 else (self._size // 2, self._size)


def order(**changes: int) -> Order:
    return Order(**{"pictures": 10, "batch": 4, "seed": 1, "epochs": 3, "mosaic_epochs": 2, **changes})


def test_an_epoch_sees_every_picture_and_fills_the_last_batch():
    plan = order()
    seen = [draw.picture for step in range(plan.steps_per_epoch) for draw in plan.draws(0, step)]
    assert len(seen) == 12
    assert sorted(seen[:10]) == list(range(10))
    assert seen[10:] == seen[:2]


def test_epochs_and_seeds_have_different_orders():
    orders = {tuple(d.picture for d in order(seed=s).draws(e, 0)) for s in (1, 2) for e in (0, 1)}
    assert len(orders) == 4


def test_ranks_share_the_batch_that_one_process_would_have():
    whole = order().draws(1, 2)
    parts = [order(rank=r, world=2).draws(1, 2) for r in range(2)]
    assert parts[0] + parts[1] == whole


def test_mosaics_end_with_the_mosaic_epochs():
    assert all(d.mosaic for d in order().draws(1, 0))
    assert not any(d.mosaic for d in order().draws(2, 0))


def test_fewer_pictures_than_a_batch_are_repeated_with_their_own_augmentation():
    draws = order(pictures=3, batch=8).draws(0, 0)
    assert len(draws) == 8
    assert len({d.position for d in draws}) == 8


def test_starting_in_the_middle_gives_the_same_batches():
    train = TrainSet(Shades(10), 32, Hyp(), seed=1)
    whole = list(data.train_batches(train, order(), (0, 0), LOADING))
    rest = list(data.train_batches(train, order(), (1, 2), LOADING))
    assert len(whole) == 9
    for a, b in zip(whole[5:], rest, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.targets.boxes, b.targets.boxes)


def test_a_draw_depends_on_seed_epoch_and_position_alone():
    one, two = (TrainSet(Shades(10), 32, Hyp(), seed=1) for _ in range(2))
    list(map(one.__getitem__, order().draws(0, 0)))  # earlier draws leave no trace
    draw = Draw(1, 5, 3, mosaic=True)
    assert np.array_equal(one[draw].picture, two[draw].picture)
    other = one[Draw(2, 5, 3, mosaic=True)]
    assert not np.array_equal(one[draw].picture, other.picture)


def test_batches_are_channels_last_and_targets_flat():
    batch = data.collate([Labelled(np.zeros((32, 32, 3), np.uint8), np.full((n, 5), n, np.float32)) for n in (2, 0, 1)])
    assert batch.images.shape == (3, 3, 32, 32)
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    assert batch.targets.image.tolist() == [0, 0, 2]
    assert batch.targets.classes.tolist() == [2, 2, 1]
    moved = data.to_input(batch.images, torch.device("cpu"))
    assert moved.dtype == torch.float32
    assert moved.is_contiguous(memory_format=torch.channels_last)


def test_validation_batches_hold_one_shape_and_every_picture_once():
    val = ValSet(Shades(9, 64))
    groups = val.groups(4)
    assert sorted(i for group in groups for i in group) == list(range(9))
    for batch in data.val_batches(val, groups, LOADING):
        assert batch.images.shape[2] in (32, 64)
    shared = [i for r in range(2) for group in val.groups(4, r, 2) for i in group]
    assert sorted(shared) == list(range(9))


@pytest.mark.parametrize("cache_bytes", [0, 10**9])
def test_pictures_are_resized_to_the_longer_side_with_their_labels(tmp_path: Path, cache_bytes: int):
    Image.new("RGB", (200, 100), (9, 8, 7)).save(tmp_path / "a.png")
    sample = Sample(tmp_path / "a.png", None, (Object(2, 0.5, 0.5, 0.2, 0.4),), (200, 100))
    pictures = Pictures([sample], 64, cache_bytes)
    assert pictures.shape(0) == pictures[0].picture.shape[:2] == (32, 64)
    assert pictures[0].labels[0].tolist() == pytest.approx([2, 25.6, 9.6, 38.4, 22.4])


def test_a_background_has_no_labels(tmp_path: Path):
    assert data.pixel_labels(Sample(tmp_path / "a.png", None, ()), 10, 10).shape == (0, 5)


def outlined_picture(path: Path) -> Sample:
    picture = np.full((32, 32, 3), 30, np.uint8)
    picture[4:20, 2:12] = (250, 0, 0)
    Image.fromarray(picture).save(path)
    outline = np.array([(2, 4), (12, 4), (12, 20), (2, 20)], np.float32) / 32
    return Sample(path, None, (Object(0, 7 / 32, 12 / 32, 10 / 32, 16 / 32, outline.tobytes()),), (32, 32))


def test_outlined_objects_are_pasted_into_their_mosaic(tmp_path):
    source = Pictures([outlined_picture(tmp_path / "a.png")], 32, 10**9)
    none, all_of_them = (
        [
            len(TrainSet(source, 32, Hyp(scale=0, translate=0, copy_paste=share), seed)[Draw(0, 0, 0, True)].labels)
            for seed in range(20)
        ]
        for share in (0.0, 1.0)
    )
    assert max(none) <= 8  # two mosaics of four at the most
    assert sum(all_of_them) > sum(none)
