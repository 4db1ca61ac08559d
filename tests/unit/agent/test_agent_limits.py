"""The hard end of a machine: its deadline, or sooner, its budget."""

from __future__ import annotations

import logging

import pytest

from remote import protocol
from remote.agent.limits import Limits
from remote.protocol import Budget, PricePoint, ProtocolError, Reason

NOW = 1_000_000.0
HOUR = 3600.0


def budget(cap: float, usd_per_hour: float = 1.0) -> Budget:
    return Budget(cap, 0.0, [PricePoint(NOW, usd_per_hour)], 0.0)


@pytest.fixture
def limits(lease):
    """A maker of limits; the deadline is two hours away."""

    def make(first: Budget | None):
        one = lease(deadline=NOW + 2 * HOUR, budget=first)
        return one, Limits(one.job, one.paths.budget)

    return make


def test_without_a_budget_the_deadline_is_the_end(limits) -> None:
    _, made = limits(None)
    assert (made.off_at, made.reason) == (NOW + 2 * HOUR, Reason.DEADLINE)


@pytest.mark.parametrize(("cap", "hours", "reason"), [(1, 1, Reason.BUDGET), (3, 2, Reason.DEADLINE)])
def test_the_sooner_of_deadline_and_budget_is_the_end(limits, cap: float, hours: float, reason: Reason) -> None:
    _, made = limits(budget(cap))
    assert (made.off_at, made.reason) == (NOW + hours * HOUR, reason)


def test_a_budget_that_ends_with_the_deadline_is_a_deadline(limits) -> None:
    assert limits(budget(2))[1].reason is Reason.DEADLINE


def test_the_words_name_what_is_owed_and_the_cap(limits) -> None:
    _, made = limits(budget(1.5))
    said = made.words(NOW + HOUR)
    assert said == "the budget pays for no more training: $1.0000 of $1.5000 are owed after a stop now"


def test_a_newer_budget_replaces_the_one_of_the_job(limits) -> None:
    one, made = limits(budget(1))
    protocol.write(one.paths.budget, budget(1, usd_per_hour=2))
    made.refresh()
    assert made.off_at == NOW + HOUR / 2
    protocol.write(one.paths.budget, budget(1.5, usd_per_hour=1))
    made.refresh()
    assert made.off_at == NOW + 1.5 * HOUR


def test_a_budget_may_come_where_there_was_none(limits) -> None:
    one, made = limits(None)
    protocol.write(one.paths.budget, budget(1))
    made.refresh()
    assert made.reason is Reason.BUDGET


def test_an_unchanged_file_is_not_read_again(limits, monkeypatch: pytest.MonkeyPatch) -> None:
    one, made = limits(None)
    protocol.write(one.paths.budget, budget(1))
    made.refresh()
    monkeypatch.setattr(protocol, "read", lambda *_: pytest.fail("read again"))
    made.refresh()


@pytest.mark.parametrize("text", ["{", '{"schema": 1}', protocol.encode(Budget(9, 0, [], 0))])
def test_a_newer_budget_that_is_unusable_is_logged_once_and_ignored(limits, caplog, text: str) -> None:
    one, made = limits(budget(1))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            protocol.write_text(one.paths.budget, text)
            made.refresh()
    assert made.off_at == NOW + HOUR
    assert len(caplog.records) == 1


def test_a_job_whose_budget_is_no_limit_is_refused(limits) -> None:
    with pytest.raises(ProtocolError, match="it has no prices"):
        limits(Budget(1, 0, [], 0))
