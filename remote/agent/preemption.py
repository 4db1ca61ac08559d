"""The cloud's word that this machine will be taken away, read from its metadata service (IMDSv2).

Owns the two requests and their answers. Decides nothing. A service that does not answer is no notice: the launcher asks
the provider about machines that fall silent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime, timezone
from http.client import HTTPException
from typing import Protocol
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

log = logging.getLogger(__name__)

TOKEN_SECONDS = 21600
ANSWER_SECONDS = 1.0
SKIPPED = 10
"""Questions not asked after one that got no answer, so that a dead service does not slow the beat."""
UNREADABLE_NOTICE_SECONDS = 60.0
"""What is left when a notice carries no time that can be read or believed: half of what AWS gives at best."""


class Notices(Protocol):
    """Where preemptions are announced."""

    def preemption(self) -> dict[str, str] | None:
        """The notice with its `action` and `time`, or None."""

    def rebalance(self) -> str | None:
        """When a preemption was called likely, or None."""


class NoNotices:
    """A machine that nobody takes away."""

    def preemption(self) -> dict[str, str] | None:
        """Never."""
        return None

    def rebalance(self) -> str | None:
        """Never."""
        return None


class Metadata:
    """The metadata service of AWS at `base`; never through a proxy, and never waited for longer than a second."""

    def __init__(self, base: str) -> None:
        self._base = base.rstrip("/")
        self._open = build_opener(ProxyHandler({})).open
        self._token: str | None = None
        self._skip = 0

    def preemption(self) -> dict[str, str] | None:
        """`spot/instance-action`: 404 until there is one."""
        found = self._get("spot/instance-action")
        return None if found is None else {key: str(value) for key, value in found.items()}

    def rebalance(self) -> str | None:
        """`events/recommendations/rebalance`: 404 until there is one."""
        found = self._get("events/recommendations/rebalance")
        return None if found is None else str(found.get("noticeTime", ""))

    def _get(self, name: str) -> Mapping[str, object] | None:
        if self._skip > 0:
            self._skip -= 1
            return None
        try:
            return self._ask(name)
        except HTTPError as error:
            if error.code == 401:
                self._token = None
            error.close()
        except (URLError, HTTPException, OSError, ValueError) as error:
            log.debug("metadata service: %s: %s", name, error)
            self._skip = SKIPPED
        return None

    def _ask(self, name: str) -> Mapping[str, object]:
        if self._token is None:
            asked = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
            self._token = self._send("api/token", asked, "PUT")
        shown = {"X-aws-ec2-metadata-token": self._token}
        answer = json.loads(self._send(f"meta-data/{name}", shown, "GET"))
        if not isinstance(answer, dict):
            raise ValueError(f"expected an object, found {type(answer).__name__}")
        return answer

    def _send(self, name: str, headers: dict[str, str], method: str) -> str:
        request = Request(f"{self._base}/latest/{name}", headers=headers, method=method)  # noqa: S310 - http by design
        with self._open(request, timeout=ANSWER_SECONDS) as answer:
            return str(answer.read(65536).decode("utf-8"))


def gone_at(notice: Mapping[str, str], now: float) -> float:
    """When the machine will be gone (Unix seconds).

    A time that cannot be read counts as very soon; so does one that is over, as the clock here may be ahead.
    """
    try:
        at = datetime.strptime(notice["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except (KeyError, ValueError):
        return now + UNREADABLE_NOTICE_SECONDS
    return at.timestamp() if at.timestamp() > now else now + UNREADABLE_NOTICE_SECONDS
