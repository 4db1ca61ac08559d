"""The launcher refuses what the trainer would refuse, and nothing else."""

from __future__ import annotations

import math

import pytest

from launcher.errors import BadInput
from launcher.hyperparameters import RANGES, WITHOUT_EFFECT
from launcher.jobspec import parse
from remote.yolov9.config import HYP_NAMES, HYP_WITHOUT_EFFECT, ConfigError, TrainConfig

JOB = {"name": "job", "data": "./pictures"}


def trainer_takes(name: str, value: object) -> bool:
    try:
        TrainConfig.from_dict({"data": "d", "output": "o", "hyp": {name: value}})
    except ConfigError:
        return False
    return True


def launcher_takes(name: str, value: object) -> bool:
    try:
        parse({**JOB, "hyperparameters": {name: value}}, {}, "job.yaml")
    except BadInput:
        return False
    return True


def test_the_names_are_those_of_the_trainer():
    assert tuple(RANGES) == HYP_NAMES
    assert WITHOUT_EFFECT == HYP_WITHOUT_EFFECT


@pytest.mark.parametrize("name", HYP_NAMES)
def test_the_ranges_are_those_of_the_trainer(name: str):
    low, high = RANGES[name]
    beyond = math.nextafter(high, math.inf)
    for value in (
        low,
        high,
        math.nextafter(low, -math.inf),
        beyond,
        -5,
        0.0005,
        0.9995,
        1,
        2,
        100,
        True,
        "hello",
        None,
    ):
        if value != math.inf:  # the launcher takes finite numbers only
            assert launcher_takes(name, value) == trainer_takes(name, value), value


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"lr00": 3}, "unknown hyper-parameter 'lr00'", "did you mean 'lr0'?"),
        ({"zzzzz": 3}, "unknown hyper-parameter 'zzzzz'", "known: "),
        ({7: 3}, "unknown hyper-parameter 7", "known: "),
        ({"lr0": math.nan}, "lr0 is nan: expected a number of at least 0", "correct"),
        ({"lr0": math.inf}, "lr0 is inf", "correct"),
        ({"lr0": 10**400}, "lr0 is 1000", "correct"),
        ({"lr0": 16**9999}, "lr0 is a number of thousands of digits", "correct"),
        ({"lr0": "hello"}, "lr0 is 'hello'", "correct"),
        ({"lr0": -5}, "lr0 is -5", "correct"),
        ({"mosaic": True}, "mosaic is True: expected a number from 0 to 1", "correct"),
        ({"box": math.nan}, "box is nan: expected a number", "correct"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "given",
)
@pytest.mark.parametrize("place", ["job", "task"])
def test_a_name_or_value_that_the_trainer_refuses_costs_nothing(given, message, hint, place):
    raw = {**JOB, "hyperparameters": given}
    if place == "task":
        raw = {**JOB, "tasks": [{"name": "a", "hyperparameters": given}]}
    with pytest.raises(BadInput) as error:
        parse(raw, {}, "job.yaml")
    assert message in str(error.value)
    assert "hyperparameters: " in str(error.value)
    assert len(str(error.value)) < 200
    assert hint in error.value.hint


def test_an_exponent_without_a_point_is_a_number():
    job = parse({**JOB, "hyperparameters": {"lr0": "1e-3", "box": 7.5}}, {}, "job.yaml")
    assert dict(job.hyperparameters) == {"lr0": 0.001, "box": 7.5}
