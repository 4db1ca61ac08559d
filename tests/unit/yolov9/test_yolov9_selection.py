from pathlib import Path

import pytest

from remote.dataset import Dataset, Object, Sample
from remote.yolov9.config import ConfigError, TrainConfig
from remote.yolov9.selection import select


def sample(*classes):
    objects = tuple(Object(cls, 0.5, 0.5, 0.1, 0.1) for cls in classes)
    return Sample(Path(f"{len(classes)}.jpg"), None, objects, (10, 10))


def dataset(names=("cat", "dog")):
    return Dataset(Path("d"), Path("d/data.yaml"), names, (sample(), sample(0), sample(1, 1)), (sample(1),), (), ())


def config(**changes):
    return TrainConfig.from_dict({"data": "d", "output": "o", **changes})


def test_everything_is_trained_on_where_nothing_else_is_said():
    chosen = select(dataset(), config())
    assert (chosen.names, chosen.train, chosen.val) == (("cat", "dog"), dataset().train, dataset().val)


def test_all_classes_become_one():
    chosen = select(dataset(), config(single_cls=True))
    assert chosen.names == ("item",)
    assert [[thing.cls for thing in one.objects] for one in (*chosen.train, *chosen.val)] == [[], [0], [0, 0], [0]]
    assert select(dataset(("cat",)), config(single_cls=True)).names == ("cat",)


def test_pictures_with_too_few_objects_are_left_out():
    assert [len(one.objects) for one in select(dataset(), config(min_items=1)).train] == [1, 2]


@pytest.mark.parametrize(("least", "split"), [(2, "val"), (3, "train")])
def test_nothing_left_is_said(least, split):
    with pytest.raises(ConfigError, match=f"min_items is {least}: no picture of {split} has so many objects"):
        select(dataset(), config(min_items=least))
