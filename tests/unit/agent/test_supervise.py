"""The life of a lease on fakes: order, stops, the end of the machine."""

from __future__ import annotations

import pytest

from remote import protocol
from remote.agent.processes import Answer
from remote.protocol import DataSpec, Phase, Reason, TaskSpec, TaskState


def test_a_run_goes_through_its_phases_in_order(lease) -> None:
    one = lease()
    status = one.run()
    names = ["transfer/post", "transfer/stage", "task/a", "transfer/sync", "transfer/outcome"]
    assert one.programs.names() == names
    assert (status.phase, status.reason, status.message) == (Phase.ENDED, Reason.COMPLETED, "")
    assert status.tasks[0].state is TaskState.DONE
    assert status.phase_seconds["training"] == pytest.approx(20, abs=2)
    assert status.checkpoint.step == 10


def test_the_outcome_that_is_stored_says_that_it_ended_and_why(lease) -> None:
    one = lease()
    status = one.run()
    stored = one.stored_outcome()
    assert (stored.phase, stored.reason) == (Phase.ENDED, Reason.COMPLETED)
    assert stored.tasks == status.tasks


def test_the_trainer_gets_its_configuration_with_the_paths_added(lease, config_of) -> None:
    one = lease()
    one.run()
    paths = {"data": str(one.paths.data), "output": str(one.paths.task("a").root), "resume": True}
    assert config_of("a") == {"epochs": 9, **paths}
    assert one.programs.argvs[2] == ["py", "-m", "remote.yolov9.train", str(one.paths.task("a").config)]


