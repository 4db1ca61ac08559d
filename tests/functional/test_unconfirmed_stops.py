"""A machine that may still be billed is never called gone: loud, exact, and finished by the next process (C07, C16)."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from launcher_world import Cut, CutJournal, World

from launcher.errors import ExitCode, GpucostError, StopUnconfirmed
from launcher.events import Outcome
from launcher.interrupts import Interrupts
from launcher.journal import Journal
from launcher.providers.interface import RefusedError, UnreachableError
from launcher.run import State
from launcher.steps.stop import _settled_view
from launcher.storage.interface import StorageError
from remote.protocol import StoredRun


def stubborn(world):
    """A machine that nothing ends: neither the provider nor its own power-off."""
    world.provider.terminates = False
    world.provider.on_boot = lambda machine: setattr(machine, "powers_off", False)


def test_a_machine_that_is_not_confirmed_gone_is_the_loudest_error_with_the_exact_command(tmp_path):
    world = World(tmp_path)
    stubborn(world)
    run_id = world.open()
    with pytest.raises(StopUnconfirmed) as loud:
        world.drive(run_id)
    assert loud.value.exit_code == ExitCode.NOT_CONFIRMED_GONE == 7
    assert "THE MACHINE i-0001 IN us-east-1 IS NOT CONFIRMED GONE" in str(loud.value)
    assert f"gpucost stop {run_id}" in loud.value.hint
    assert "aws ec2 terminate-instances --region us-east-1 --instance-ids i-0001" in loud.value.hint
    run = world.run(run_id)
    assert run.state is State.STOPPING
    assert run.lease is not None
    assert "LeaseClosed" not in world.events(run_id)


def test_a_terminate_without_effect_is_made_up_for_by_the_agents_own_power_off(tmp_path):
    world = World(tmp_path)
    world.provider.terminates = False
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert world.clock.elapsed < 400 + world.facts.linger_seconds


def test_a_stop_that_was_not_confirmed_is_finished_by_a_later_process(tmp_path):
    world = World(tmp_path)
    stubborn(world)
    run_id = world.open()
    with pytest.raises(StopUnconfirmed):
        world.drive(run_id)
    world.provider.terminates = True
    world.clock.sleep(60)
    run = world.stop(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE, "why it ended is not forgotten"


def test_a_launch_that_was_lost_and_cannot_be_looked_for_is_loud_too(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.provider.fail("launch", UnreachableError("read timed out"), effect=True)
    world.clock.at(1, lambda: setattr(world.provider, "down", True))
    with pytest.raises(StopUnconfirmed) as loud:
        world.drive(run_id)
    assert f"gpucost-lease={run_id}-1" in str(loud.value)
    world.provider.down = False
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.REFUSED


def test_credentials_that_end_before_the_stop_are_loud_and_the_stop_is_finished_later(tmp_path):
    """I03: nothing is called gone that could not be looked at."""
    world = World(tmp_path)
    run_id = world.open()
    expired = RefusedError("AWS refuses the credentials (ExpiredToken)", hint="run `aws configure`")
    world.clock.at(300, lambda: [world.provider.fail(call, expired, times=500) for call in ("find", "terminate")])
    with pytest.raises(StopUnconfirmed, match="ExpiredToken") as loud:
        world.drive(run_id)
    assert "gpucost stop" in loud.value.hint
    assert world.run(run_id).state is State.STOPPING
    world.provider._faults.clear()
    assert world.drive(run_id).outcome is Outcome.DONE
    world.check(run_id, late_seconds=1000)


def test_a_key_pair_that_may_not_be_deleted_does_not_keep_a_run_from_settling(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.provider.fail("clean_up", RefusedError("UnauthorizedOperation", hint="grant it"), times=10)
    run = world.drive(run_id)
    assert (run.state, run.outcome) == (State.SETTLED, Outcome.DONE)
    assert world.provider.alive() == []
    assert f"gpucost-{run_id}" in world.notes()


@pytest.mark.parametrize(("failures", "left"), [(2, False), (3, True)])
def test_what_lies_beside_a_machine_is_tried_again_where_the_cloud_does_not_answer(tmp_path, failures, left):
    world = World(tmp_path)
    run_id = world.open()
    world.provider.fail("clean_up", UnreachableError("InternalError"), times=failures)
    assert world.drive(run_id).outcome is Outcome.DONE
    assert bool(world.provider.resources) == left
    assert (f"key pair and security group gpucost-{run_id} may be left" in world.notes()) == left


def test_a_storage_that_fails_while_the_machine_is_ended_leads_around_nothing(tmp_path):
    world = World(tmp_path)
    run_id = world.open()

    def lost():
        world.store.down = True
        world.provider.lose(world.machine())

    world.signal_at(150)
    world.clock.at(152, lost)
    run = world.drive(run_id)
    assert run.state is State.SETTLED
    assert run.outcome is Outcome.CANCELLED
    assert len(run.entries) == 1


def test_results_that_cannot_be_copied_are_said_so_and_the_run_still_settles(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "job").write_text("a file is in the way")
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert f"the results are in {world.store.url}/{run_id}" in world.notes()


def test_results_that_are_damaged_in_the_storage_are_said_so(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.clock.at(374, lambda: world.store.objects.update({f"{run_id}/tasks/job/artifacts/best.pt": b"torn"}))
    run = world.drive(run_id)
    world.check(run_id)
    assert "best.pt of job arrived damaged" in world.notes()
    assert not (tmp_path / "runs/job/best.pt").exists()
    assert run.state is State.SETTLED


@pytest.mark.parametrize("moment", [361, 372, 376])
def test_a_storage_that_fails_for_a_moment_after_training_does_not_make_the_run_a_failure(tmp_path, moment):
    world = World(tmp_path)
    run_id = world.open()
    world.clock.at(moment, lambda: setattr(world.store, "down", True))
    world.clock.at(moment + 30, lambda: setattr(world.store, "down", False))
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE


def test_a_storage_that_fails_while_the_end_is_looked_up_is_asked_again(tmp_path):
    """The machine is gone, how it ended is in the storage, and the storage does not answer at first."""
    world = World(tmp_path)
    run_id = world.open()
    world.kill_at(150)
    world.drive_until_killed(run_id)
    world.clock.sleep(600)
    assert world.provider.alive() == []
    world.store.fail("get", "outcome", times=3, error=StorageError("500"))
    assert world.drive(run_id).outcome is Outcome.DONE
    world.check(run_id, late_seconds=world.facts.linger_seconds + world.facts.power_off_seconds)


def test_a_full_disk_under_the_cached_status_ends_no_run(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.home.run(run_id).status.mkdir(parents=True)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE


def test_a_fault_of_our_own_in_a_step_still_stops_the_machine(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.store.fail("get", "artifacts", times=1, error=ZeroDivisionError("a fault of our own"))
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.FAILED
    assert "ZeroDivisionError" in run.message
    assert "gpucost" in run.cause.hint


def test_a_fault_of_our_own_while_stopping_is_as_loud_as_a_machine_that_stays(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.provider.fail("terminate", ZeroDivisionError("a fault of our own"))
    with pytest.raises(StopUnconfirmed, match="ZeroDivisionError") as loud:
        world.drive(run_id)
    assert f"gpucost stop {run_id}" in loud.value.hint
    assert world.drive(run_id).outcome is Outcome.DONE
    world.check(run_id)


@pytest.mark.parametrize("error", [UnreachableError("503"), UnreachableError("reset")])
def test_a_terminate_that_is_not_answered_is_repeated(tmp_path, error):
    world = World(tmp_path)
    run_id = world.open()
    world.provider.fail("terminate", error, times=4)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.DONE
    assert world.provider.calls.count("terminate") >= 5


class FullDisk(CutJournal):
    """The disk under the journal is full from one line on."""

    def append(self, event):
        self._lines += 1
        if self._lines >= self._cut.line:
            raise OSError(errno.ENOSPC, "No space left on device")
        return Journal.append(self, event)


@pytest.mark.parametrize("line", range(1, 15))
def test_a_journal_that_cannot_be_written_is_loud_where_a_machine_may_be_billed(tmp_path, line):
    world = World(tmp_path)
    world.journal_class = FullDisk
    run_id = world.open()
    with pytest.raises(GpucostError, match="No space left on device") as error:
        world.drive(run_id, cut=Cut(line, before=True))
    assert f"gpucost resume {run_id}" in error.value.hint or f"gpucost stop {run_id}" in error.value.hint
    paid = world.run(run_id).lease is not None
    assert error.value.exit_code == (ExitCode.NOT_CONFIRMED_GONE if paid else ExitCode.USAGE)
    world.journal_class = CutJournal
    assert world.drive(run_id).outcome is Outcome.DONE
    world.check(run_id)


def test_a_launch_without_an_answer_is_waited_for_from_the_stop_and_not_from_the_request(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    services = world.services(world.run(run_id), Interrupts())
    entered = services.clock.monotonic()
    assert not _settled_view(services, [], entered)
    services.clock.sleep(services.facts.visible_after_seconds + 1)
    assert _settled_view(services, [], entered)


def test_a_run_whose_results_cannot_be_copied_says_so_in_its_last_record(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    results = Path(world.run(run_id).opened.results_dir)
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text("in the way")
    run = world.drive(run_id)
    assert (run.outcome, run.collected) == (Outcome.DONE, False)
    assert world.run(run_id).collected is False


def test_a_full_disk_under_what_is_sent_to_the_storage_ends_no_run(tmp_path):
    """A foreign object has the number of a record; putting ours in its place takes a file here."""
    world = World(tmp_path)
    run_id = world.open()
    folder = world.home.run(run_id)

    def fill():
        world.store.objects[StoredRun(run_id).record(len(folder.journal.lines()) + 1)] = b"foreign"
        shutil.rmtree(tmp_path / "scratch", ignore_errors=True)
        (tmp_path / "scratch").write_text("in the way")

    world.clock.at(200, fill)
    run = world.drive(run_id)
    assert run.outcome is Outcome.DONE
    assert world.provider.alive() == []
    assert "cannot be sent" in world.notes()
