"""Whole runs on the embedded cloud with the real trainer: what must hold when somebody pulls a plug.

Slow by nature: each trains a real, very small detector in a real process behind real SSH.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the drills train: pip install 'gpucost[train,sandbox]'")
pytest.importorskip("moto", reason="the drills need the embedded cloud: pip install 'gpucost[train,sandbox]'")

from cli_process import Launcher, User, processes_of
from sandbox_client import until

from remote.dataset.digits import make_digits

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

JOB = """
name: drill
data: pictures
model: yolov9-t
epochs: {epochs}
image_size: 64
batch: 8
market: spot
disk: 20GiB
budget: 1
trainer: {{device: cpu, threads: 1, workers: 0}}
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_digits(tmp_path_factory.mktemp("digits") / "pictures", train=24, val=8, size=128)


@pytest.fixture
def user(tmp_path: Path, pictures: Path) -> Iterator[User]:
    (tmp_path / "pictures").symlink_to(pictures)
    somebody = User(tmp_path, GPUCOST_SANDBOX_IMAGES_PER_SECOND="2")
    yield somebody
    somebody.leave()
    assert processes_of(somebody.home) == []


def job(user: User, *, epochs: int) -> str:
    path = user.folder / "job.yaml"
    path.write_text(JOB.format(epochs=epochs))
    return str(path)


def train(user: User, epochs: int, *more: str, **environment: str) -> Launcher:
    return user.start("train", job(user, epochs=epochs), "--cloud", "sandbox", "--yes", *more, **environment)


def moment(event: dict) -> float:
    return datetime.fromisoformat(event["event"]["at"]).astimezone(UTC).timestamp()


def epochs_in(folder: Path) -> list[int]:
    rows = list(csv.reader((folder / "results.csv").read_text().splitlines()))
    return [int(row[0]) for row in rows[1:]]


def report(user: User) -> list[dict[str, str]]:
    """Every row: machines, and the objects of each run."""
    assert user.run("report", "--csv", "costs.csv").end() == 0
    return list(csv.DictReader((user.folder / "costs.csv").read_text().splitlines()))


def ledger(user: User) -> list[dict[str, str]]:
    """The rows of machines."""
    return [row for row in report(user) if row["instance_type"]]


def test_a_run_trains_syncs_stops_and_accounts_and_leaves_nothing_running(user: User) -> None:
    run = train(user, 2)
    assert run.end() == 0, run.text
    assert (user.folder / "runs/drill/best.pt").stat().st_size > 100_000
    assert epochs_in(user.folder / "runs/drill") == [0, 1]
    (row,) = ledger(user)
    assert row["instance_type"] == "g4dn.xlarge"
    assert row["market"] == "spot"
    assert int(row["billed_seconds"]) >= 60
    assert 0 < float(row["usd"]) < 0.05
    assert "confirmed gone by the provider" in run.text
    assert "not running" in user.run("sandbox", "status").text
    assert processes_of(user.home) == []


def test_an_interrupt_while_training_is_handed_over_saved_confirmed_and_can_be_resumed(user: User) -> None:
    run = train(user, 30)
    run.wait_for("checkpoint of drill is safe")
    sent = run.signal(signal.SIGINT)
    assert run.end() == 130, run.text
    cancelled = next(event for event in user.events() if event["type"] == "Cancelled")
    assert moment(cancelled) - sent < 2
    names = user.names()
    assert names.index("Cancelled") < names.index("LeaseClosed") < names.index("Settled")
    assert (user.folder / "runs/drill/last.pt").exists()
    assert f"gpucost resume {user.events()[0]['event']['run_id']}" in run.text
    assert "not running" in user.run("sandbox", "status").text
    resumed = user.run("resume")
    assert resumed.process.returncode == 0, resumed.text
    assert epochs_in(user.folder / "runs/drill") == list(range(30))
    assert len(ledger(user)) == 2
    assert "not running" in user.run("sandbox", "status").text


def test_a_killed_launcher_costs_nothing_but_time(user: User) -> None:
    run = train(user, 30)
    run.wait_for("checkpoint of drill is safe")
    run.process.kill()
    run.end()
    before = user.events()
    status = user.run("status")
    assert "nobody; go on with `gpucost resume" in status.text
    resumed = user.run("resume")
    assert resumed.process.returncode == 0, resumed.text
    assert epochs_in(user.folder / "runs/drill") == list(range(30))
    created = [event for event in user.events() if event["type"] == "InstanceCreated"]
    assert len(created) == 1
    assert user.events()[: len(before)] == before


