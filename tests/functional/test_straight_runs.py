"""Runs that nothing disturbs, and runs whose trainer, data or machine is at fault."""

from __future__ import annotations

import hashlib
from decimal import Decimal

import pytest
from data_sets import make_set
from launcher_world import SPOT_EAST, Cut, Killed, World

from launcher.events import DataStaged, LaunchRequested, Outcome
from launcher.providers.interface import EndCause, RefusedError
from launcher.recovery import EXIT_CODES
from launcher.report import Beat
from launcher.run import State
from remote.protocol import Phase


def test_a_run_goes_from_plan_to_receipt_and_leaves_nothing(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    run = world.drive(run_id)
    assert run == world.check(run_id)
    assert world.events(run_id) == [
        "RunOpened",
        "Claimed",
        "LaunchRequested",
        "InstanceCreated",
        "CloudStopArmed",
        "InstanceReady",
        "DataStaged",
        *["CheckpointSynced"] * 5,
        "TrainingExited",
        "ArtifactsSynced",
        "LeaseClosed",
        "Settled",
    ]
    assert run.outcome is Outcome.DONE
    assert (run.attempt, run.preemptions, run.artifacts) == (1, 0, 3)
    assert run.selection.offer == SPOT_EAST
    results = tmp_path / "runs" / "job"
    assert sorted(path.name for path in results.iterdir()) == [".run_id", "best.pt", "results.csv", "train.log"]


def test_progress_and_money_are_told_at_every_look(tmp_path):
    world = World(tmp_path)
    world.drive(world.open())
    beats = [update for update in world.updates if isinstance(update, Beat)]
    spent = [beat.usd for beat in beats]
    assert spent == sorted(spent)
    assert spent[-1] > 0
    assert {Phase.STAGING, Phase.TRAINING, Phase.SYNCING, Phase.ENDED} <= {beat.status.phase for beat in beats}


def test_a_local_data_set_is_packed_and_stored_once_before_anything_is_paid_for(tmp_path):
    world = World(tmp_path)
    data = make_set(tmp_path / "data")
    run_id = world.open(data=str(data), images=None)

    def see_no_machine():
        assert world.provider.machines == []
        assert [key for key in world.store.objects if key.startswith("data/") and key != "data/pictures.tar"]

    run = world.drive(run_id, report=world.on(LaunchRequested, see_no_machine))
    assert run.outcome is Outcome.DONE
    assert run.data_files == 3
    content = world.store.objects[run.data_url.removeprefix(f"{world.store.url}/")]
    assert hashlib.sha256(content).hexdigest() == run.data_sha256
    world.drive(world.open(data=str(data), images=None, name="again"))
    assert [call for call, key in world.store.calls if call == "upload" and key.startswith("data/")] == ["upload"]


def test_several_trainings_share_one_machine_and_get_a_folder_each(tmp_path):
    world = World(tmp_path)
    run_id = world.open(tasks=[{"name": "small"}, {"name": "long", "epochs": 7}])
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert {c.task: c.epoch for c in run.checkpoints}["long"] == 7
    assert (tmp_path / "runs/job/small/best.pt").exists()
    assert (tmp_path / "runs/job/long/results.csv").exists()


def test_credentials_and_job_reach_the_machine_readable_by_its_user_alone(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.drive(run_id)
    machine = world.machine()
    assert machine.modes[f"{machine.folder}/credentials"] == 0o600
    assert machine.modes[f"{machine.folder}/job.json"] == 0o600
    job = machine.files[f"{machine.folder}/job.json"].decode()
    assert "aws_secret" not in job
    assert "[default]" not in job
    assert "[default]" not in world.home.run(run_id).journal.path.read_text()


def test_a_failed_trainer_ends_the_run_with_its_own_code_and_its_results(tmp_path):
    world = World(tmp_path)
    world.script.fails_at_epoch, world.script.exit_code = 3, 137
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.exit_code) == (Outcome.FAILED, 137)
    assert int(EXIT_CODES[run.outcome]) == 6
    assert "exit code 137" in run.message
    assert (tmp_path / "runs/job/train.log").exists()
    assert len(world.provider.machines) == 1, "another machine would fail too"


def test_data_that_is_not_there_ends_the_run_before_training(tmp_path):
    world = World(tmp_path)
    del world.store.objects["data/pictures.tar"]
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.FAILED
    assert "s3://bucket/runs/data/pictures.tar" in run.message


def test_an_image_that_cannot_train_ends_the_run_and_says_what_is_missing(tmp_path):
    world = World(tmp_path)
    world.provider.on_boot = lambda machine: setattr(machine, "python_works", False)
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.FAILED
    assert "No module named 'torch'" in run.message


def test_a_machine_that_answers_with_a_strange_host_key_gets_nothing_and_is_ended(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.provider.on_boot = lambda machine: setattr(machine, "answers_with", "ssh-ed25519 STRANGER")
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.REFUSED
    assert "host key" in run.message
    assert world.machine().files == {}


def test_an_agent_that_does_not_start_ends_the_run_with_its_own_words(tmp_path):
    """Nobody waits for the deadline beside a machine on which nothing happens (C02)."""
    world = World(tmp_path)
    world.script.starts = False
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.FAILED
    assert "the agent's log" in run.message
    assert world.clock.elapsed < 300


def test_an_agent_is_not_given_up_while_the_machine_cannot_be_asked(tmp_path):
    world = World(tmp_path)
    world.provider.on_boot = lambda machine: world.clock.after(11, lambda: setattr(machine, "reachable", False))
    world.clock.at(400, lambda: setattr(world.machine(), "reachable", True))
    run_id = world.open(epochs=10)
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)


def test_keys_for_the_machine_that_cannot_be_made_are_found_out_before_it_is_paid_for(tmp_path):
    world = World(tmp_path)

    def refused(_seconds):
        raise RefusedError("AWS does not allow this (AccessDenied)", hint="grant sts:GetFederationToken")

    world.credentials = refused
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.REFUSED, 0)
    assert world.provider.machines == []


