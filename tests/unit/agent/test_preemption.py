"""Reading notices from the metadata service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from metadata_service import MetadataService, metadata_service

from remote.agent import preemption
from remote.agent.preemption import Metadata

NOTICE = {"action": "terminate", "time": "2026-12-01T02:30:00Z"}


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with metadata_service() as running:
        yield running


def test_there_is_no_notice_until_there_is_one(service: MetadataService) -> None:
    metadata = Metadata(service.base)
    assert metadata.preemption() is None
    service.notice = NOTICE
    assert metadata.preemption() == NOTICE


def test_one_token_serves_many_questions(service: MetadataService) -> None:
    metadata = Metadata(service.base + "/")
    for _ in range(3):
        metadata.preemption()
    assert service.asked.count("/latest/api/token") == 1


def test_a_stale_token_is_renewed(service: MetadataService) -> None:
    metadata = Metadata(service.base)
    metadata.preemption()
    service.forget_tokens()
    service.notice = NOTICE
    assert [metadata.preemption(), metadata.preemption()] == [None, NOTICE]


def test_a_rebalance_recommendation_is_told_apart(service: MetadataService) -> None:
    service.rebalance = {"noticeTime": "2026-12-01T02:20:00Z"}
    metadata = Metadata(service.base)
    assert metadata.rebalance() == "2026-12-01T02:20:00Z"
    assert metadata.preemption() is None


def test_a_proxy_of_the_environment_is_not_used(service: MetadataService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    service.notice = NOTICE
    assert Metadata(service.base).preemption() == NOTICE


def test_a_service_that_is_not_there_is_no_notice_and_is_not_asked_each_time() -> None:
    metadata = Metadata("http://127.0.0.1:9")
    assert [metadata.preemption() for _ in range(preemption.SKIPPED + 2)] == [None] * (preemption.SKIPPED + 2)


def test_the_time_of_a_notice_is_utc() -> None:
    assert preemption.gone_at(NOTICE, now=0) == 1796092200


def test_a_notice_whose_time_is_over_is_very_soon_too() -> None:
    """The machine is still there: it is the clock that is ahead."""
    assert preemption.gone_at(NOTICE, now=1796092200 + 3600) == 1796092200 + 3600 + preemption.UNREADABLE_NOTICE_SECONDS
    assert preemption.gone_at(NOTICE, now=1796092200 - 5) == 1796092200


@pytest.mark.parametrize("notice", [{}, {"action": "stop"}, {"time": "soon"}])
def test_a_notice_without_a_readable_time_is_very_soon(notice: dict[str, str]) -> None:
    assert preemption.gone_at(notice, now=100) == 100 + preemption.UNREADABLE_NOTICE_SECONDS
