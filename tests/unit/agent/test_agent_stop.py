"""Reasons to stop, and which of them counts."""

from __future__ import annotations

import pytest

from remote import protocol
from remote.agent.limits import Limits
from remote.agent.stop import StopSources
from remote.protocol import Reason, StopCommand

NOW = 1_000_000.0


@pytest.fixture
def sources(lease):
    one = lease(deadline=NOW + 1000)
    return one, StopSources(one.job, one.paths, one.notices, Limits(one.job, one.paths.budget))


def test_there_is_no_reason_at_first(sources) -> None:
    _, looked = sources
    assert looked.look(NOW) is None


def test_a_command_carries_its_reason(sources) -> None:
    one, looked = sources
    protocol.write(one.paths.command, StopCommand(Reason.CANCELLED, NOW))
    assert looked.look(NOW).reason is Reason.CANCELLED


def test_a_command_that_cannot_be_read_stops_too(sources) -> None:
    one, looked = sources
    one.paths.command.write_text("{")
    stop = looked.look(NOW)
    assert stop.reason is Reason.CANCELLED
    assert "command.json" in stop.message


def test_the_deadline_comes_early_by_the_reserve(sources) -> None:
    _, looked = sources
    assert looked.look(NOW + 909) is None
    stop = looked.look(NOW + 910)
    assert (stop.reason, stop.gone_at) == (Reason.DEADLINE, NOW + 1000)


def test_a_notice_is_more_urgent_than_anything_else(sources) -> None:
    one, looked = sources
    protocol.write(one.paths.command, StopCommand(Reason.CANCELLED, NOW))
    looked.terminated = True
    one.notices.notice = {"action": "terminate", "time": "1970-01-12T13:48:00Z"}
    stop = looked.look(NOW)
    assert (stop.reason, stop.gone_at) == (Reason.PREEMPTED, 1_000_080)


def test_a_notice_stays_known_when_the_service_falls_silent(sources) -> None:
    one, looked = sources
    one.notices.notice = {"action": "stop", "time": "1970-01-12T13:48:00Z"}
    looked.look(NOW)
    one.notices.notice = None
    assert looked.look(NOW + 1).reason is Reason.PREEMPTED


def test_no_source_promises_time_beyond_the_deadline(sources) -> None:
    one, looked = sources
    one.notices.notice = {"action": "terminate", "time": "2030-01-01T00:00:00Z"}
    assert looked.look(NOW).gone_at == NOW + 1000


def test_sigterm_leaves_a_minute(sources) -> None:
    _, looked = sources
    looked.terminated = True
    stop = looked.look(NOW)
    assert (stop.reason, stop.gone_at) == (Reason.PREEMPTED, NOW + 60), "the run goes on elsewhere"
