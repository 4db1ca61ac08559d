"""The job file: what is accepted, and the one sentence for what is not."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from run_cases import opened

from launcher.errors import BadInput, ExitCode
from launcher.jobspec import JobSpec, load, parse
from launcher.journal import decode, encode

JOB = {"name": "job", "data": "./pictures"}
TEMPLATES = Path(__file__).parents[3] / "templates"


def refused(raw, **overrides):
    """The message and hint for a job that cannot be used."""
    with pytest.raises(BadInput) as error:
        parse(raw, overrides, "job.yaml")
    assert error.value.exit_code == ExitCode.USAGE
    return str(error.value), error.value.hint


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ({"epoch": 5}, "unknown key 'epoch'", "did you mean 'epochs'?"),
        ({"imagesize": 5}, "unknown key 'imagesize'", "did you mean 'image_size'?"),
        ({"spot": True}, "unknown key 'spot'", "known keys: "),
        ({"aws": {"profil": "x"}}, "unknown key 'aws.profil'", "did you mean 'profile'?"),
        ({"layout": {"gpu": 2}}, "unknown key 'layout.gpu'", "did you mean 'gpus'?"),
        ({"trainer": {"worker": 2}}, "unknown key 'trainer.worker'", "did you mean 'workers'?"),
        ({"tasks": [{"name": "a", "epoch": 3}]}, "unknown key 'tasks.0.epoch'", "did you mean 'epochs'?"),
        ({"name": None}, "name:", "README"),
        ({"name": "Has Spaces"}, "name:", "README"),
        ({"name": "-x"}, "name:", "README"),
        ({"name": "../up"}, "name:", "README"),
        ({"model": "yolov9-x"}, "model: Input should be 'yolov9-t'", "README"),
        ({"model": "yolov8-n"}, "given: 'yolov8-n'", "README"),
        ({"epochs": 0}, "epochs: Input should be greater than or equal to 1 (given: 0)", "README"),
        ({"epochs": "many"}, "epochs:", "README"),
        ({"image_size": 300}, "image_size: Input should be a multiple of 32 (given: 300)", "README"),
        ({"batch": "huge"}, "batch:", "README"),
        ({"batch": 0}, "batch: Input should be greater than or equal to 1", "README"),
        ({"budget": "-3"}, "budget: '-3' is not a budget", "README"),
        ({"budget": "lots"}, "budget: 'lots' is not an amount of US dollars; write 50, $50 or 12.50", "README"),
        ({"deadline": "12"}, "deadline: '12' is not a duration; write 12h, 90m or 1h30m", "README"),
        ({"disk": "big"}, "disk: 'big' is not a size", "README"),
        ({"market": "cheap"}, "market: Input should be 'spot', 'on-demand' or 'any' (given: 'cheap')", "README"),
        ({"clouds": ["ibm"]}, "clouds.0:", "README"),
        ({"output": "bucket/prefix"}, "output 'bucket/prefix' is not an object-storage prefix", "README"),
        ({"data": "https://x/y.zip"}, "only local paths and s3:// URLs can be read now", "README"),
        ({"tasks": [{"name": "a"}, {"name": "a"}]}, "two tasks are called 'a'", "README"),
        (
            {"layout": {"gpus": 3}, "batch": 16},
            "batch 16 of 'job' is not divisible by layout.gpus 3",
            "README",
        ),
        ({"tasks": [{"epochs": 3}]}, "the key 'tasks.0.name' is missing", "gpucost init"),
        ({"hyperparameters": {"lr0": [1]}}, "hyperparameters: lr0 is [1]", "correct"),
        ({"hyperparameters": [1]}, "hyperparameters:", "README"),
        ({"seed": -1}, "seed:", "README"),
        ({"boot_limit": "26m"}, "boot_limit is more than 25m: a machine without an agent for 30 minutes", "README"),
        ({"seed": 10**10}, "seed:", "README"),
        ({"epochs": True}, "epochs: true (or yes, no, on, off) is no value of this key", "README"),
        ({"batch": True}, "batch: true", "README"),
        ({"images": False}, "images: false", "README"),
        ({"layout": {"gpus": True}}, "layout.gpus: true", "README"),
        ({"tasks": [{"name": "a", "epochs": True}]}, "tasks.0.epochs: true", "README"),
        ({"budget": True}, "budget: true", "README"),
        ({"clouds": "ibm"}, "clouds.0:", "README"),
        ({"gpus": {"T4": 1}}, "gpus:", "README"),
        ({"output": "s3://"}, "output 's3://' is not an object-storage prefix; write s3://bucket/prefix", "README"),
        ({"output": "s3:///x"}, "output 's3:///x' is not an object-storage prefix", "README"),
        ({"data": "s3://"}, "data 's3://'", "README"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_cannot_be_used_is_named_with_its_value_and_the_next_action(change, message, hint):
    said, advice = refused({**JOB, **change})
    assert said.startswith("job.yaml: ")
    assert message in said
    assert hint in advice
    assert "function-before" not in said
    assert "constrained" not in said


@pytest.mark.parametrize("key", ["name", "data"])
def test_a_missing_key_is_named(key):
    said, advice = refused({other: value for other, value in JOB.items() if other != key})
    assert f"the key '{key}' is missing" in said
    assert "gpucost init" in advice


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [job\n", "line 2 is not valid YAML"),
        ("name: job\n\tdata: x\n", "line 2 is not valid YAML"),
        ("name: job\ndata: x\nname: other\n", "line 3 is not valid YAML: the key 'name' is given twice"),
        ("layout: {gpus: 1, gpus: 2}\n", "the key 'gpus' is given twice"),
        ("- a\n- b\n", "holds no keys"),
        ("just words\n", "holds no keys"),
        ("", "holds no keys"),
        ("name: !!python/object/apply:os.system ['true']\n", "line 1 is not valid YAML"),
        ("name: \x00\n", "is not valid YAML"),
        ("? [a, b]\n: c\n", "is not valid YAML"),
        ("? {a: b}\n: c\n", "is not valid YAML"),
        ("name: job\nseed: 2026-13-45\n", "line 2 is not valid YAML: '2026-13-45' is no timestamp"),
        ("name: job\ndata: 2026-02-31\n", "line 2 is not valid YAML"),
        ("name: job\nseed: " + "9" * 5000 + "\n", "line 2 is not valid YAML"),
        ("seed: !!int ''\n", "line 1 is not valid YAML: '' is no int"),
        ("seed: !!float abc\n", "line 1 is not valid YAML"),
        ("seed: !!bool maybe\n", "line 1 is not valid YAML"),
        ("seed: !!timestamp abc\n", "line 1 is not valid YAML"),
        ("seed: !!binary \u00e4\n", "is not valid YAML"),
        ("seed: 0x\n_: !!int _\n", "line 2 is not valid YAML"),
        ("[" * 20_000, "nested too deeply"),
        ("a: " * 20_000, "is not valid YAML"),
        ("name: job\n#" + "x" * (1 << 20), "is too large"),
    ],
    ids=range(23),
)
def test_a_file_that_is_no_job_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as error:
        load(path, {})
    assert str(path) in str(error.value)
    assert message in str(error.value)
    assert len(str(error.value)) < len(str(path)) + 300
    assert error.value.hint


def nested(level: int, leaf: str) -> str:
    """A list whose first entry holds the anchors of all the others."""
    if level == 0:  # ten to the tenth entries take a few hundred bytes
        return "&a0 [" + ", ".join([leaf] * 10) + "]"
    return f"&a{level} [{nested(level - 1, leaf)}" + f", *a{level - 1}" * 9 + "]"


@pytest.mark.parametrize("key", ["data", "model", "epochs", "budget", "deadline", "disk", "gpus", "hyperparameters"])
def test_anchors_that_multiply_make_no_long_message(tmp_path, key):
    path = tmp_path / "job.yaml"
    text = "".join(line + "\n" for line in ("name: job", "data: x") if not line.startswith(key))
    path.write_text(f"{text}{key}: {nested(9, 'x' * 10)}\n")
    with pytest.raises(BadInput, match=key) as error:
        load(path, {})
    assert len(str(error.value)) < len(str(path)) + 300


@pytest.mark.parametrize("key", ["name", "x" * 5000, "budget", "model", "epochs", "output"])
def test_a_long_text_makes_no_long_message(key):
    said, advice = refused({**JOB, key: "y" * 5000})
    assert len(said) < 600
    assert len(advice) < 600


def test_a_time_like_number_is_a_text(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("name: job\ndata: x\nepochs: 1:20\n")
    with pytest.raises(BadInput, match=r"epochs: .*given: '1:20'"):
        load(path, {})
    path.write_text("name: job\ndata: x\nepochs: 0x10\nhyperparameters: {lr0: 1.5e-3, lrf: .5}\n")
    assert (load(path, {}).epochs, load(path, {}).hyperparameters) == (16, {"lr0": 0.0015, "lrf": 0.5})


def test_one_text_for_a_list_is_a_list_of_one():
    job = parse({**JOB, "gpus": "T4", "regions": "us-east-1", "clouds": "aws"}, {}, "x")
    assert (job.gpus, job.regions, job.clouds) == (("T4",), ("us-east-1",), ("aws",))


def test_a_file_that_cannot_be_read_is_named_with_what_to_do(tmp_path):
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("name: d\xe9tecteur\n".encode("latin-1"))
    for path, message in (
        (tmp_path / "none.yaml", "there is no job file"),
        (tmp_path, "is a folder"),
        (latin, "is not text in UTF-8"),
    ):
        with pytest.raises(BadInput, match=message) as error:
            load(path, {})
        assert error.value.hint


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("name: job\ndata: ./x\n", encoding="utf-8-sig")
    assert load(path, {}).name == "job"


def test_flags_override_the_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("name: job\ndata: ./x\nbudget: 50\nepochs: 10\naws: {profile: p, subnet: s}\n")
    job = load(path, {"budget": "$2", "epochs": 3, "aws.profile": "q", "layout.gpus": 2})
    assert (job.budget, job.epochs, job.aws.profile, job.aws.subnet, job.layout.gpus) == (Decimal(2), 3, "q", "s", 2)


def test_a_wrong_flag_is_refused_like_a_wrong_key():
    said, _ = refused(JOB, budget="no")
    assert "budget: 'no'" in said


def test_each_training_has_every_field_and_its_own_overrides():
    job = parse(
        {
            **JOB,
            "epochs": 9,
            "seed": 4,
            "hyperparameters": {"lr0": 0.1, "mosaic": 1},
            "tasks": [{"name": "a"}, {"name": "b", "epochs": 2, "seed": 0, "hyperparameters": {"lr0": 0.2}}],
        },
        {},
        "x",
    )
    a, b = job.trainings()
    assert (a.epochs, a.seed, a.model, a.batch, dict(a.hyperparameters)) == (
        9,
        4,
        "yolov9-s",
        "auto",
        {"lr0": 0.1, "mosaic": 1},
    )
    assert (b.epochs, b.seed, dict(b.hyperparameters)) == (2, 0, {"lr0": 0.2, "mosaic": 1})
    assert [task.name for task in parse(JOB, {}, "x").trainings()] == ["job"]


FULL = {
    "name": "full",
    "data": "s3://bucket/data/",
    "model": "yolov9-e",
    "epochs": 300,
    "image_size": 1280,
    "batch": 32,
    "hyperparameters": {"lr0": 0.01, "mosaic": 1, "box": 7.5},
    "seed": 3,
    "tasks": [{"name": "one"}, {"name": "two", "batch": "auto", "seed": 0}],
    "output": "s3://bucket/out",
    "gpus": ["T4", "A100-80"],
    "regions": ["us-east-1"],
    "clouds": ["aws"],
    "market": "spot",
    "aws": {"profile": "p", "instance_profile": "role", "ssh_cidr": "203.0.113.7/32", "subnet": "subnet-1"},
    "gcp": {"project": "p"},
    "budget": "12.50",
    "deadline": "1h30m",
    "boot_limit": "15m",
    "disk": "0.5TB",
    "layout": {"gpus": 2, "concurrent": 2},
    "trainer": {"workers": 4, "patience": 20, "device": "cuda", "threads": 8},
    "images": 5000,
}


@pytest.mark.parametrize("raw", [JOB, FULL], ids=["short", "full"])
def test_a_job_comes_back_from_the_journal_as_it_was(raw):
    """A later process has nothing but the first record."""
    job = parse(raw, {}, "x")
    record = opened(job=job.model_dump(mode="json"))
    again = decode(encode(1, record), "line 1")
    assert parse(again.job, {}, "x") == job


def test_the_full_job_names_every_key():
    assert set(FULL) == set(JobSpec.model_fields)


@pytest.mark.parametrize("name", ["job.yaml", "quickstart.yaml"])
def test_the_shipped_templates_are_jobs(name):
    assert load(TEMPLATES / name, {}).name


def test_a_job_cannot_be_changed_afterwards():
    job = parse(JOB, {}, "x")
    with pytest.raises(ValueError, match="frozen"):
        job.epochs = 5
