"""Uploads as the agent sees them: kept alive, watched, and given the time that there is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agent_ports import CHECKPOINT

from remote import protocol
from remote.agent.preemption import Metadata
from remote.agent.transfers import FINAL_FAILURES, SYNC_SILENCE_SECONDS
from remote.protocol import AgentStatus, Phase, Reason, TaskState, TransferOutcome


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
    one.announce(10, left=60)
    status = one.run()
    assert status.reason is Reason.PREEMPTED
    assert "the last upload was not finished in time" in status.message
    assert one.clock.time < one.clock.start + 70
    assert "transfer/outcome" in one.programs.names()


def test_an_outcome_that_is_not_stored_is_said_in_the_status(lease) -> None:
    one = lease()
    one.programs.plans["transfer/outcome"] = [lambda child: child.ends_in(1, 1)]
    assert one.run().message == "the outcome was not stored"


def test_failures_of_long_ago_do_not_keep_the_last_sync_from_running(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(100)]
    dying = [lambda child: child.ends_in(2, -9)] * (FINAL_FAILURES + 2)
    one.programs.plans["transfer/sync"] = [*dying, one.syncing()]
    status = one.run()
    assert (status.reason, status.message) == (Reason.COMPLETED, "")
    assert one.programs.last("transfer/sync").code == 0


def test_a_sync_that_died_just_before_the_end_is_started_again_at_once(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(None)]
    one.programs.plans["transfer/sync"] = [lambda child: child.ends_in(6), one.syncing()]
    one.announce(11, left=120)
    started = []
    one.clock.at(16, lambda: started.append(one.programs.names().count("transfer/sync")))
    one.run()
    assert started == [2]


def test_a_sync_that_hangs_while_training_runs_is_ended_and_started_again(lease) -> None:
    """S06: no transfer stands still for long, in no phase."""
    one = lease()
    one.programs.plans["task/a"] = [one.training(250)]
    one.programs.plans["transfer/sync"] = [lambda child: None, one.syncing()]
    said = []
    for second in range(20):
        one.clock.at(SYNC_SILENCE_SECONDS + second, lambda: said.append(one.status().message))
    status = one.run()
    assert one.programs.started[3].signals == ["KILL"]
    assert "transfer sync reported nothing for 150 s and was ended" in said
    assert (status.reason, status.message) == (Reason.COMPLETED, "")


def test_a_sync_that_cannot_even_be_killed_is_left_and_another_one_started(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(250)]
    one.programs.plans["transfer/sync"] = [lambda child: setattr(child, "kill", lambda: None), one.syncing()]
    assert one.run().reason is Reason.COMPLETED
    assert one.programs.names().count("transfer/sync") == 2


def test_what_sync_warns_of_is_in_the_status_while_it_lasts(lease) -> None:
    """L09: a disk that fills up is said before it is full."""
    one = lease()
    one.programs.plans["task/a"] = [one.training(60)]
    one.programs.plans["transfer/sync"] = [one.syncing()]
    said = []
    warning = TransferOutcome(ok=True, message="the disk is nearly full: 300 MiB free")
    beat = protocol.write

    def warn_for_a_while(path, record) -> None:
        nearly_full = path == one.paths.sync_outcome and 20 < one.clock.time - one.clock.start < 30
        beat(path, replace(warning, at=record.at) if nearly_full else record)

    one.clock.at(28, lambda: said.append(one.status().message))
    one.clock.at(40, lambda: said.append(one.status().message))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "write", warn_for_a_while)
        assert one.run().message == ""
    assert said == ["the disk is nearly full: 300 MiB free", ""]


def test_every_warning_of_staging_stays_in_the_status(lease) -> None:
    one = lease()
    warnings = "checkpoint 7.pt of a skipped: it has 3 bytes; manifest x.json skipped: not JSON"
    one.programs.plans["transfer/stage"] = [one.staging(message=warnings)]
    assert one.run().message == warnings
    assert one.stored_outcome().message == warnings


def test_a_training_that_does_not_begin_where_its_checkpoint_was_is_said_loudly(lease, caplog) -> None:
    one = lease()
    one.programs.plans["transfer/stage"] = [one.staging(restored={"a": 500})]
    status = one.run()
    said = "training of a began at step 0 although a checkpoint of step 500 was restored"
    assert (status.reason, status.message) == (Reason.COMPLETED, said)
    assert [record.levelname for record in caplog.records if record.message == said] == ["ERROR"]


def test_a_training_that_goes_on_from_its_checkpoint_is_not_worth_a_word(lease) -> None:
    one = lease()
    one.programs.plans["transfer/stage"] = [one.staging(restored={"a": 500})]
    one.programs.plans["task/a"] = [one.training(20, resumed_step=500)]
    assert one.run().message == ""


def test_sync_is_told_why_it_shall_finish(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(None)]
    one.announce(10, left=120)
    one.run()
    assert one.paths.final_request.read_text() == Reason.PREEMPTED.value


def test_the_request_of_an_agent_that_died_does_not_end_the_uploads_of_the_next(lease) -> None:
    one = lease()
    protocol.write_text(one.paths.final_request, "")
    left = []
    one.clock.at(10, lambda: left.append(one.paths.final_request.exists()))
    assert one.run().reason is Reason.COMPLETED
    assert left == [False]


def test_the_outcome_of_an_agent_that_died_is_not_stored_as_the_one_of_the_next(lease) -> None:
    one = lease()
    protocol.write_text(one.paths.outcome, "of long ago")
    one.run()
    assert one.stored_outcome().reason is Reason.COMPLETED


def test_a_notice_of_seconds_keeps_the_last_good_checkpoint_and_stores_the_outcome(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(None, save_seconds=60)]
    one.programs.plans["transfer/sync"] = [one.syncing(seconds=600)]
    one.programs.plans["transfer/outcome"] = [lambda child: child.ends_in(3)]
    one.announce(10, left=5)
    status = one.run()
    assert (status.reason, status.checkpoint) == (Reason.PREEMPTED, CHECKPOINT)
    assert "its last whole checkpoint counts" in status.tasks[0].message
    assert one.programs.last("transfer/outcome").code == 0
    assert one.clock.time < one.clock.start + 10 + 5 + 10


def test_the_silence_of_the_metadata_service_is_no_preemption(lease) -> None:
    """P04: what is no notice is for the provider to tell, not for the agent to guess."""
    one = lease(metadata_base="http://127.0.0.1:9")
    one.notices = Metadata("http://127.0.0.1:9")
    one.programs.plans["task/a"] = [one.training(60)]
    assert one.run().reason is Reason.COMPLETED


def test_the_status_counts_what_all_programs_of_the_lease_have_moved(lease) -> None:
    one = lease()
    one.programs.plans["transfer/stage"] = [one.staging(bytes=1000)]

    def dying(child) -> None:
        one.syncing(sent=50)(child)
        child.ends_in(4, -9)

    one.programs.plans["transfer/sync"] = [dying, one.syncing(sent=7)]
    status = one.run()
    assert (status.uploaded_bytes, status.downloaded_bytes) == (57, 1000)
    assert one.stored_outcome().uploaded_bytes == 57


def test_an_agent_that_is_started_again_goes_on_counting(lease) -> None:
    one = lease()
    before = AgentStatus("run", "lease", Phase.TRAINING, 1.0, 1.0, 7, uploaded_bytes=50, downloaded_bytes=1000)
    protocol.write(one.paths.status, before)
    protocol.write(one.paths.sync_outcome, TransferOutcome(ok=True, bytes=50))
    one.programs.plans["transfer/sync"] = [one.syncing(sent=7)]
    status = one.run()
    assert (status.uploaded_bytes, status.downloaded_bytes) == (57, 1000)
