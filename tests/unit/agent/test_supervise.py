"""The life of a lease on fakes: order, stops, the end of the machine."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from agent_ports import MachineGone

from remote import protocol
from remote.agent.processes import Answer
from remote.protocol import Budget, DataSpec, Phase, PricePoint, Reason, StopCommand, TaskSpec, TaskState


def command(lease, seconds: float, reason: Reason = Reason.CANCELLED) -> None:
    """The launcher asks for a stop `seconds` from the start."""
    lease.clock.at(seconds, lambda: protocol.write(lease.paths.command, StopCommand(reason, lease.clock.time)))


def notice(lease, seconds: float, left: float) -> None:
    """The provider announces at `seconds` that the machine goes `left` seconds later."""

    def announce() -> None:
        gone = datetime.fromtimestamp(lease.clock.time + left, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lease.notices.notice = {"action": "terminate", "time": gone}

    lease.clock.at(seconds, announce)


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
    command(one, 10)
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

    def deaf(child) -> None:
        one.training(None)(child)
        child.save_seconds = None

    one.programs.plans["task/a"] = [deaf]
    command(one, 10)
    status = one.run()
    assert one.programs.last("task/a").signals == ["TERM", "KILL"]
    assert status.tasks[0].state is TaskState.INTERRUPTED
    assert "killed" in status.tasks[0].message
    assert "transfer/outcome" in one.programs.names()
    assert status.reason is Reason.CANCELLED


def test_a_notice_saves_in_half_of_the_time_that_is_left(lease) -> None:
    one = lease()

    def deaf(child) -> None:
        one.training(None)(child)
        child.save_seconds = None

    one.programs.plans["task/a"] = [deaf]
    notice(one, 10, left=60)
    status = one.run()
    assert status.reason is Reason.PREEMPTED
    assert status.notice == one.notices.notice
    assert status.phase_seconds["training"] == pytest.approx(6 + 30, abs=4)
    assert one.clock.time < one.clock.start + 10 + 60


def test_a_rebalance_recommendation_is_recorded_and_stops_nothing(lease) -> None:
    one = lease()
    one.notices.likely = "2026-12-01T02:20:00Z"
    status = one.run()
    assert (status.reason, status.rebalance) == (Reason.COMPLETED, "2026-12-01T02:20:00Z")


def test_a_notice_after_a_command_shortens_the_stop_and_keeps_its_reason(lease) -> None:
    one = lease()

    def deaf(child) -> None:
        one.training(None)(child)
        child.save_seconds = None

    one.programs.plans["task/a"] = [deaf]
    command(one, 10)
    notice(one, 15, left=20)
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
    assert one.status().reason is Reason.CANCELLED
    assert one.programs.commands[-1] == ["poweroff"]
    assert one.clock.time - one.clock.start < 60


def test_training_stops_before_the_deadline_so_that_the_upload_is_inside_it(lease) -> None:
    one = lease(deadline=1_000_000 + 300, linger_seconds=900)
    one.programs.plans["task/a"] = [one.training(None)]
    one.watch(250)
    status = one.run()
    assert status.reason is Reason.DEADLINE
    assert status.phase_seconds["training"] == pytest.approx(300 - 90 - 4, abs=4)
    assert one.clock.time == pytest.approx(one.job.deadline, abs=2), "a launcher that watches has until the deadline"


def test_at_the_deadline_everything_is_cut_short(lease) -> None:
    one = lease(deadline=1_000_000 + 60, save_reserve_seconds=10)
    one.programs.plans["transfer/stage"] = [one.staging(seconds=10_000)]
    status = one.run()
    assert (status.phase, status.reason) == (Phase.ENDED, Reason.DEADLINE)
    assert one.clock.time < one.job.deadline + 3


def test_a_silent_launcher_never_stops_a_healthy_run(lease) -> None:
    one = lease(linger_seconds=60, beat_seconds=10)
    one.programs.plans["task/a"] = [one.training(2000)]
    assert one.run().reason is Reason.COMPLETED


@pytest.mark.parametrize(("seen", "lingers"), [(20, True), (1, False)])
def test_the_machine_waits_for_a_launcher_that_showed_itself_lately(lease, seen: float, lingers: bool) -> None:
    one = lease(linger_seconds=60)
    one.programs.plans["task/a"] = [one.training(80)]
    one.watch(seen if not lingers else 80)
    one.run()
    waited = one.clock.time - one.clock.start - 90
    assert (waited > 30) is lingers


def test_a_power_off_that_fails_is_tried_until_it_works(lease) -> None:
    one = lease()
    one.programs.answers["poweroff"] = OSError(1, "not permitted")
    one.clock.at(200, lambda: one.programs.answers.update(poweroff=MachineGone()))
    one.run()
    assert one.programs.commands.count(["poweroff"]) > 20


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
        one.paths.transfer.mkdir(parents=True)
        one.paths.transfer_log("stage").write_text("a line\nImportError: no boto3\n\n")

    one.programs.plans["transfer/stage"] = [crash]
    assert one.run().message == "transfer stage: killed by signal 11: ImportError: no boto3"


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
    command(one, 10)
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


def test_a_sync_program_that_dies_is_started_again(lease) -> None:
    one = lease()
    one.programs.plans["transfer/sync"] = [lambda child: child.ends_in(3, -9), one.syncing()]
    status = one.run()
    assert one.programs.names().count("transfer/sync") == 2
    assert (status.reason, status.message) == (Reason.COMPLETED, "")


def test_a_sync_that_never_works_is_given_up_and_named(lease) -> None:
    one = lease()
    one.programs.plans["transfer/sync"] = [one.syncing(code=1, message="s3://b/out: AccessDenied: no")]
    status = one.run()
    assert (status.reason, status.message) == (Reason.SYNC_FAILED, "s3://b/out: AccessDenied: no")
    assert one.programs.names().count("transfer/sync") == 3
    assert status.tasks[0].state is TaskState.DONE


def test_a_last_sync_that_reports_nothing_is_ended(lease) -> None:
    one = lease()
    one.programs.plans["transfer/sync"] = [lambda child: None, one.syncing()]
    status = one.run()
    assert one.programs.started[3].signals == ["KILL"]
    assert status.reason is Reason.COMPLETED


def test_a_last_sync_that_is_too_slow_for_a_notice_leaves_time_for_the_outcome(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(None)]
    one.programs.plans["transfer/sync"] = [one.syncing(seconds=10_000)]
    notice(one, 10, left=60)
    status = one.run()
    assert status.reason is Reason.PREEMPTED
    assert "the last upload was not finished in time" in status.message
    assert one.clock.time < one.clock.start + 70
    assert "transfer/outcome" in one.programs.names()


def test_an_outcome_that_is_not_stored_is_said_in_the_status(lease) -> None:
    one = lease()
    one.programs.plans["transfer/outcome"] = [lambda child: child.ends_in(1, 1)]
    assert one.run().message == "the outcome was not stored"


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


def test_a_lost_lease_folder_still_ends_at_the_deadline(lease) -> None:
    one = lease(deadline=1_000_000 + 300)
    one.clock.at(10, lambda: shutil.rmtree(one.paths.root))
    one.programs.plans["task/a"] = [lambda child: None]
    with pytest.raises(MachineGone):
        one.supervisor().run()
    assert one.programs.commands == [["poweroff"]]
    assert one.clock.time < one.job.deadline + 3


def test_a_mistake_of_our_own_still_stores_what_was_trained_and_powers_off(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(None)]
    one.clock.at(10, lambda: setattr(one.notices, "broken", KeyError("surprise")))
    one.clock.at(11, lambda: setattr(one.notices, "broken", None))
    status = one.run()
    assert status.reason is Reason.TRAINER_FAILED
    assert "internal error of the agent: KeyError" in status.message
    assert status.tasks[0].state is TaskState.INTERRUPTED
    assert "transfer/outcome" in one.programs.names()


def test_a_mistake_that_stays_ends_the_machine_all_the_same(lease) -> None:
    one = lease()
    one.notices.broken = KeyError("surprise")
    status = one.run()
    assert (status.phase, status.reason) == (Phase.ENDED, Reason.TRAINER_FAILED)
    assert one.programs.commands == [["poweroff"]]


def budget(lease, cap: float, usd_per_hour: float = 36.0) -> Budget:
    """One cent a second from the start, unless told otherwise."""
    return Budget(cap, 0.0, [PricePoint(lease.clock.start, usd_per_hour)], 0.0)


def test_training_stops_before_the_budget_is_passed_and_the_machine_goes_with_it(lease) -> None:
    one = lease(linger_seconds=900)
    one.job = replace(one.job, budget=budget(one, cap=3.0))
    one.programs.plans["task/a"] = [one.training(None)]
    one.watch(250)
    status = one.run()
    assert status.reason is Reason.BUDGET
    assert status.message.startswith("the budget pays for no more training: $2.1")
    assert status.tasks[0].state is TaskState.INTERRUPTED
    assert status.phase_seconds["training"] == pytest.approx(300 - 90 - 4, abs=4)
    assert one.clock.time == pytest.approx(one.clock.start + 300, abs=2), "whoever watches"


def test_a_price_that_rises_ends_training_sooner(lease) -> None:
    one = lease()
    one.job = replace(one.job, budget=budget(one, cap=10.0))
    one.programs.plans["task/a"] = [one.training(None)]
    dearer = budget(one, cap=10.0)
    dearer = replace(dearer, points=[*dearer.points, PricePoint(one.clock.start + 100, 180.0)])
    one.clock.at(100, lambda: protocol.write(one.paths.budget, dearer))
    assert one.run().reason is Reason.BUDGET
    assert one.clock.time < one.clock.start + 100 + 9.0 / 0.05


def test_a_budget_that_is_gone_ends_the_machine_at_once(lease) -> None:
    one = lease()
    one.job = replace(one.job, budget=budget(one, cap=10.0))
    one.programs.plans["task/a"] = [one.training(None)]
    one.clock.at(50, lambda: protocol.write(one.paths.budget, budget(one, cap=0.1)))
    status = one.run()
    assert (status.phase, status.reason) == (Phase.ENDED, Reason.BUDGET)
    assert "not everything was stored" in status.message
    assert one.clock.time < one.clock.start + 54


def test_a_budget_that_is_raised_lets_training_go_on(lease) -> None:
    one = lease()
    one.job = replace(one.job, budget=budget(one, cap=3.0))
    one.programs.plans["task/a"] = [one.training(400)]
    one.clock.at(100, lambda: protocol.write(one.paths.budget, budget(one, cap=30.0)))
    assert one.run().reason is Reason.COMPLETED


def test_the_status_is_posted_from_the_first_beat_to_the_last(lease) -> None:
    one = lease()
    one.programs.plans["transfer/post"] = [one.posting(seconds=3)]
    one.run()
    assert one.programs.names()[0] == "transfer/post"
    assert one.programs.last("transfer/post").signals == [], "it ended by itself, before the power-off"


def test_a_post_that_hangs_delays_the_end_by_seconds_and_is_ended(lease) -> None:
    one = lease()
    one.programs.plans["transfer/post"] = [lambda child: None]
    ended = one.run()
    assert one.programs.last("transfer/post").signals == ["KILL"]
    assert one.clock.time - ended.at == pytest.approx(10, abs=1)
