import pytest
import yaml

from remote.yolov9.cfg import variant_of
from remote.yolov9.config import ConfigError
from remote.yolov9.variants import VARIANTS

MODULES = {"aconv": "AConv", "adown": "ADown", "sppelan": "SPPELAN", "conv": "Conv", "silence": "Silence"}


def row(layer):
    """A layer as model files write it."""
    source = layer.sources[0] if len(layer.sources) == 1 else list(layer.sources)
    numbers = list(layer.numbers)
    if layer.kind == "elan":
        return [source, 1, "RepNCSPELAN4", numbers] if numbers[3] else [source, 1, "ELAN1", numbers[:3]]
    if layer.kind in ("cblinear", "cbfuse"):
        return [source, 1, "CBLinear" if layer.kind == "cblinear" else "CBFuse", [numbers]]
    if layer.kind == "upsample":
        return [source, 1, "nn.Upsample", ["None", 2, "nearest"]]
    if layer.kind == "concat":
        return [source, 1, "Concat", [1]]
    return [source, 1, MODULES[layer.kind], numbers]


def model_file(name, **changes):
    variant = VARIANTS[name]
    rows = [row(layer) for layer in variant.layers]
    module = "DualDDetect" if variant.auxiliary else "DDetect"
    head = [[*variant.auxiliary, *variant.main], 1, module, ["nc"]]
    return {"nc": 7, "depth_multiple": 1.0, "backbone": rows[:9], "head": [*rows[9:], head], **changes}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_known_by_its_layers_whatever_the_file_is_called(tmp_path, name):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(model_file(name)))
    assert variant_of(str(tmp_path / "mine.yaml")) == name


@pytest.mark.parametrize("cfg", ["yolov9-c", "yolov9-c.yaml", "models/detect/yolov9-c.yaml"])
def test_a_file_that_is_not_there_counts_by_its_name(cfg):
    assert variant_of(cfg) == "yolov9-c"


def changed(index, new):
    raw = model_file("yolov9-c")
    raw["backbone"][index] = new
    return raw


def other_levels():
    raw = model_file("gelan-s")
    raw["head"][-1][0] = [15, 18, 20]
    return raw


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        pytest.param(changed(4, [-1, 1, "ADown", [288]]), "its layers are those of yolov9-c up to layer 4", id="width"),
        pytest.param(changed(4, [-1, 1, "C2f", [256]]), "layer 4 is 1 x C2f", id="module"),
        pytest.param(changed(4, [-1, 3, "ADown", [256]]), "layer 4 is 3 x ADown", id="repeats"),
        pytest.param(changed(4, [-1, 1]), "not a model file", id="short row"),
        pytest.param(
            other_levels(), r"its head reads layers \[15, 18, 20\], that of gelan-s \[15, 18, 21\]", id="levels"
        ),
        pytest.param(
            model_file("gelan-s", width_multiple=0.5), "width_multiple are 1 and 0.5: both must be 1", id="scale"
        ),
        pytest.param(model_file("gelan-s", head=[[-1, 1, "Detect", ["nc"]]]), "not a model file", id="no levels"),
        pytest.param(model_file("gelan-s", head=[[[1], 1, "Detect", ["nc"]]]), "its head is a Detect", id="head"),
        pytest.param({"nc": 3}, "not a model file", id="no layers"),
        pytest.param([1, 2], "not a model file", id="a list"),
    ],
)
def test_what_is_not_known_is_named(tmp_path, raw, said):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError, match=said):
        variant_of(str(tmp_path / "mine.yaml"))


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"cfg is 'yolov8n\.yaml': no such file, and none of yolov9-t"):
        variant_of("yolov8n.yaml")
