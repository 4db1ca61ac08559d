import pytest
import torch

from remote.yolov9.inference import gflops
from remote.yolov9.model import Detector, build
from remote.yolov9.variants import VARIANTS, absolute

# Parameters, GFLOPs at 640 px (two a multiply-add) and state-dict tensors, 80 classes, training form for yolov9.
FACTS = {
    "yolov9-t": (3_717_680, 16.28, 1772),
    "yolov9-s": (9_804_512, 39.50, 1772),
    "yolov9-m": (32_878_432, 132.08, 1412),
    "yolov9-c": (51_182_080, 238.65, 1460),
    "yolov9-e": (69_529_664, 243.96, 2172),
    "gelan-t": (2_442_640, 9.90, 1339),
    "gelan-s": (7_226_208, 26.71, 1339),
    "gelan-m": (20_124_000, 76.80, 907),
    "gelan-c": (25_498_752, 102.82, 937),
    "gelan-e": (58_114_432, 191.15, 1811),
}


def on_meta(name: str) -> Detector:
    with torch.device("meta"):
        return build(name, 80)


@pytest.mark.parametrize("name", FACTS)
def test_parameters_and_tensors_equal_the_facts(name):
    model = on_meta(name)
    parameters, _, tensors = FACTS[name]
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert len(model.state_dict()) == tensors


@pytest.mark.parametrize("name", FACTS)
def test_gflops_are_within_half_a_percent_of_the_facts(name):
    assert gflops(on_meta(name).train()) == pytest.approx(FACTS[name][1], rel=0.005)


@pytest.mark.parametrize("name", VARIANTS)
def test_layers_read_only_from_layers_before_them(name):
    for index, layer in enumerate(VARIANTS[name].layers):
        assert all(source < index for source in absolute(layer, index))


@pytest.mark.parametrize("name", ["yolov9-t", "yolov9-m"])
def test_the_state_dict_goes_by_layer_index(name):
    indices = [int(key.split(".")[1]) for key in on_meta(name).state_dict()]
    assert indices == sorted(indices)
    assert indices[-1] == len(VARIANTS[name].layers)


def test_rounding_widens_layer_17_of_m_to_184_channels():
    assert on_meta("yolov9-m").layers[17].cv1.conv.out_channels == 184


@pytest.mark.parametrize("name", ["yolov9-t", "yolov9-c", "yolov9-e"])
def test_training_gives_both_heads_and_evaluation_the_main_one(name):
    model = on_meta(name)
    image = torch.empty(2, 3, 64, 96, device="meta")
    cells = 8 * 12 + 4 * 6 + 2 * 3
    main, auxiliary = model.train()(image)
    for prediction in (main, auxiliary):
        assert prediction.box_logits.shape == (2, cells, 64)
        assert prediction.distances.shape == (2, cells, 4)
        assert prediction.class_logits.shape == (2, cells, 80)
    assert model.eval()(image).auxiliary is None


def test_evaluation_skips_the_auxiliary_layers():
    model = on_meta("yolov9-t")
    assert gflops(model.eval()) == pytest.approx(FACTS["gelan-t"][1], rel=0.005)


def test_skipping_them_changes_nothing_for_the_main_head():
    torch.manual_seed(0)
    model = build("yolov9-t", 3).eval()
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        alone = model(image).main.class_logits
        for module in model.modules():
            module.training = isinstance(module, Detector)  # all layers run, the norms keep their statistics
        both = model(image).main.class_logits
    assert torch.equal(alone, both)


def test_every_trainable_parameter_gets_a_gradient_in_training():
    torch.manual_seed(0)
    model = build("yolov9-t", 2).train()
    main, auxiliary = model(torch.rand(2, 3, 64, 64))
    sum(t.sum() for t in (main.box_logits, main.class_logits, auxiliary.box_logits, auxiliary.class_logits)).backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    assert sum(p.numel() for p in model.parameters() if not p.requires_grad) == 32  # two fixed DFL convolutions


def test_class_biases_expect_few_objects_at_the_start():
    bias = build("yolov9-t", 10).head.cv5[0][-1].bias
    assert bias[0].exp().item() == pytest.approx(5 / 10 / 80**2)


def test_an_unknown_name_gets_the_nearest_known_one():
    with pytest.raises(ValueError, match=r"'yolov9-x'.*'yolov9-"):
        build("yolov9-x", 3)
    with pytest.raises(ValueError, match="at least one class"):
        build("yolov9-t", 0)


def test_detect_gives_boxes_in_pixels_by_descending_score():
    torch.manual_seed(0)
    found = build("yolov9-t", 3).eval().detect(torch.rand(2, 3, 64, 64))
    assert found.boxes.shape[:2] == found.scores.shape == found.classes.shape
    assert bool((found.scores.diff(dim=1) <= 0).all())
