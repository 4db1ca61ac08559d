"""The spot requests behind spot machines: when EC2 took one back, and the ones that still wait."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from launcher.clock import Clock
from launcher.providers.aws.account import Clients
from launcher.providers.aws.calls import ask, ask_unless
from launcher.providers.aws.errors import ABSENT
from launcher.providers.aws.tags import Filter, equals, of_run
from launcher.providers.interface import InstanceRef, RefusedError, UnreachableError

_NOTICE = timedelta(minutes=2)
"""A request has the status of the end from the notice on; the machine runs, and is billed, so much longer at most."""


class SpotRequests:
    """Spot requests of one account, in any region."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._ends: dict[InstanceRef, datetime | None] = {}

    def ended_at(self, ref: InstanceRef) -> datetime | None:
        """When a machine that EC2 took back was off at the latest; None where nobody says. Asked once for each."""
        if ref not in self._ends:
            try:
                self._ends[ref] = self._ended_at(ref)
            except RefusedError:
                self._ends[ref] = None
            except UnreachableError:
                return None
        return self._ends[ref]

    def cancel_open(self, run_id: str, region: str) -> None:
        """Cancel what may still start a machine of this run. Machines that run are not touched by it."""
        waiting = self._requests(region, of_run(run_id), equals("state", "open"))
        ids = [request["SpotInstanceRequestId"] for request in waiting]
        if ids:
            cancel = self._clients.get("ec2", region).cancel_spot_instance_requests
            ask_unless(ABSENT, cancel, SpotInstanceRequestIds=ids)

    def _ended_at(self, ref: InstanceRef) -> datetime | None:
        now = self._clock.now()
        found = self._requests(ref.region, equals("instance-id", ref.instance_id))
        changes = [request["Status"]["UpdateTime"] for request in found if "UpdateTime" in request.get("Status", {})]
        return min(max(changes) + _NOTICE, now) if changes else None

    def _requests(self, region: str, *filters: Filter) -> list[dict[str, Any]]:
        pages = self._clients.get("ec2", region).get_paginator("describe_spot_instance_requests")
        answer = ask(lambda: list(pages.paginate(Filters=list(filters))))
        return [found for page in answer for found in page["SpotInstanceRequests"]]
