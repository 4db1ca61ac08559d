"""What a training can be asked for beside its recipe: weights to begin with, frozen layers, sizes of batches."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from tiny_training import (
    ROOT,
    SIZE,
    StopAfter,
    assert_same,
    build,
    last,
    rows,
    settings,
    start,
    train,
    weights,
)

from remote.protocol import EXIT_BAD_INPUT
from remote.yolov9 import engine
from remote.yolov9 import train as trainer
from remote.yolov9.config import ConfigError, TrainConfig
from remote.yolov9.pretrained import read_pretrained

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def first_weights(squares, tmp_path_factory):
    """best.pt of a training of one epoch."""
    raw = settings(squares, tmp_path_factory.mktemp("first"), epochs=1)
    engine.fit(start(raw))
    return weights(raw, "best.pt")


def test_weights_of_another_training_are_where_a_new_one_begins(config, first_weights, caplog):
    caplog.set_level("INFO")
    found = torch.load(first_weights, weights_only=True)["weights"]
    run = build(config("second", weights=str(first_weights)))
    assert all(torch.equal(tensor.to(found[key].dtype), found[key]) for key, tensor in run.model.state_dict().items())
    assert "1772 tensors copied, 0 begin afresh" in caplog.text
    fewer = build(config("third", weights=str(first_weights), single_cls=True))
    assert fewer.job.names == ("item",)
    assert "1760 tensors copied, 12 begin afresh" in caplog.text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "yolov9-s"}, "error: the weights are those of a yolov9-t, the model is a yolov9-s"),
        ({"weights": "/nowhere/best.pt"}, "error: /nowhere/best.pt: no such file"),
        ({"freeze": [99]}, "error: freeze has layer 99: a yolov9-t has layers 0 to 29"),
        ({"freeze": 30}, "error: freeze has every layer: there is nothing left to train"),
        ({"min_items": 3}, "error: min_items is 3: no picture of train has so many objects"),
    ],
)
def test_what_cannot_be_begun_with_is_one_line_and_exit_2(config, first_weights, tmp_path, changes, said):
    done = train(config("second", **{"weights": str(first_weights), **changes}), tmp_path)
    assert done.returncode == EXIT_BAD_INPUT
    assert [line for line in done.stderr.splitlines() if not line.startswith(("note", "/"))][-1] == said


def test_frozen_layers_stay_as_they_are_and_the_others_learn(config):
    raw = config(freeze=10, epochs=1)
    run = start(raw)
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    engine.fit(run)
    changed = {name for name, tensor in run.model.state_dict().items() if not torch.equal(tensor, before[name])}
    frozen = {name for name in before if int(name.split(".")[1]) < 10}
    assert not changed & frozen
    assert changed >= {name for name in before if name.endswith("conv.weight") and int(name.split(".")[1]) > 10} - {
        "layers.29.dfl.conv.weight", "layers.29.dfl2.conv.weight",
    }  # fmt: skip


def test_a_run_with_frozen_layers_does_not_go_on_with_others(config):
    engine.fit(start(config(freeze=2, epochs=1)))
    with pytest.raises(ConfigError, match=r"freeze is None, but .*last\.pt was made with \[0, 1\]"):
        start(config(epochs=1))


def test_batches_of_many_sizes_can_be_interrupted_too(config, monkeypatch):
    whole, broken = config("whole", multi_scale=True), config("broken", multi_scale=True, checkpoint_seconds=0)
    seen = []
    plain = engine.detection_loss

    def noted(main, auxiliary, targets, grid, *more):
        seen.append((len(grid.centres), float(targets.boxes.max())))
        return plain(main, auxiliary, targets, grid, *more)

    monkeypatch.setattr(engine, "detection_loss", noted)
    engine.fit(start(whole))
    sizes = [cells for cells, _ in seen]
    assert set(sizes) <= {cells_of(side) for side in (32, 64, 96)}
    assert len(set(sizes)) > 1
    assert all(largest <= side_of(cells) for cells, largest in seen)
    assert any(largest > SIZE for _, largest in seen)
    engine.fit(start(broken, stop_after=2))
    engine.fit(start(broken))
    assert_same(last(broken), last(whole))


def cells_of(side):
    return sum((side // stride) ** 2 for stride in (8, 16, 32))


def side_of(cells):
    return next(side for side in (32, 64, 96) if cells_of(side) == cells)


def test_two_processes_have_the_gradient_of_one_with_the_same_batch(config, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config(batch=4, hyp={"mixup": 0.0})))
    script = str(ROOT / "tests/fakes/one_gradient.py")
    found = []
    for name, launcher in (
        ("one", []),
        ("two", ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]),
    ):
        argv = [sys.executable, *launcher, script, str(tmp_path / "config.json"), str(tmp_path / name)]
        path = os.pathsep.join((str(ROOT), str(ROOT / "tests/fakes")))
        subprocess.run(argv, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, check=True, timeout=240)
        found.append(torch.load(tmp_path / name, weights_only=True))
    one, two = found
    assert one.keys() == two.keys()
    for name, gradient in one.items():
        tolerance = 1e-3 * float(gradient.abs().max())
        torch.testing.assert_close(two[name], gradient, rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")
    assert all(bool(gradient.any()) for gradient in one.values())


def test_the_first_epoch_is_validated_whatever_the_interval_is(config):
    raw = config(epochs=4, val_interval=3)
    engine.fit(start(raw))
    assert [row["val/cls_loss"] != "nan" for row in rows(raw)] == [True, False, True, True]


def test_weights_of_each_so_many_epochs_are_kept(config):
    raw = config(epochs=5, save_period=2)
    engine.fit(start(raw))
    kept = [weights(raw, f"epoch{number}.pt") for number in (2, 4)]
    assert sorted(path.name for path in weights(raw).parent.glob("epoch*")) == [path.name for path in kept]
    second, fourth = (read_pretrained(path).state["layers.0.conv.weight"] for path in kept)
    assert not torch.equal(second, fourth)


def test_what_is_wrong_with_the_validation_shows_before_anything_is_trained(config, monkeypatch):
    run = start(config())

    def broken(*_: object) -> None:
        raise RuntimeError("the validation")

    monkeypatch.setattr(engine, "evaluate", broken)
    with pytest.raises(RuntimeError, match="the validation"):
        engine.fit(run)
    assert run.batches_done == 0


def test_too_little_gpu_memory_is_one_line_that_says_what_to_do(config, tmp_path, monkeypatch, caplog):
    (tmp_path / "config.json").write_text(json.dumps(config()))

    def full(_run: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore about it")

    monkeypatch.setattr(engine, "fit", full)
    monkeypatch.setattr(trainer, "Interrupt", lambda: StopAfter(float("inf")))
    assert trainer.main([str(tmp_path / "config.json")]) == 1
    assert caplog.messages[-1] == (
        "error: out of GPU memory, lower batch or image_size: CUDA out of memory. Tried to allocate 2 GiB."
    )


def test_the_settings_that_were_used_lie_beside_the_results(config, tmp_path):
    raw = config(epochs=1, hyp={"fliplr": 0.25}, freeze=1)
    assert train(raw, tmp_path).returncode == 0
    written = yaml.safe_load((Path(raw["output"]) / "opt.yaml").read_text())
    assert TrainConfig.from_dict(written) == TrainConfig.from_dict(raw)
    used = yaml.safe_load((Path(raw["output"]) / "hyp.yaml").read_text())
    assert (used["fliplr"], used["momentum"]) == (0.25, 0.9)
    TrainConfig.from_dict({**raw, "hyp": used})
