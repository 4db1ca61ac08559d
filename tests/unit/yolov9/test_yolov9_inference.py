"""The inference form: what is dropped, what is folded, and that it says the same."""

import pytest
import torch
from torch import nn

from remote.yolov9.blocks import Conv, Elan, RepConv
from remote.yolov9.inference import Folded, convert, fold, gflops, inference_form
from remote.yolov9.model import Detector, build

# Parameters and GFLOPs at 640 px (two a multiply-add) of the folded form, 80 classes.
FACTS = {
    "yolov9-t": (2_407_632, 9.82),
    "yolov9-s": (7_105_888, 26.38),
    "yolov9-m": (19_978_672, 76.31),
    "yolov9-c": (25_288_768, 102.14),
    "yolov9-e": (57_345_920, 188.95),
}


def lived(name: str, classes: int = 3) -> Detector:
    """A model whose norms have seen something; in double precision, so that differences are none of rounding."""
    torch.manual_seed(1)
    return shaken(build(name, classes)).double().eval()


def shaken(module):
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, std=0.1)
            nn.init.normal_(norm.running_mean, std=0.1)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return module


@pytest.mark.parametrize("name", FACTS)
def test_parameters_and_gflops_of_the_folded_form_equal_the_facts(name):
    with torch.device("meta"):
        model = fold(build(name.replace("yolov9", "gelan"), 80))
    parameters, expected = FACTS[name]
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert gflops(model) == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("name", [*FACTS, "gelan-m"])
def test_both_forms_say_the_same(name):
    model, picture = lived(name), torch.rand(1, 3, 32, 64, dtype=torch.double)
    with torch.no_grad():
        expected, found = model(picture).main, inference_form(model)(picture).main
    torch.testing.assert_close(found.class_logits, expected.class_logits, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.distances, expected.distances, rtol=1e-5, atol=1e-5)  # the head is in single


def test_both_forms_give_the_same_boxes():
    model = lived("yolov9-t")
    picture = torch.rand(2, 3, 128, 128, dtype=torch.double)
    expected, found = model.detect(picture), inference_form(model).detect(picture)
    assert (expected.scores > 0).sum() > 10
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_the_inference_form_has_one_convolution_where_there_were_several_and_no_auxiliary_branch():
    model = inference_form(lived("yolov9-t"))
    kinds = {type(module) for module in model.modules()}
    assert Folded in kinds
    assert not kinds & {Conv, RepConv, nn.BatchNorm2d}
    assert model.variant.name == "gelan-t"
    assert not model.head.dual


def test_the_model_it_is_made_from_stays_as_it_is_and_no_random_number_is_drawn():
    model = lived("yolov9-t").train()
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    inference_form(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_gelan_form_is_copied_and_shares_nothing():
    model = lived("gelan-t")
    copy = convert(model)
    for ours, theirs in zip(copy.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.data_ptr() != theirs.data_ptr()


@pytest.mark.parametrize(
    "block",
    [Conv(6, 8, 3, 2), Conv(8, 8, 3, groups=4), Conv(6, 4, active=False), RepConv(6, 6), Elan(6, 8, 8, 4, 2)],
    ids=["strided", "grouped", "passive", "rep", "elan"],
)
def test_a_block_folds_into_the_same_function(block):
    holder = nn.Sequential(shaken(block)).double().eval()
    x = torch.rand(2, block.conv.in_channels if isinstance(block, Conv) else 6, 9, 9, dtype=torch.double)
    expected = holder(x)
    torch.testing.assert_close(fold(holder)(x), expected, rtol=1e-10, atol=1e-10)
