import pytest
import torch
from foreign_files import checkpoint_of, foreign_model, save_foreign

from remote.yolov9 import checkpoint
from remote.yolov9.checkpoint import CheckpointError
from remote.yolov9.inference import convert
from remote.yolov9.model import build
from remote.yolov9.pretrained import Pretrained, read_pretrained, transfer
from remote.yolov9.trained import load_trained

NAMES = ("one", "two", "three")


@pytest.mark.parametrize("name", ["yolov9-t", "yolov9-s", "yolov9-m", "gelan-c", "gelan-e"])
def test_a_foreign_file_is_recognised_by_order_and_shapes(tmp_path, monkeypatch, caplog, name):
    model, ours = foreign_model(name, list(NAMES))
    save_foreign(monkeypatch, tmp_path / "w.pt", checkpoint_of(model))
    found = read_pretrained(tmp_path / "w.pt")
    assert (found.model, found.names, found.image_size) == (name, NAMES, 320)
    expected = {key: t.half().float() if t.is_floating_point() else t for key, t in ours.state_dict().items()}
    assert list(found.state) == list(build(name, 3).state_dict())
    assert all(torch.equal(found.state[key], expected[key]) for key in expected)
    assert "GPL-3.0" in caplog.text


@pytest.mark.parametrize("width", [80, 128])
def test_both_widths_of_the_class_branch_of_t_are_known(tmp_path, monkeypatch, width):
    model, _ = foreign_model("yolov9-t", [f"c{i}" for i in range(80)], width)
    save_foreign(monkeypatch, tmp_path / "w.pt", checkpoint_of(model))
    found = read_pretrained(tmp_path / "w.pt")
    assert (found.model, found.class_width) == ("yolov9-t", width)
    fewer = build("yolov9-t", 3, found.class_width)
    assert {name.rsplit(".", 1)[0] for name in transfer(fewer, found).fresh} == {
        f"layers.29.{branch}.{level}.2" for branch in ("cv3", "cv5") for level in range(3)
    }


def test_a_foreign_detector_finds_what_it_found(tmp_path, monkeypatch):
    model, ours = foreign_model("yolov9-t", list(NAMES))
    save_foreign(monkeypatch, tmp_path / "w.pt", checkpoint_of(model))
    trained = load_trained(tmp_path / "w.pt", torch.device("cpu"))
    images = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    ours.load_state_dict({k: t.half().float() if t.is_floating_point() else t for k, t in ours.state_dict().items()})
    ours.eval()
    with torch.no_grad():
        torch.testing.assert_close(trained.model(images).main, ours(images).main, rtol=1e-3, atol=1e-3)


def weights_of(model, names=NAMES):
    return Pretrained(model.variant.name, names, 640, model.state_dict())


def filled(name, classes, value=0.25):
    model = build(name, classes)
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, value)
    return model


def test_another_number_of_classes_keeps_all_but_the_last_layers():
    target = build("yolov9-s", 2)
    report = transfer(target, weights_of(filled("yolov9-s", 3)))
    assert len(report.fresh) == 12
    assert report.copied == 1772 - 12
    assert str(report) == (
        "1760 tensors copied, 12 begin afresh: layers.29.cv3.0.2, layers.29.cv3.1.2, layers.29.cv3.2.2,"
        " layers.29.cv5.0.2, ..."
    )
    fresh = set(report.fresh)
    for name, parameter in target.named_parameters():
        assert bool((parameter == 0.25).all()) == (name not in fresh), name


def test_a_gelan_form_gives_its_weights_to_the_main_branch_of_a_yolov9_and_back():
    source = filled("yolov9-c", 3)
    dual = build("yolov9-c", 3)
    report = transfer(dual, weights_of(convert(source)))
    assert report.copied == 937
    assert all(bool((p == 0.25).all()) for p in convert(dual).parameters())
    assert not bool((dual.head.cv2[0][0].conv.weight == 0.25).all())
    single = build("gelan-c", 3)
    assert transfer(single, weights_of(source)).fresh == ()


def test_another_variant_is_refused():
    with pytest.raises(CheckpointError, match="the weights are those of a yolov9-s, the model is a yolov9-t"):
        transfer(build("yolov9-t", 3), weights_of(build("yolov9-s", 3)))


def own_best(model="gelan-t", **changes):
    weights = checkpoint.half(build("gelan-t", 3).state_dict())
    return {"model": model, "names": list(NAMES), "image_size": 96, "epoch": 1, "weights": weights, **changes}


def test_best_and_last_of_this_trainer_are_read(tmp_path, caplog):
    checkpoint.save(tmp_path / "best.pt", own_best())
    assert read_pretrained(tmp_path / "best.pt").model == "gelan-t"
    average = filled("gelan-t", 3).state_dict()
    run = {"model": "gelan-t", "names": list(NAMES), "image_size": 96}
    checkpoint.save(tmp_path / "last.pt", {"run": run, "model": {}, "ema": {"model": average, "updates": 1}})
    found = read_pretrained(tmp_path / "last.pt")
    assert found.state["layers.0.conv.weight"].eq(0.25).all()
    assert "GPL" not in caplog.text


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        pytest.param(own_best("yolov9-t"), "its tensors are not those of a yolov9-t", id="another model"),
        pytest.param(own_best("yolov8"), "unknown model 'yolov8'", id="unknown model"),
        pytest.param(own_best(names=["a"]), "its tensors are not those of a gelan-t", id="another number of classes"),
        pytest.param({"model": "gelan-t"}, "no weights of this trainer", id="no weights"),
        pytest.param(own_best(weights={}), "no weights of this trainer", id="empty weights"),
    ],
)
def test_what_does_not_agree_is_refused(tmp_path, payload, said):
    checkpoint.save(tmp_path / "w.pt", payload)
    with pytest.raises(CheckpointError, match=said):
        read_pretrained(tmp_path / "w.pt")


def test_an_altered_checkpoint_of_this_trainer_is_not_taken_for_a_foreign_one(tmp_path):
    average = build("gelan-t", 3).state_dict()
    torch.save({"format": 1, "digest": "0" * 64, "model": average}, tmp_path / "last.pt")
    with pytest.raises(CheckpointError, match="its content does not agree with its digest"):
        read_pretrained(tmp_path / "last.pt")


def test_a_missing_file_and_tensors_of_nothing_known_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"gone\.pt: no such file"):
        read_pretrained(tmp_path / "gone.pt")
    torch.save({"a": torch.ones(3, 4, 1, 1), "b": torch.ones(3)}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="its 2 tensors are not those of any of yolov9-t"):
        read_pretrained(tmp_path / "w.pt")
    torch.save({"a": torch.ones(3)}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="there are no convolutions in it"):
        read_pretrained(tmp_path / "w.pt")
