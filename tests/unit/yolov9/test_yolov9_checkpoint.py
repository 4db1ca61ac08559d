import random
from pathlib import Path

import numpy as np
import pytest
import torch

from remote.yolov9 import checkpoint
from remote.yolov9.checkpoint import CheckpointError

STATE = {
    "epoch": 3,
    "weights": {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(2)},
    "rows": [{"x": 1.5}],
    "none": None,
}


def test_what_is_saved_is_read_back(tmp_path: Path):
    path = tmp_path / "weights" / "last.pt"
    checkpoint.save(path, STATE)
    found = checkpoint.load(path)
    assert found["epoch"] == 3
    assert torch.equal(found["weights"]["a"], STATE["weights"]["a"])
    assert found["rows"] == [{"x": 1.5}]
    assert [p.name for p in path.parent.iterdir()] == ["last.pt"]


def test_it_is_a_plain_file_for_torch(tmp_path: Path):
    checkpoint.save(tmp_path / "best.pt", STATE)
    assert torch.load(tmp_path / "best.pt", weights_only=True)["format"] == checkpoint.FORMAT


def test_the_checkpoint_before_is_kept_and_used_when_the_last_is_torn(tmp_path: Path):
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"epoch": 1}, keep_previous=True)
    checkpoint.save(path, {"epoch": 2}, keep_previous=True)
    path.write_bytes(path.read_bytes()[:-200])
    found, faults = checkpoint.load_newest(path)
    assert found == {"epoch": 1}
    assert len(faults) == 1
    assert "last.pt: not a whole checkpoint" in faults[0]


def test_an_altered_value_is_noticed(tmp_path: Path):
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"weights": torch.full((64,), 1.0)})
    whole = path.read_bytes()
    pattern = torch.full((64,), 1.0).numpy().tobytes()
    assert pattern in whole
    path.write_bytes(whole.replace(pattern, torch.full((64,), 1.5).numpy().tobytes()))
    with pytest.raises(CheckpointError, match=r"last\.pt"):
        checkpoint.load(path)


def test_another_format_is_named(tmp_path: Path):
    torch.save({"format": 99}, tmp_path / "last.pt")
    with pytest.raises(CheckpointError, match="format 99, this version reads 1"):
        checkpoint.load(tmp_path / "last.pt")


def test_a_file_with_foreign_classes_is_refused_not_run(tmp_path: Path):
    torch.save({"format": 1, "model": torch.nn.Linear(1, 1)}, tmp_path / "last.pt")
    with pytest.raises(CheckpointError, match="UnpicklingError"):
        checkpoint.load(tmp_path / "last.pt")


def test_nothing_there_is_no_fault(tmp_path: Path):
    assert checkpoint.load_newest(tmp_path / "last.pt") == (None, [])


def test_random_states_come_back(tmp_path: Path):
    checkpoint.save(tmp_path / "last.pt", {"random": checkpoint.random_state()})
    draws = (random.random(), float(np.random.rand()), float(torch.rand(1)))  # noqa: S311
    checkpoint.restore_random_state(checkpoint.load(tmp_path / "last.pt")["random"])
    assert draws == (random.random(), float(np.random.rand()), float(torch.rand(1)))  # noqa: S311


def test_half_precision_is_for_floating_point_only():
    halved = checkpoint.half({"w": torch.ones(2), "n": torch.tensor(3)})
    assert (halved["w"].dtype, halved["n"].dtype) == (torch.float16, torch.int64)
