"""The quickstart data set: the same for a seed, sound, and honest about its score."""

from pathlib import Path

import numpy as np
import pytest

from remote.dataset import DatasetError, PictureCheck, Split, open_dataset
from remote.dataset.digits import OVERLAP, _bundled, _covered, make_digits

pytest.importorskip("sklearn", reason="scikit-learn carries the digits")


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_digits(tmp_path_factory.mktemp("digits") / "set", train=12, val=5)


def test_the_same_seed_gives_the_same_files_and_another_seed_others(small: Path, tmp_path: Path):
    assert content(make_digits(tmp_path / "same", train=12, val=5)) == content(small)
    assert content(make_digits(tmp_path / "other", seed=1, train=12, val=5)) != content(small)


def test_the_set_opens_without_a_note_and_has_one_to_six_digits_a_picture(small: Path):
    dataset = open_dataset(small, PictureCheck.PIXELS)
    assert (len(dataset.train), len(dataset.val), dataset.names) == (12, 5, tuple("0123456789"))
    assert not dataset.notes
    assert all(1 <= len(sample.objects) <= 6 and sample.size == (224, 224) for sample in dataset.train)


def test_boxes_hardly_overlap(small: Path):
    for sample in open_dataset(small).train:
        corners = [
            tuple(round(v * 224) for v in (o.cx - o.w / 2, o.cy - o.h / 2, o.cx + o.w / 2, o.cy + o.h / 2))
            for o in sample.objects
        ]
        pairs = [(one, other) for number, one in enumerate(corners) for other in corners[:number]]
        assert all(_covered(one, other) <= OVERLAP for one, other in pairs)


def test_no_digit_of_val_is_in_train():
    bundled = _bundled(0)
    train = {ink.tobytes() for ink in bundled[Split.TRAIN].inks}
    val = [ink.tobytes() for ink in bundled[Split.VAL].inks]
    assert not train.intersection(val)
    assert len(bundled[Split.TRAIN].classes) + len(val) == 1797
    assert set(np.unique(bundled[Split.VAL].classes)) == set(range(10))


def test_a_set_made_before_is_kept_and_anything_else_is_never_overwritten(small: Path, tmp_path: Path):
    before = (small / "data.yaml").stat().st_mtime_ns
    assert make_digits(small, train=12, val=5) == small
    assert (small / "data.yaml").stat().st_mtime_ns == before
    with pytest.raises(DatasetError, match="something else is there"):
        make_digits(small, train=13, val=5)
    with pytest.raises(DatasetError, match="something else is there"):
        make_digits(tmp_path)


def test_pictures_too_small_for_digits_are_refused_and_nothing_is_left_behind(tmp_path: Path):
    with pytest.raises(DatasetError, match="20 pixels are too small"):
        make_digits(tmp_path / "set", train=2, val=1, size=20)
    assert list(tmp_path.iterdir()) == []