def test_a_machine_that_was_stopped_from_outside_is_ended_since_its_disk_is_billed(tmp_path):
    """C26: stopped is not gone."""
    world = World(tmp_path)
    run_id = world.open()
    world.clock.at(150, lambda: world.machine().stop_from_outside())
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED


def test_a_machine_ended_from_outside_is_the_users_word(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.clock.at(150, lambda: world.machine().end(EndCause.USER, "Client.UserInitiatedShutdown"))
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert "ended from outside" in run.message
    assert len(world.provider.machines) == 1


def test_an_agent_that_does_not_answer_for_a_while_goes_on_training(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.clock.at(100, lambda: setattr(world.connector, "down", True))
    world.clock.at(280, lambda: setattr(world.connector, "down", False))
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)
    assert "the provider says running" in world.notes()


@pytest.mark.parametrize("start", [35, 100, 200, 345])
def test_nobody_reachable_for_minutes_changes_nothing(tmp_path, start):
    """Neither the machine nor the provider answers: nothing is known, so nothing is done (P04, C16)."""
    world = World(tmp_path)
    run_id = world.open()

    def everything(down):
        world.connector.down = world.provider.down = world.store.down = down

    world.clock.at(start, lambda: everything(True))
    world.clock.at(start + 150, lambda: everything(False))
    run = world.drive(run_id)
    world.check(run_id)
    assert (run.outcome, run.attempt) == (Outcome.DONE, 1)


def test_the_first_record_is_all_that_a_later_process_needs(tmp_path):
    world = World(tmp_path)
    run_id = world.open(hyperparameters={"lr0": 0.02, "mosaic": 1}, deadline="12h", seed=7)
    world.kill_at(40)
    with pytest.raises(Killed):
        world.drive(run_id)
    world.drive(run_id)
    world.check(run_id)
    machine = world.machine()
    config = machine.agent.job.tasks[0].config
    assert config == {
        "model": "yolov9-t",
        "epochs": 5,
        "image_size": 320,
        "batch": 16,
        "hazard_per_hour": SPOT_EAST.risk.per_hour,
        "hyp": {"lr0": 0.02, "mosaic": True},
        "seed": 7,
        "device": "auto",
    }


def test_two_runs_do_not_disturb_each_other(tmp_path):
    world = World(tmp_path)
    first, second = world.open(name="first"), world.open(name="second")
    world.kill_at(150)
    with pytest.raises(Killed):
        world.drive(first)
    world.provider.most_alive = 0
    assert world.drive(second).outcome is Outcome.DONE
    run = world.drive(first)
    assert run.outcome is Outcome.DONE
    assert run.spent_usd > Decimal(0)
    assert world.run(second).state is State.SETTLED
    assert [machine.request.run_id for machine in world.provider.machines] == [first, second]
    assert world.provider.alive() == []


def test_the_keys_of_a_machine_are_good_for_as_long_as_its_lease(tmp_path):
    world = World(tmp_path)
    asked = []
    world.credentials = lambda seconds: (asked.append(seconds), b"[default]\n")[1]
    run_id = world.open()
    lease = world.drive_until_killed(run_id, cut=Cut(8, before=False)).lease
    assert asked[0] == 0, "whether there are any is found out before anything is paid for"
    ready = next(e for e in world.home.run(run_id).journal.events() if type(e).__name__ == "InstanceReady")
    assert asked[1] >= (lease.deadline - ready.at).total_seconds() - 60


def test_the_key_of_a_run_goes_with_its_last_machine_and_is_made_anew_by_a_resume(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    key = world.home.run(run_id).private_key
    seen = []
    world.drive(run_id, report=world.on(DataStaged, lambda: (seen.append(key.exists()), world.signal())))
    assert (seen, key.exists()) == ([True], False)
    assert world.reopen(run_id, budget="5").outcome is Outcome.DONE
    assert not key.exists()
