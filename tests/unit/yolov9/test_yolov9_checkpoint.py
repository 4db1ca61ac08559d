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
    assert list(faults) == [path]
    assert "last.pt: not a whole checkpoint" in faults[path]


def test_one_that_is_whole_and_refused_is_passed_over_like_a_torn_one(tmp_path: Path):
    path = tmp_path / "last.pt"
    for epoch in (1, 2):
        checkpoint.save(path, {"epoch": epoch}, keep_previous=True)

    def check(candidate: Path, state: checkpoint.State) -> None:
        if state["epoch"] == 2:
            raise CheckpointError(f"{candidate.name}: no")

    assert checkpoint.load_newest(path, check) == ({"epoch": 1}, {path: "last.pt: no"})


def test_what_is_set_aside_gives_its_name_to_the_one_before(tmp_path: Path):
    path = tmp_path / "last.pt"
    for epoch in (1, 2):
        checkpoint.save(path, {"epoch": epoch}, keep_previous=True)
    checkpoint.set_aside(path, [path])
    assert checkpoint.load(tmp_path / "last.unusable.pt") == {"epoch": 2}
    assert checkpoint.load(path) == checkpoint.load(checkpoint.previous(path)) == {"epoch": 1}
    checkpoint.set_aside(path, [path, checkpoint.previous(path)])
    assert {file.name for file in tmp_path.iterdir()} == {"last.unusable.pt", "last.previous.unusable.pt"}


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
    assert checkpoint.load_newest(tmp_path / "last.pt") == (None, {})


def test_random_states_come_back(tmp_path: Path):
    checkpoint.save(tmp_path / "last.pt", {"random": checkpoint.random_state()})
    draws = (random.random(), float(np.random.rand()), float(torch.rand(1)))  # noqa: S311
    checkpoint.restore_random_state(checkpoint.load(tmp_path / "last.pt")["random"])
    assert draws == (random.random(), float(np.random.rand()), float(torch.rand(1)))  # noqa: S311


def test_half_precision_is_for_floating_point_only():
    halved = checkpoint.half({"w": torch.ones(2), "n": torch.tensor(3)})
    assert (halved["w"].dtype, halved["n"].dtype) == (torch.float16, torch.int64)
