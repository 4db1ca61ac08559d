import math
from dataclasses import replace

import pytest
import torch

from remote.yolov9 import optim, recipe
from remote.yolov9.config import TrainConfig
from remote.yolov9.model import build

LONG = recipe.choose(TrainConfig.from_dict({"data": "d", "output": "o", "epochs": 500, "batch": 16}), 4000, 100)
SHORT = recipe.choose(TrainConfig.from_dict({"data": "d", "output": "o", "epochs": 15, "batch": 8}), 200, 40)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return build("yolov9-t", 3)


def test_groups_are_biases_weights_norms_and_only_weights_decay(model):
    biases, weights, norms = optim.parameter_groups(model, 0.1)
    assert [g["weight_decay"] for g in (biases, weights, norms)] == [0, 0.1, 0]
    assert all(p.ndim == 1 for p in biases["params"] + norms["params"])
    assert all(p.ndim == 4 for p in weights["params"])
    grouped = sum(len(g["params"]) for g in (biases, weights, norms))
    assert grouped == sum(p.requires_grad for p in model.parameters())


def test_norms_that_take_their_statistics_over_all_gpus_are_norms():
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(build("gelan-t", 3))
    before, after = (optim.parameter_groups(m, 0.1) for m in (build("gelan-t", 3), model))
    assert [len(g["params"]) for g in after] == [len(g["params"]) for g in before]


@pytest.mark.parametrize("chosen", [LONG, SHORT])
def test_the_rate_rises_to_lr0_and_falls_to_its_last_share(model, chosen):
    schedule, optimizer = optim.Schedule(chosen), optim.make_optimizer(model, chosen)

    def rates(step):
        schedule.apply(optimizer, step)
        return [g["lr"] for g in optimizer.param_groups]

    assert rates(0) == [chosen.warmup_bias_lr, 0, 0]
    assert rates(chosen.warmup_steps)[1] == pytest.approx(chosen.hyp.lr0, rel=0.05)
    assert rates(chosen.steps) == pytest.approx([chosen.hyp.lr0 * chosen.hyp.lrf] * 3)


def test_accumulation_and_momentum_grow_during_the_warm_up(model):
    schedule, optimizer = optim.Schedule(LONG), optim.make_optimizer(model, LONG)
    assert [schedule.accumulate(s) for s in (0, LONG.warmup_steps)] == [1, 4]
    schedule.apply(optimizer, 0)
    assert optimizer.param_groups[1]["momentum"] == LONG.hyp.warmup_momentum
    schedule.apply(optimizer, LONG.warmup_steps)
    assert optimizer.param_groups[1]["momentum"] == pytest.approx(LONG.hyp.momentum)


@pytest.mark.parametrize(
    ("schedule", "quarter", "half", "three_quarters", "end"),
    [
        ("linear", 0.7525, 0.505, 0.2575, 0.01),
        ("cosine", 0.855, 0.505, 0.155, 0.01),
        ("flat_cosine", 1.0, 1.0, 0.505, 0.01),
        ("constant", 1.0, 1.0, 1.0, 1.0),
    ],
)
def test_the_rate_falls_as_the_schedule_says(schedule, quarter, half, three_quarters, end):
    falling = optim.Schedule(replace(LONG, lr_schedule=schedule, steps=1000))
    found = [falling.decay(step) for step in (250, 500, 750, 1000)]
    assert falling.decay(0) == 1
    assert found == pytest.approx([quarter, half, three_quarters, end], abs=1e-3)


def test_no_warm_up_starts_at_full_rate():
    assert optim.Schedule(replace(SHORT, warmup_steps=0)).warm(0) == 1


def test_the_average_follows_its_formula():
    model = build("yolov9-t", 2)
    ema = optim.Ema(model, decay=0.9, ramp=5.0)
    key = "layers.0.conv.weight"
    expected = model.state_dict()[key].clone()
    for n in (1, 2, 3):
        with torch.no_grad():
            model.get_parameter(key).add_(1.0)
        ema.update()
        decay = 0.9 * (1 - math.exp(-n / 5))
        expected = decay * expected + (1 - decay) * model.state_dict()[key]
    assert torch.allclose(ema.model.state_dict()[key], expected, atol=1e-6)
    assert not any(p.requires_grad for p in ema.model.parameters())


def test_the_average_holds_norm_statistics_too():
    model = build("yolov9-t", 2)
    ema = optim.Ema(model, decay=0.5, ramp=1.0)
    model.get_buffer("layers.0.bn.running_mean").fill_(4.0)
    ema.update()
    assert float(ema.model.get_buffer("layers.0.bn.running_mean")[0]) > 0


def test_gradients_are_clipped_to_a_norm_of_ten():
    layer = torch.nn.Linear(4, 4)
    sgd = torch.optim.SGD(layer.parameters(), lr=1.0)
    before = [p.detach().clone() for p in layer.parameters()]
    (layer(torch.ones(1, 4)).sum() * 1e4).backward()
    optim.gradient_step(layer, sgd, torch.amp.GradScaler("cpu", enabled=False))
    after = [p.detach() for p in layer.parameters()]
    moved = math.sqrt(sum(float((a - b).pow(2).sum()) for a, b in zip(before, after, strict=True)))
    assert moved == pytest.approx(10, rel=1e-4)


@pytest.fixture
def nan_in_fresh_memory():
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("nan_in_fresh_memory")
@pytest.mark.parametrize("chosen", [LONG, SHORT], ids=["sgd", "adamw"])
def test_a_first_step_left_out_for_its_overflow_leaves_no_trace(chosen):
    def weight_after(*gradients):
        layer = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.ones_(layer.weight)
        optimizer = optim.make_optimizer(layer, chosen, scaled=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        for gradient in gradients:
            scaler.scale(layer(torch.tensor([[gradient]])).sum()).backward()
            optim.gradient_step(layer, optimizer, scaler)
        return layer.weight.item()

    assert weight_after(math.inf, 3.0, 4.0) == weight_after(3.0, 4.0) != 1.0


def test_a_value_that_is_not_finite_is_seen():
    assert optim.all_finite([torch.ones(3), torch.tensor(1)])
    assert not optim.all_finite([torch.ones(3), torch.tensor([1.0, math.nan])])
    assert not optim.all_finite([torch.tensor([math.inf])])