def test_several_ranks_are_started_by_torchrun_with_time_to_save(lease) -> None:
    one = lease(tasks=[TaskSpec("a", {}, world_size=4)])
    one.run()
    assert one.programs.argvs[2][:6] == ["py", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    assert one.programs.environments[2]["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "90"


def test_a_command_stops_training_within_two_beats(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(None)]
    one.ask_to_stop(10)
    one.clock.at(12.5, lambda: one.statuses.append(one.status()))
    status = one.run()
    assert one.programs.last("task/a").signals == ["TERM"]
    assert one.statuses[0].phase in (Phase.TRAINING, Phase.SYNCING)
    assert (status.reason, status.tasks[0].state, status.tasks[0].exit_code) == (
        Reason.CANCELLED,
        TaskState.INTERRUPTED,
        75,
    )
    assert one.clock.time - one.clock.start < 25


def test_a_trainer_that_does_not_listen_is_killed_and_its_upload_still_happens(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(None, save_seconds=None)]
    one.ask_to_stop(10)
    status = one.run()
    assert one.programs.last("task/a").signals == ["TERM", "KILL"]
    assert status.tasks[0].state is TaskState.INTERRUPTED
    assert "killed" in status.tasks[0].message
    assert "transfer/outcome" in one.programs.names()
    assert status.reason is Reason.CANCELLED


def test_a_notice_saves_in_half_of_the_time_that_is_left(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(None, save_seconds=None)]
    one.announce(10, left=60)
    status = one.run()
    assert status.reason is Reason.PREEMPTED
    assert status.notice == one.notices.notice
    assert status.phase_seconds["training"] == pytest.approx(6 + 30, abs=4)
    assert one.clock.time < one.clock.start + 10 + 60


def test_at_a_rebalance_recommendation_every_training_is_asked_to_save_and_goes_on(lease) -> None:
    one = lease()
    one.notices.likely = "2026-12-01T02:20:00Z"
    status = one.run()
    assert all(one.paths.task(task.name).save_request.exists() for task in one.job.tasks)
    assert (status.reason, status.rebalance) == (Reason.COMPLETED, "2026-12-01T02:20:00Z")


def test_a_notice_after_a_command_shortens_the_stop_and_keeps_its_reason(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(None, save_seconds=None)]
    one.ask_to_stop(10)
    one.announce(15, left=20)
    status = one.run()
    assert status.reason is Reason.CANCELLED
    assert one.clock.time < one.clock.start + 45


def test_sigterm_stops_training_like_a_command(lease) -> None:
    one = lease(linger_seconds=900)
    one.programs.plans["task/a"] = [one.training(None)]
    supervisor = one.supervisor()
    one.clock.at(10, supervisor.terminate)
    one.programs.answers["poweroff"] = Answer(0, "")
    supervisor.run()  # returns: the machine is going down anyhow
    assert one.status().reason is Reason.PREEMPTED
    assert one.programs.commands[-1] == ["poweroff"]
    assert one.clock.time - one.clock.start < 60


def test_a_staging_that_fails_ends_with_its_own_message(lease) -> None:
    one = lease()
    one.programs.plans["transfer/stage"] = [one.staging(code=1, ok=False, message="s3://b/d.tar: NoSuchKey: gone")]
    status = one.run()
    assert (status.reason, status.message) == (Reason.STAGING_FAILED, "s3://b/d.tar: NoSuchKey: gone")
    assert "task/a" not in one.programs.names()
    assert one.stored_outcome().reason is Reason.STAGING_FAILED


def test_a_staging_that_leaves_no_outcome_is_told_by_its_log(lease) -> None:
    one = lease()

    def crash(child) -> None:
        child.ends_in(2, -11)
        one.paths.transfer.mkdir(parents=True, exist_ok=True)
        one.paths.transfer_log("stage").write_text("a line\nImportError: no boto3\n\n")

    one.programs.plans["transfer/stage"] = [crash]
    assert one.run().message == "transfer stage: killed by signal 11: ImportError: no boto3"


def killed(child) -> None:
    child.ends_in(2, -9)


def test_a_staging_that_is_killed_is_started_again_and_the_run_goes_on(lease) -> None:
    one = lease()
    one.programs.plans["transfer/stage"] = [killed, killed, one.staging()]
    assert one.run().reason is Reason.COMPLETED
    assert one.programs.names().count("transfer/stage") == 3


def test_a_staging_that_is_killed_again_and_again_fails(lease) -> None:
    one = lease()
    one.programs.plans["transfer/stage"] = [killed]
    status = one.run()
    assert status.reason is Reason.STAGING_FAILED
    assert "killed by signal 9" in status.message
    assert one.programs.names().count("transfer/stage") == 3


def test_a_transfer_program_that_cannot_start_is_said_so(lease) -> None:
    one = lease()
    one.programs.plans["transfer/stage"] = []
    status = one.run()
    assert status.reason is Reason.STAGING_FAILED
    assert "exit code 127" in status.message


def test_a_staging_that_hangs_is_ended(lease) -> None:
    one = lease()
    one.programs.plans["transfer/stage"] = [one.staging(seconds=10_000)]
    assert one.run().reason is Reason.STAGING_FAILED
    assert one.clock.time - one.clock.start < 1000
    assert one.programs.names().count("transfer/stage") == 1


def test_too_few_pictures_never_start_a_training(lease) -> None:
    one = lease(data=DataSpec("s3://b/d.tar", files=4))
    status = one.run()
    assert (status.reason, status.message) == (
        Reason.STAGING_FAILED,
        "the staged data set has 3 pictures, 4 are expected",
    )


def test_a_stop_during_staging_ends_without_training(lease) -> None:
    one = lease()
    one.programs.plans["transfer/stage"] = [one.staging(seconds=500)]
    one.ask_to_stop(10)
    status = one.run()
    assert (status.reason, status.tasks[0].state) == (Reason.CANCELLED, TaskState.WAITING)
    assert one.programs.last("transfer/stage").signals == ["KILL"]


def test_a_missing_gpu_is_seen_before_anything_is_copied(lease, answer) -> None:
    one = lease(gpus=4)
    one.programs.answers["nvidia-smi"] = answer(0, "GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-1)\n")
    status = one.run()
    assert (status.reason, status.message) == (
        Reason.STAGING_FAILED,
        "nvidia-smi -L lists 1 GPUs, 4 are paid for",
    )
    assert one.programs.names() == ["transfer/post", "transfer/outcome"]


def test_tasks_share_the_machine_up_to_the_limit_and_get_a_gpu_each(lease, answer) -> None:
    one = lease(tasks=[TaskSpec(name, {}) for name in "abc"], concurrent=2, gpus=2)
    one.programs.answers["nvidia-smi"] = answer(0, "GPU 0: a\nGPU 1: b\n")
    one.programs.plans |= {f"task/{name}": [one.training(20 if name != "a" else 50, task=name)] for name in "abc"}
    running: list[int] = []
    for second in range(5, 60):
        one.clock.at(
            second,
            lambda: running.append(sum(task.state is TaskState.RUNNING for task in one.status().tasks)),
        )
    assert one.run().reason is Reason.COMPLETED
    assert max(running) == 2
    pinned = [found.get("CUDA_VISIBLE_DEVICES") for found in one.programs.environments]
    assert [gpu for gpu in pinned if gpu is not None] == ["0", "1", "1"]


def test_a_failed_task_does_not_stop_the_others(lease) -> None:
    one = lease(tasks=[TaskSpec("a", {}), TaskSpec("b", {})])
    one.programs.plans |= {
        "task/a": [one.training(5, code=2)],
        "task/b": [one.training(20, task="b")],
    }
    status = one.run()
    assert [task.state for task in status.tasks] == [TaskState.FAILED, TaskState.DONE]
    assert (status.reason, status.message) == (
        Reason.TRAINER_FAILED,
        "a: the configuration or the data set is unusable",
    )


def test_a_status_that_cannot_be_written_stops_nothing(lease, monkeypatch: pytest.MonkeyPatch) -> None:
    one = lease()
    real = protocol.write_text

    def full(path, text) -> None:
        if path in (one.paths.status, one.paths.outcome) and one.clock.time > one.clock.start + 5:
            raise OSError(28, "No space left on device")
        real(path, text)

    monkeypatch.setattr(protocol, "write_text", full)
    one.run()
    assert one.programs.last("task/a").poll() == 0
    assert one.programs.commands == [["poweroff"]]
