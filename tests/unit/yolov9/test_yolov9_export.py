import json
import sys

import numpy as np
import pytest
import torch

from remote.yolov9 import commands, export
from remote.yolov9.checkpoint import half, save
from remote.yolov9.export import ExportError, Shape
from remote.yolov9.model import build
from remote.yolov9.optional import MissingPackage
from remote.yolov9.trained import load_trained

NAMES = ["disc", "квадрат"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "best.pt"
    state = half(build("yolov9-t", len(NAMES)).state_dict())
    save(path, {"model": "yolov9-t", "names": NAMES, "image_size": 64, "weights": state})
    return path


@pytest.fixture
def trained(weights):
    return load_trained(weights, torch.device("cpu"))


def decoded(trained, images):
    """Cell by cell, from what the detector says."""
    with torch.no_grad():
        prediction = trained.model(images).main
    rows, cell = [], 0
    for stride in (8, 16, 32):
        height, width = images.shape[2] // stride, images.shape[3] // stride
        for y in range(height):
            for x in range(width):
                left, top, right, bottom = (prediction.distances[:, cell] * stride).unbind(-1)
                box = (
                    (x + 0.5) * stride + (right - left) / 2,
                    (y + 0.5) * stride + (bottom - top) / 2,
                    left + right,
                    top + bottom,
                )
                rows.append(torch.cat((torch.stack(box, -1), prediction.class_logits[:, cell].sigmoid()), -1))
                cell += 1
    return torch.stack(rows, -1)


def test_the_graph_says_boxes_and_probabilities_of_each_cell(trained):
    images = torch.rand(2, 3, 64, 96)
    found = export.Graph(trained.model, 64, 96)(images)
    assert found.shape == (2, 4 + 2, 8 * 12 + 4 * 6 + 2 * 3)
    torch.testing.assert_close(found, decoded(trained, images), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("opset", "any_batch"), [(12, False), (20, True)])
def test_onnx_gives_what_torch_gives_and_knows_its_classes(trained, tmp_path, monkeypatch, opset, any_batch):
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setitem(sys.modules, "onnxscript", None)  # only the packages that are named are needed
    done = export.export(trained, "onnx", tmp_path / "d.onnx", Shape(2, 64, 96, any_batch), opset)
    assert [path.name for path in tmp_path.iterdir()] == ["d.onnx"]
    assert done.pixels < 0.01
    session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
    images = np.random.default_rng(1).random((3 if any_batch else 2, 3, 64, 96), np.float32)
    (found,) = session.run(None, {"images": images})
    np.testing.assert_allclose(found, decoded(trained, torch.from_numpy(images)), atol=1e-2)
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["names"]) == {"0": "disc", "1": "квадрат"}
    assert (facts["stride"], facts["image_size"], facts["model"]) == ("32", "64", "gelan-t")


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning")
def test_torchscript_gives_what_torch_gives(trained, tmp_path):
    done = export.export(trained, "torchscript", tmp_path / "d.torchscript", Shape(1, 64, 64))
    images = torch.rand(1, 3, 64, 64)
    extra = {"facts.json": ""}
    loaded = torch.jit.load(str(done.path), _extra_files=extra)
    torch.testing.assert_close(loaded(images), decoded(trained, images), rtol=1e-5, atol=1e-4)
    assert json.loads(extra["facts.json"])["stride"] == "32"


def test_a_file_that_does_not_agree_is_not_left_there(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "PIXELS", -1.0)
    (tmp_path / "d.torchscript").write_text("the one before")
    with pytest.raises(ExportError, match=r"d\.torchscript does not agree with torch: boxes differ by 0 pixels"):
        export.export(trained, "torchscript", tmp_path / "d.torchscript", Shape(1, 64, 64))
    assert (tmp_path / "d.torchscript").read_text() == "the one before"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_missing_package_is_named_with_the_way_to_get_it(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingPackage, match=r"onnxruntime cannot be imported .*: pip install 'gpucost\[export\]'"):
        export.export(trained, "onnx", tmp_path / "d.onnx", Shape(1, 64, 64))
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_beside_the_weights(weights, capsys, caplog):
    pytest.importorskip("onnxruntime")
    argv = [
        "export",
        "--weights",
        str(weights),
        "--include",
        "onnx",
        "torchscript",
        "--img",
        "64",
        "--dynamic",
        "--half",
    ]
    assert commands.main(argv) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == [str(weights.with_suffix(s)) for s in (".onnx", ".torchscript")]
    assert "MiB, boxes within 0.0" in said[0]
    assert "without effect here: --half" in caplog.messages


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--include", "engine"], "error: --include engine: expected onnx, torchscript"),
        (["--img", "100"], "error: --img 100: expected multiples of 32, one or height and width"),
        (["--img", "64", "64", "64"], "error: --img 64 64 64: expected multiples of 32, one or height and width"),
        (["--batch-size", "0"], "error: --batch-size 0: expected at least 1"),
        (["--opset", "99"], "error: opset 99: expected 12 to 20"),
        (["--weights", "none.pt"], "error: none.pt: no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(weights, caplog, argv, said):
    assert commands.main(["export", "--weights", str(weights), *argv]) == 2
    assert caplog.messages[-1].startswith(said)
