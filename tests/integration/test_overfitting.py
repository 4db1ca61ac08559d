"""A detector learns sixteen pictures by heart: real ones where they are there, else those of the generated set."""

from pathlib import Path

import pytest
from tiny_training import rows, start

from remote.dataset import extract, find_root, open_dataset
from remote.dataset.digits import make_digits
from remote.yolov9 import engine

REAL = (Path(__file__).parents[2] / "../shared/data/bccd/bccd.tar").resolve()
SIZE = 160
SMALLEST = 13
"""Pixels at that size. An object smaller than two cells takes far more steps to be found at all."""


def _large(sample):
    scale = SIZE / max(sample.size)
    sides = [min(o.w * sample.size[0], o.h * sample.size[1]) * scale for o in sample.objects]
    return bool(sides) and min(sides) >= SMALLEST


@pytest.fixture
def sixteen(tmp_path):
    """A set whose train and val are the same sixteen pictures."""
    if REAL.is_file():
        extract(REAL, tmp_path / "whole")
        whole = open_dataset(find_root(tmp_path / "whole"))
    else:
        whole = open_dataset(make_digits(tmp_path / "whole", train=16, val=1, size=SIZE))
    chosen = [sample for sample in whole.train if _large(sample)][:16]
    assert len(chosen) == 16
    (tmp_path / "list.txt").write_text("".join(f"{sample.image}\n" for sample in chosen))
    names = ", ".join(f"'{name}'" for name in whole.names)
    (tmp_path / "data.yaml").write_text(f"train: list.txt\nval: list.txt\nnames: [{names}]\n")
    return tmp_path / "data.yaml"


@pytest.mark.slow
def test_sixteen_pictures_are_learned_by_heart(sixteen, tmp_path):
    hyp = {"lr0": 0.004, **dict.fromkeys(("hsv_h", "hsv_s", "hsv_v", "scale", "translate", "fliplr"), 0.0)}
    raw = {
        "data": str(sixteen), "output": str(tmp_path / "out"), "model": "gelan-t", "epochs": 48, "image_size": SIZE,
        "batch": 4, "device": "cpu", "workers": 0, "val_interval": 48, "close_mosaic": 48, "hyp": hyp,
    }  # fmt: skip
    engine.fit(start(raw))
    assert float(rows(raw)[-1]["metrics/mAP_0.5"]) >= 0.9