def test_a_detached_run_whose_launcher_and_state_are_lost_is_finished_from_its_prefix(user: User) -> None:
    detached = train(user, 40, "--detach")
    assert detached.end() == 0, detached.text
    run_id = user.events()[0]["event"]["run_id"]
    until("a checkpoint", lambda: "CheckpointSynced" in user.names(), patience=120)
    supervisor = int((user.home / "runs" / run_id / "journal.lock").read_text())
    os.kill(supervisor, signal.SIGKILL)
    shutil.rmtree(user.home / "runs")
    url = f"s3://gpucost-sandbox/runs/{run_id}"
    status = user.run("status", url)
    assert "training" in status.text
    assert "driven   by nobody" in status.text
    waited = user.run("wait", url)
    assert waited.process.returncode == 0, waited.text
    assert "the key to it is on the machine that launched it" in waited.text
    assert epochs_in(user.folder / "runs/drill") == list(range(40))
    assert len(report(user)) == 2, "one machine, and the objects"
    assert "not running" in user.run("sandbox", "status").text


def test_a_run_is_stopped_from_its_prefix_alone_with_a_checkpoint(user: User) -> None:
    run = train(user, 60)
    run.wait_for("checkpoint of drill is safe")
    run.process.kill()
    run.end()
    run_id = user.events()[0]["event"]["run_id"]
    shutil.rmtree(user.home / "runs")
    stopped = user.run("stop", f"s3://gpucost-sandbox/runs/{run_id}")
    assert stopped.process.returncode == 0, stopped.text
    assert "is asked through the storage" in stopped.text
    assert "confirmed gone" in stopped.text
    resumed = user.run("resume", run_id)
    assert resumed.process.returncode == 0, resumed.text
    assert epochs_in(user.folder / "runs/drill") == list(range(60))


def test_the_agent_finishes_alone_and_the_same_command_collects_it(user: User) -> None:
    run = train(user, 4)
    run.wait_for("data staged")
    run.process.kill()
    run.end()
    give_up = time.monotonic() + 150
    while " running " in user.run("sandbox", "status").text and time.monotonic() < give_up:
        time.sleep(2)  # the agent lingers for a launcher, then powers its machine off
    again = train(user, 4)
    assert again.end() == 0, again.text
    assert "going on with the unfinished run" in again.text
    assert epochs_in(user.folder / "runs/drill") == list(range(4))
    assert len(ledger(user)) == 1


def test_a_sandbox_in_use_is_not_taken_down_by_mistake_and_lost_checkpoints_are_said(user: User) -> None:
    run = train(user, 30)
    run.wait_for("checkpoint of drill is safe")
    refused = user.run("sandbox", "down")
    assert refused.process.returncode == 2
    assert "needs the embedded cloud" in refused.text
    run.signal(signal.SIGINT)
    assert run.end() == 130, run.text
    refused = user.run("sandbox", "down")
    assert refused.process.returncode == 2
    assert "the checkpoints of 1 stopped run are nowhere else" in refused.text
    assert "can no longer be resumed" in user.run("sandbox", "down", "--force").text
    resumed = user.run("resume")
    assert resumed.process.returncode == 0, resumed.text
    assert "training begins again" in resumed.text
    assert epochs_in(user.folder / "runs/drill") == list(range(30))


def test_a_preempted_run_goes_on_elsewhere_from_its_checkpoint(user: User) -> None:
    run = train(user, 40)
    run.wait_for("checkpoint of drill is safe")
    assert "notice given" in user.run("sandbox", "interrupt", "--notice", "10").text
    run.wait_for("going on with")
    assert run.end() == 0, run.text
    assert epochs_in(user.folder / "runs/drill") == list(range(40))
    rows = ledger(user)
    assert len(rows) == 2
    assert sum(float(row["usd"]) for row in rows) < 1
    assert rows[0]["zone"] != rows[1]["zone"]


def test_a_budget_that_runs_out_ends_with_a_checkpoint_and_the_command_to_go_on(user: User) -> None:
    run = train(user, 2000, "--budget", "0.024", GPUCOST_SANDBOX_IMAGES_PER_SECOND="4000")
    assert run.end() == 4, run.text
    assert "gpucost resume" in run.text
    assert (user.folder / "runs/drill/last.pt").exists()
    machine, objects = report(user)
    assert (machine["basis"], objects["lease_id"]) == ("offer price x billed time", f"{machine['run_id']}/storage")
    assert 0.004 < float(machine["usd"]) + float(objects["usd"]) <= 0.024


def test_two_runs_at_once_do_not_disturb_each_other(user: User) -> None:
    path = job(user, epochs=2)
    both = [user.start("train", path, "--cloud", "sandbox", "--yes", "--name", name) for name in ("one", "two")]
    assert [run.end() for run in both] == [0, 0], "\n\n".join(run.text for run in both)
    assert {row["name"] for row in ledger(user)} == {"one", "two"}
    assert (user.folder / "runs/one/best.pt").exists()
    assert (user.folder / "runs/two/best.pt").exists()
    assert "not running" in user.run("sandbox", "status").text
