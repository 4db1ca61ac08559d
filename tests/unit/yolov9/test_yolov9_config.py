from dataclasses import fields
from pathlib import Path

import pytest

from remote.yolov9.config import _CHECKS, HYP_NAMES, HYP_WITHOUT_EFFECT, ConfigError, TrainConfig

PATHS = {"data": "set", "output": "out"}


def test_the_paths_alone_make_a_configuration():
    config = TrainConfig.from_dict(PATHS)
    assert (config.data, config.output) == (Path("set"), Path("out"))
    assert config.resume


def test_every_field_is_a_key_with_a_check():
    assert {f.name for f in fields(TrainConfig)} == set(_CHECKS)


def test_the_list_of_keys_is_frozen():
    assert sorted(_CHECKS) == [
        "accumulate", "amp", "batch", "checkpoint_seconds", "close_mosaic", "data", "device", "epochs", "freeze",
        "hazard_per_hour", "hyp", "image_size", "lr_schedule", "min_items", "model", "multi_scale", "optimizer",
        "output", "patience", "plots", "resume", "save_period", "seed", "single_cls", "sync_bn", "threads",
        "val_interval", "weights", "workers",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("modle", "yolov9-t", "unknown key 'modle'; did you mean 'model'?"),
        ("model", "yolov9-tt", "model is 'yolov9-tt'; did you mean 'yolov9-t'?"),
        ("epochs", 0, "epochs is 0: expected a whole number of at least 1"),
        ("epochs", 1.5, "epochs is 1.5: expected a whole number of at least 1"),
        ("epochs", True, "epochs is True: expected a whole number of at least 1"),
        ("epochs", "10", "epochs is '10': expected a whole number of at least 1"),
        ("image_size", 300, "image_size is 300: expected a multiple of 32, such as 288 or 320"),
        ("image_size", 16, "image_size is 16: expected a whole number from 32 to 4096"),
        ("batch", 0, "batch is 0: expected a whole number of at least 1"),
        ("hyp", [1], r"hyp is \[1\]: expected an object of names and numbers"),
        ("hyp", {"lr": 0.1}, "unknown hyper-parameter 'lr'; did you mean 'lr.'?"),
        ("hyp", {"lr0": "fast"}, "hyp.lr0 is 'fast': expected a number of at least 0"),
        ("hyp", {"lr0": float("nan")}, "hyp.lr0 is nan: expected a number of at least 0"),
        ("hyp", {"mosaic": 2}, "hyp.mosaic is 2: expected a number from 0 to 1"),
        ("hyp", {"fl_gamma": 1.5}, "hyp.fl_gamma is 1.5: there is no focal loss here; set it to 0"),
        ("freeze", "body", "freeze is 'body': expected a whole number of at least 0"),
        ("freeze", [0, -1], "freeze is -1: expected a whole number of at least 0"),
        ("lr_schedule", "step", "lr_schedule is 'step'; known are auto, linear, cosine, flat_cosine, constant"),
        ("accumulate", 0, "accumulate is 0: expected a whole number of at least 1"),
        ("multi_scale", 1, "multi_scale is 1: expected true or false"),
        ("weights", "", "weights is '': expected a path"),
        ("hyp", {"scale": 1}, "hyp.scale is 1: expected a number from 0 to 0.999"),
        ("seed", -1, "seed is -1: expected a whole number of at least 0"),
        ("device", "gpu", "device is 'gpu'; "),
        ("device", 0, "device is 0; known are auto, cpu, cuda"),
        ("amp", True, "amp is True; known are auto, off, bf16, fp16"),
        ("workers", -1, "workers is -1: expected a whole number of at least 0"),
        ("threads", 0, "threads is 0: expected a whole number of at least 1"),
        ("patience", None, "patience is None: expected a whole number of at least 0"),
        ("data", "", "data is '': expected a path"),
        ("data", None, "data is missing: a path"),
        ("resume", "yes", "resume is 'yes': expected true or false"),
        ("checkpoint_seconds", -5, "checkpoint_seconds is -5: expected a number of at least 0"),
        ("hazard_per_hour", -0.1, "hazard_per_hour is -0.1: expected a number of at least 0"),
        ("hazard_per_hour", float("inf"), "hazard_per_hour is inf: expected a number of at least 0"),
        ("hazard_per_hour", float("nan"), "hazard_per_hour is nan: expected a number of at least 0"),
        ("hazard_per_hour", 10**400, "expected a number of at least 0"),
        ("hazard_per_hour", None, "hazard_per_hour is None: expected a number of at least 0"),
    ],
)
def test_a_bad_value_is_named_with_what_would_do(key, value, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig.from_dict({**PATHS, key: value})


@pytest.mark.parametrize("key", ["batch", "workers", "threads", "close_mosaic", "val_interval", "checkpoint_seconds"])
def test_null_leaves_the_choice_to_the_trainer(key):
    assert getattr(TrainConfig.from_dict({**PATHS, key: None}), key) is None


def test_batch_auto_is_null():
    assert TrainConfig.from_dict({**PATHS, "batch": "auto"}).batch is None


def test_hyper_parameters_without_effect_are_left_out_with_one_warning(caplog):
    config = TrainConfig.from_dict({**PATHS, "hyp": {"lr0": 0.02, "anchor_t": 5.0, "box": 7.5}})
    assert config.hyp == {"lr0": 0.02}
    assert caplog.messages == ["warning: without effect in this trainer: hyp anchor_t, box"]
    assert not set(HYP_NAMES) & set(HYP_WITHOUT_EFFECT)


def test_files_that_hold_no_object_are_refused_by_name(tmp_path: Path):
    path = tmp_path / "config.json"
    for text, message in (("[1]", "expected an object, found list"), ("{", "not JSON")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=f"config.json: {message}"):
            TrainConfig.from_file(path)
    with pytest.raises(ConfigError, match=r"absent.json: No such file"):
        TrainConfig.from_file(tmp_path / "absent.json")


def test_a_number_of_frozen_layers_means_the_first_ones():
    assert TrainConfig.from_dict({**PATHS, "freeze": 3}).freeze == (0, 1, 2)
    assert TrainConfig.from_dict({**PATHS, "freeze": [4, 9]}).freeze == (4, 9)
    assert TrainConfig.from_dict({**PATHS, "freeze": 0}).freeze == ()
