"""What a user sees of a command that cannot be carried out: one clear message, the next action, an exit code."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from cli_messages import one_message
from data_sets import BOX, YAML, make_set, write_picture
from run_cases import RUN_ID, SAMPLES, STRAIGHT

from launcher import app, following
from launcher.home import Home
from launcher.run import Preempted


def job(folder, data="./pictures", **more):
    """A job file for `data`."""
    lines = ["name: job", f"data: {data}", "epochs: 3", *(f"{key}: {value}" for key, value in more.items())]
    (folder / "job.yaml").write_text("\n".join(lines) + "\n")
    return "job.yaml"


def no_data(folder):
    return "./pictures"


def empty_folder(folder):
    (folder / "pictures").mkdir()
    return "./pictures"


def no_pictures(folder):
    (folder / "pictures" / "images" / "train").mkdir(parents=True)
    (folder / "pictures" / "images" / "val").mkdir(parents=True)
    (folder / "pictures" / "data.yaml").write_text(YAML)
    return "./pictures"


def no_labels(folder):
    make_set(folder / "pictures", {"a": None, "b": None}, {"v": None})
    return "./pictures"


def class_out_of_range(folder):
    make_set(folder / "pictures", {"a": BOX + BOX.replace("0 ", "7 ", 1)}, {"v": BOX})
    return "./pictures"


def unreadable_archive(folder):
    (folder / "pictures.zip").write_bytes(b"PK\x03\x04 and then nothing of the kind")
    return "./pictures.zip"


def torn_archive(folder):
    make_set(folder / "set")
    with tarfile.open(folder / "whole.tar.gz", "w:gz") as tar:
        tar.add(folder / "set", "set")
    whole = (folder / "whole.tar.gz").read_bytes()
    (folder / "torn.tar.gz").write_bytes(whole[: len(whole) // 2])
    return "./torn.tar.gz"


def climbing_tar(folder):
    with tarfile.open(folder / "up.tar", "w") as tar:
        info = tarfile.TarInfo("../../escaped.txt")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"oops"))
    return "./up.tar"


def climbing_zip(folder):
    with zipfile.ZipFile(folder / "up.zip", "w") as archive:
        archive.writestr("../../escaped.txt", "oops")
    return "./up.zip"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (no_data, "there is no data at pictures"),
        (empty_folder, "pictures"),
        (no_pictures, "pictures"),
        (no_labels, "label"),
        (class_out_of_range, "a.txt"),
        (unreadable_archive, "pictures.zip"),
        (torn_archive, "torn.tar.gz"),
        (climbing_tar, "escaped.txt"),
        (climbing_zip, "escaped.txt"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("command", ["estimate", "train"])
def test_data_that_cannot_be_used_is_one_message_before_anything_is_paid_for(gpucost, tmp_path, command, make, said):
    argv = [command, job(tmp_path, make(tmp_path), output="s3://bucket/x", budget=5)]
    code, out, err = gpucost(*argv, *(["--yes"] if command == "train" else []))
    assert code == 2
    assert out == ""
    message, hint = one_message(err)
    assert said in message
    assert hint
    assert not list(tmp_path.parent.glob("**/escaped.txt"))


def test_a_class_that_is_out_of_range_is_named_with_file_line_and_what_there_is(gpucost, tmp_path):
    _, _, err = gpucost("estimate", job(tmp_path, class_out_of_range(tmp_path)))
    message, _ = one_message(err)
    assert "a.txt" in message
    assert "2" in message
    assert "7" in message


def test_a_key_that_does_not_exist_is_named_with_the_nearest_one(gpucost, tmp_path):
    make_set(tmp_path / "pictures")
    code, _, err = gpucost("train", job(tmp_path, epoch=5), "--yes")
    assert code == 2
    assert one_message(err) == ("job.yaml: unknown key 'epoch'", "did you mean 'epochs'?")


def test_a_job_file_that_is_no_yaml_is_named_with_its_line(gpucost, tmp_path):
    (tmp_path / "job.yaml").write_text("name: [job\ndata: x\n")
    code, _, err = gpucost("train", "job.yaml")
    assert code == 2
    assert "job.yaml line" in one_message(err)[0]


def test_a_job_file_that_is_not_there_is_written_by_init(gpucost):
    code, _, err = gpucost("train", "job.yaml")
    assert (code, one_message(err)) == (2, ("there is no job file job.yaml", "write one with `gpucost init job.yaml`"))


def test_where_nobody_can_be_asked_nothing_is_spent_without_yes(gpucost, tmp_path):
    make_set(tmp_path / "pictures")
    code, out, err = gpucost("train", job(tmp_path, output="s3://bucket/x", budget=5))
    message, hint = one_message(err)
    assert (code, out) == (2, "")
    assert "nobody can be asked" in message
    assert "--yes" in hint


def test_without_credentials_nothing_is_started(gpucost, tmp_path):
    make_set(tmp_path / "pictures")
    code, _, err = gpucost("train", job(tmp_path, output="s3://bucket/x", budget=5), "--yes")
    message, hint = one_message(err)
    assert code == 5
    assert "no usable AWS credentials" in message
    assert "aws configure" in hint


def test_a_storage_that_cannot_be_reached_is_named(gpucost, tmp_path, monkeypatch):
    make_set(tmp_path / "pictures")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    code, _, err = gpucost("train", job(tmp_path, output="s3://bucket/x", budget=5), "--yes")
    message, hint = one_message(err)
    assert code in {2, 5}
    assert "127.0.0.1:9" in message
    assert "network" in hint


def test_a_real_cloud_needs_an_output_that_outlives_the_machine(gpucost, tmp_path):
    make_set(tmp_path / "pictures")
    code, _, err = gpucost("train", job(tmp_path, budget=5), "--yes")
    message, hint = one_message(err)
    assert code == 2
    assert "`output` is missing" in message
    assert "s3://" in hint


@pytest.mark.parametrize("budget", ["0.001", "$0.001"])
def test_a_budget_that_buys_nothing_says_what_the_cheapest_run_costs_and_what_it_would_buy(gpucost, tmp_path, budget):
    make_set(tmp_path / "pictures")
    code, _, err = gpucost("estimate", job(tmp_path), "--budget", budget)
    message, hint = one_message(err)
    assert code == 3
    assert "the cheapest run costs" in message
    assert "buys" in message
    assert "epoch" in message
    assert hint


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("status", "nothing"), "there is no run here yet"),
        (("stop",), "there is no run here yet"),
        (("resume",), "there is no run here yet"),
        (("logs",), "there is no run here yet"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_without_a_run_the_next_action_is_to_start_one(gpucost, argv, said):
    code, _, err = gpucost(*argv)
    message, hint = one_message(err)
    assert (code, message) == (2, said)
    assert "gpucost train" in hint


@pytest.mark.parametrize(
    "argv",
    [("train",), ("nothing",), ("train", "--no-such"), ("report", "--format", "xml"), ("train", "j", "--market", "x")],
    ids=" ".join,
)
def test_wrong_usage_is_explained_by_the_command_itself(gpucost, argv):
    code, _, err = gpucost(*argv)
    assert code == 2
    assert "Usage:" in err


@pytest.mark.parametrize("flags", [("--budget", "lots"), ("--deadline", "soon"), ("--epochs", "0"), ("--batch", "0")])
def test_a_flag_is_checked_like_the_key_it_overrides(gpucost, tmp_path, flags):
    make_set(tmp_path / "pictures")
    code, _, err = gpucost("estimate", job(tmp_path), *flags)
    assert code == 2
    assert flags[0].strip("-") in one_message(err)[0]


def test_a_journal_that_is_damaged_is_named_with_its_line(gpucost, tmp_path):
    journal = Home(tmp_path / "home").run(RUN_ID).journal
    for event in STRAIGHT:
        journal.append(event)
    journal.path.write_text(journal.path.read_text().replace("InstanceReady", "InstanceRaedy"))
    code, _, err = gpucost("status")
    assert code == 2
    assert "journal.jsonl line 4" in one_message(err)[0]


def test_what_is_known_of_a_run_is_told_from_its_journal_alone(gpucost, tmp_path):
    journal = Home(tmp_path / "home").run(RUN_ID).journal
    for event in (*STRAIGHT[:5], SAMPLES[Preempted]):
        journal.append(event)
    code, out, _ = gpucost("status", "job")
    assert code == 0
    assert f"gpucost resume {RUN_ID}" in out
    code, out, _ = gpucost("status", "--json")
    told = json.loads(out)
    assert (told["schema"], told["kind"], told["state"], told["preemptions"]) == (1, "status", "stopping", 1)
    code, out, _ = gpucost("ls", "--json")
    assert [run["run_id"] for run in json.loads(out)["runs"]] == [RUN_ID]


def test_a_stop_that_is_interrupted_says_what_is_not_gone_and_how_to_go_on(gpucost, tmp_path, monkeypatch):
    journal = Home(tmp_path / "home").run(RUN_ID).journal
    for event in STRAIGHT[:5]:
        journal.append(event)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "stop", interrupted)
    code, _, err = gpucost("stop")
    assert code == 130
    assert "its machine i-1 is not confirmed gone, nobody ends it now" in err
    assert f"`gpucost stop {RUN_ID}` goes on with it" in err


@pytest.mark.parametrize("command", ["wait", "attach"])
def test_who_stops_watching_is_told_that_the_run_goes_on_and_who_drives_it(gpucost, tmp_path, monkeypatch, command):
    journal = Home(tmp_path / "home").run(RUN_ID).journal
    for event in STRAIGHT[:5]:
        journal.append(event)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(following, command, interrupted)
    with journal.writing():
        code, _, err = gpucost(command)
    assert code == 130
    assert f"{RUN_ID} goes on (process {os.getpid()} drives it): `gpucost stop {RUN_ID}` ends it" in err
    assert "(no launcher of this machine drives it)" in gpucost(command)[2]


def test_a_report_goes_to_a_file_whole(gpucost, tmp_path):
    journal = Home(tmp_path / "home").run(RUN_ID).journal
    for event in STRAIGHT:
        journal.append(event)
    code, _, err = gpucost("report", "--csv", "costs.csv")
    assert (code, err) == (0, "wrote 1 row to costs.csv\n")
    assert len((tmp_path / "costs.csv").read_text().splitlines()) == 2
    code, out, _ = gpucost("report", "--json")
    assert len(json.loads(out)["leases"]) == 1
    code, _, err = gpucost("report", "--csv", "no/such/folder/costs.csv")
    assert code == 2
    assert "no/such/folder/costs.csv" in one_message(err)[0]


def test_init_writes_a_job_that_can_be_read_and_never_overwrites_one(gpucost, tmp_path):
    assert gpucost("init")[0] == 0
    written = (tmp_path / "job.yaml").read_text()
    code, _, err = gpucost("init")
    assert (code, (tmp_path / "job.yaml").read_text()) == (2, written)
    assert "--force" in one_message(err)[1]
    assert gpucost("init", "--force")[0] == 0


def test_an_estimate_is_one_json_document_with_a_reason_for_each_rejection(gpucost, tmp_path):
    make_set(tmp_path / "pictures")
    code, out, _ = gpucost("estimate", job(tmp_path), "--budget", "5", "--gpu", "T4", "--json")
    told = json.loads(out)
    assert (code, told["kind"]) == (0, "estimate")
    assert told["chosen"]["gpu"] == "T4"
    assert all(one["reason"] for one in told["rejected"])


def test_a_gpu_name_is_never_guessed(gpucost, tmp_path):
    """U01: A100 is two products with two prices."""
    make_set(tmp_path / "pictures")
    code, _, err = gpucost("estimate", job(tmp_path), "--gpu", "A100-8")
    assert code == 3
    assert "A100-8" in one_message(err)[0]
    assert "A100-80" in one_message(err)[1]


def test_one_picture_less_than_announced_is_not_lost_without_a_word(gpucost, tmp_path):
    make_set(tmp_path / "pictures")
    write_picture(tmp_path / "pictures/images/train/unlabelled.png")
    code, _, err = gpucost("estimate", job(tmp_path))
    assert code == 0
    assert "unlabelled" in err or "background" in err or "without" in err


@pytest.mark.parametrize("argv", [("status", "--json"), ("ls", "--json"), ("status",)])
def test_a_full_standard_output_is_one_error_and_no_traceback(tmp_path, argv):
    journal = Home(tmp_path / "home").run(RUN_ID).journal
    for event in STRAIGHT[:5]:
        journal.append(event)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "launcher", *argv],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "GPUCOST_HOME": str(tmp_path / "home")},
            check=False,
        )
    assert done.returncode == 2
    assert one_message(done.stderr)[0].startswith("OSError: [Errno 28]")


@pytest.mark.parametrize(
    ("change", "said"),
    [("data: ''", "data"), ("aws: {ssh_cidr: x}", "'x' is no range of IPv4 addresses, such as 203.0.113.7/32")],
)
def test_a_value_that_could_only_fail_later_is_named_at_once(gpucost, tmp_path, change, said):
    make_set(tmp_path / "pictures")
    path = Path(job(tmp_path))
    lines = [line for line in path.read_text().splitlines() if not line.startswith(change.split(":")[0])]
    path.write_text("\n".join([*lines, change, ""]))
    code, _, err = gpucost("estimate", str(path))
    assert code == 2
    assert said in one_message(err)[0]


def test_a_tiny_budget_is_named_as_it_was_given(gpucost, tmp_path):
    make_set(tmp_path / "pictures")
    code, _, err = gpucost("estimate", job(tmp_path), "--budget", "0.00001")
    assert code == 3
    assert "the budget of 0.00001 USD" in one_message(err)[0]


def test_gc_lists_or_removes_and_not_both(gpucost):
    code, _, err = gpucost("gc", "--dry-run", "--yes")
    assert code == 2
    assert "--yes removes and --dry-run does not" in err
