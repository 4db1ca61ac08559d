"""The copy of the status in the storage, and commands from there."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from remote_store import MemoryStore

from remote import protocol
from remote.protocol import AgentStatus, Phase, Reason, StopCommand, StoredRun
from remote.transfer.posting import AGAIN_SECONDS, Posting
from remote.transfer.store import StoreError

STATUS_KEY = StoredRun("run").posted_status("lease")
COMMAND_KEY = StoredRun("run").posted_command("lease")
STATUS = AgentStatus("run", "lease", Phase.TRAINING, 10.0, 1.0, 77)


@pytest.fixture
def posting(folder) -> Posting:
    return Posting(folder.job, folder.paths, lambda: folder.store, folder.clock, lambda: True)


def say(folder, **changes: object) -> None:
    """The agent's beat."""
    protocol.write(folder.paths.status, replace(STATUS, at=folder.clock.time, **changes))


def posted(folder) -> AgentStatus | None:
    content = folder.store.objects.get(STATUS_KEY)
    return None if content is None else protocol.decode(content.decode(), AgentStatus, STATUS_KEY)


def posts(folder) -> int:
    return folder.store.calls.count(("put", STATUS_KEY))


def run_for(folder, posting, seconds: int) -> None:
    for _ in range(seconds):
        say(folder)
        posting.round()
        folder.clock.sleep(1)


def test_the_status_is_posted_at_once_and_then_once_a_minute(folder, posting) -> None:
    run_for(folder, posting, 1)
    assert posted(folder).at == folder.clock.start
    run_for(folder, posting, 179)
    assert posts(folder) == 3
    assert posted(folder).at == folder.clock.start + 120


@pytest.mark.parametrize("change", [{"phase": Phase.SYNCING}, {"reason": Reason.PREEMPTED}])
def test_a_new_phase_or_reason_is_posted_at_once(folder, posting, change) -> None:
    run_for(folder, posting, 5)
    say(folder, **change)
    posting.round()
    assert posts(folder) == 2
    assert (posted(folder).phase, posted(folder).reason) == (change.get("phase", Phase.TRAINING), change.get("reason"))


def test_before_the_first_status_there_is_nothing_to_post(folder, posting) -> None:
    posting.round()
    assert posts(folder) == 0
    run_for(folder, posting, 1)
    assert posts(folder) == 1


def test_the_program_ends_once_the_last_status_is_posted(folder, posting) -> None:
    say(folder)
    folder.clock.at(5, lambda: say(folder, phase=Phase.ENDED, reason=Reason.COMPLETED))
    assert posting.run() == 0
    assert posted(folder).phase is Phase.ENDED
    assert folder.clock.time - folder.clock.start <= 6


def test_a_last_status_that_does_not_get_through_is_tried_again(folder, posting) -> None:
    folder.store.fail("put", times=3)
    say(folder, phase=Phase.ENDED)
    assert posting.run() == 0
    assert posted(folder).phase is Phase.ENDED
    assert folder.clock.time - folder.clock.start == pytest.approx(3 * AGAIN_SECONDS, abs=3)


def test_the_program_does_not_outlive_its_agent(folder) -> None:
    say(folder)
    lives = [True] * 3
    posting = Posting(folder.job, folder.paths, lambda: folder.store, folder.clock, lambda: bool(lives and lives.pop()))
    assert posting.run() == 0
    assert posted(folder).phase is Phase.TRAINING


def test_a_stored_command_reaches_the_agent(folder, posting) -> None:
    run_for(folder, posting, 30)
    assert not folder.paths.command.exists()
    command = StopCommand(Reason.CANCELLED, 5.0)
    folder.store.objects[COMMAND_KEY] = protocol.encode(command).encode()
    run_for(folder, posting, 31)
    assert protocol.read(folder.paths.command, StopCommand) == command


def test_a_command_that_is_there_already_stands(folder, posting) -> None:
    first = StopCommand(Reason.BUDGET, 1.0)
    protocol.write(folder.paths.command, first)
    folder.store.objects[COMMAND_KEY] = protocol.encode(StopCommand(Reason.CANCELLED, 5.0)).encode()
    run_for(folder, posting, 61)
    assert protocol.read(folder.paths.command, StopCommand) == first


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b'{"schema": 1, "reason": "bored", "at": 1.0}'])
def test_what_is_no_command_is_logged_once_and_stops_nothing(folder, posting, caplog, content: bytes) -> None:
    folder.store.objects[COMMAND_KEY] = content
    with caplog.at_level(logging.WARNING):
        run_for(folder, posting, 200)
    assert not folder.paths.command.exists()
    assert len(caplog.records) == 1
    assert posts(folder) == 4


def test_a_storage_that_fails_is_logged_once_and_asked_again_soon(folder, posting, caplog) -> None:
    folder.store.fail("put", times=5)
    with caplog.at_level(logging.INFO):
        run_for(folder, posting, 100)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert posts(folder) == 5 + 1
    assert posted(folder).at == pytest.approx(folder.clock.start + 5 * AGAIN_SECONDS, abs=6)


def test_credentials_that_come_late_are_found(folder) -> None:
    opened = iter([StoreError("no credentials"), StoreError("no credentials"), folder.store])

    def open_store() -> MemoryStore:
        found = next(opened)
        if isinstance(found, StoreError):
            raise found
        return found

    posting = Posting(folder.job, folder.paths, open_store, folder.clock, lambda: True)
    run_for(folder, posting, int(AGAIN_SECONDS) + 5)
    assert posts(folder) == 1


@pytest.mark.parametrize("call", ["put", "read"])
def test_after_a_failure_the_storage_is_opened_again(folder, call: str) -> None:
    opened: list[int] = []

    def open_store() -> MemoryStore:
        opened.append(1)
        return folder.store

    posting = Posting(folder.job, folder.paths, open_store, folder.clock, lambda: True)
    run_for(folder, posting, 70)
    assert len(opened) == 1
    folder.store.fail(call)
    run_for(folder, posting, 140)
    assert len(opened) == 2


def test_a_command_is_looked_for_even_where_the_status_cannot_be_read(folder, posting) -> None:
    folder.paths.status.write_text("{")
    folder.store.objects[COMMAND_KEY] = protocol.encode(StopCommand(Reason.CANCELLED, 5.0)).encode()
    posting.round()
    assert folder.paths.command.exists()
    assert posts(folder) == 0


def test_a_command_that_cannot_be_looked_for_does_not_hold_back_the_last_status(folder, posting) -> None:
    folder.store.fail("read", times=99)
    say(folder, phase=Phase.ENDED)
    assert posting.round() is Phase.ENDED


def test_a_full_disk_does_not_keep_the_status_from_the_storage(folder, posting, monkeypatch) -> None:
    run_for(folder, posting, 1)
    say(folder, reason=Reason.DEADLINE)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    folder.store.objects[COMMAND_KEY] = protocol.encode(StopCommand(Reason.CANCELLED, 5.0)).encode()
    posting.round()
    assert posted(folder).reason is Reason.DEADLINE
