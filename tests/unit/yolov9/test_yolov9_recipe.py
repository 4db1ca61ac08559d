import pytest

from remote.yolov9 import recipe
from remote.yolov9.config import TrainConfig


def chosen(train: int = 200, val: int = 40, **config):
    return recipe.choose(TrainConfig.from_dict({"data": "d", "output": "o", **config}), train, val)


def test_short_runs_get_adamw_and_long_ones_the_reference_recipe():
    short, long = chosen(epochs=15), chosen(118_000, 5_000, epochs=500, batch=16)
    assert (short.optimizer, short.lr_schedule, short.accumulate) == ("adamw", "cosine", 1)
    assert (long.optimizer, long.lr_schedule, long.accumulate) == ("sgd", "linear", 4)
    assert (long.hyp.lr0, long.hyp.scale, long.hyp.mixup) == (0.01, 0.9, 0.15)
    assert long.ema_decay == 0.9999
    assert long.ema_ramp == 2000
    assert long.mosaic_epochs == 485


def test_the_optimiser_can_be_named():
    assert chosen(epochs=15, optimizer="sgd").hyp == recipe.LONG
    assert chosen(118_000, epochs=500, optimizer="adamw").hyp == recipe.SHORT


def test_a_short_run_has_less_rate_for_a_smaller_batch():
    rates = [chosen(epochs=15, batch=batch).hyp.lr0 for batch in (4, 16, 64)]
    assert rates == [0.002, 0.004, 0.004]


def test_given_hyper_parameters_win():
    assert chosen(epochs=15, hyp={"lr0": 0.5, "mixup": 0.1}).hyp.lr0 == 0.5


def test_weight_decay_of_sgd_scales_with_the_batch_it_sees():
    assert chosen(epochs=15, optimizer="sgd", batch=16).weight_decay == pytest.approx(0.0005)
    assert chosen(epochs=15, optimizer="sgd", batch=128).weight_decay == pytest.approx(0.001)


@pytest.mark.parametrize(("epochs", "train"), [(1, 10), (3, 50), (15, 200), (100, 200), (500, 118_000)])
def test_warm_up_average_and_mosaic_fit_into_any_run(epochs, train):
    r = chosen(train, epochs=epochs)
    assert r.warmup_steps <= r.steps * recipe.WARMUP_SHARE[r.optimizer]
    assert 0 <= r.ema_decay < 1
    assert 0 <= r.mosaic_epochs <= epochs
    assert r.ema_ramp >= 1
    assert r.steps == r.steps_per_epoch * epochs


def test_small_sets_get_a_small_batch_and_large_ones_sixteen():
    batches = [chosen(train, epochs=15).batch for train in (50, 200, 5_000)]
    assert batches == sorted(batches)
    assert batches[0] < 16 == batches[-1]


def test_validation_is_rarer_the_more_it_costs():
    assert chosen(200, 5).val_interval == 1
    assert chosen(200, 200).val_interval > chosen(200, 60).val_interval
    assert chosen(200, 200, val_interval=1).val_interval == 1


def test_the_log_line_names_the_choices():
    assert recipe.describe(chosen(epochs=15, batch=8)).startswith("adamw lr ")


def test_accumulation_and_schedule_can_be_given():
    chosen = recipe.choose(
        TrainConfig.from_dict({"data": "d", "output": "o", "accumulate": 3, "lr_schedule": "flat_cosine"}), 200, 40
    )
    assert (chosen.optimizer, chosen.accumulate, chosen.lr_schedule) == ("adamw", 3, "flat_cosine")
    assert "flat cosine" in recipe.describe(chosen)


@pytest.mark.parametrize(("optimizer", "schedule"), [("sgd", "linear"), ("adamw", "cosine")])
def test_the_schedule_goes_with_the_optimiser(optimizer, schedule):
    chosen = recipe.choose(TrainConfig.from_dict({"data": "d", "output": "o", "optimizer": optimizer}), 200, 40)
    assert chosen.lr_schedule == schedule


def test_sgd_has_the_average_of_the_reference_however_short_the_run_is():
    chosen = recipe.choose(TrainConfig.from_dict({"data": "d", "output": "o", "optimizer": "sgd"}), 200, 40)
    assert (chosen.ema_decay, chosen.ema_ramp, chosen.warmup_steps) == (0.9999, 2000, 100)
