"""The daemon's side of the control endpoint: status, interruptions, prices, faults, the end. It wants its token."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from wsgiref.types import WSGIEnvironment

from launcher.errors import BadInput
from launcher.sandbox import calls, state
from launcher.sandbox.calls import Answer
from launcher.sandbox.faults import FaultPlan, Faults
from launcher.sandbox.hypervisor import Hypervisor, Refused
from launcher.sandbox.prices import PriceHistory, PriceList
from launcher.sandbox.state import SandboxStatus

_HEADER = f"HTTP_{state.CONTROL_HEADER.upper().replace('-', '_')}"


@dataclass(frozen=True, slots=True)
class InterruptOrder:
    """Body of `interrupt`."""

    notice_seconds: float
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class KillOrder:
    """Body of `kill`."""

    instance_id: str


@dataclass(frozen=True, slots=True)
class PriceOrder:
    """Body of `spot-price`."""

    instance_type: str
    usd_per_hour: Decimal
    zone_id: str | None = None


@dataclass(frozen=True, slots=True)
class Daemon:
    """What the orders act on."""

    token: str
    hypervisor: Hypervisor
    prices: PriceHistory
    faults: Callable[[], Faults]
    status: Callable[[], SandboxStatus]
    lock: threading.RLock
    stop: threading.Event


class ControlServer:
    """Answers `POST /_sandbox/ORDER`."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._orders: dict[str, Callable[[str], str]] = {
            "status": self._status,
            "interrupt": self._interrupt,
            "kill": self._kill,
            "spot-price": self._spot_price,
            "faults": self._faults,
            "clear-faults": self._clear_faults,
            "down": self._down,
        }

    def __call__(self, environ: WSGIEnvironment) -> Answer:
        """Carry out one order."""
        given = environ.get(_HEADER, "")
        if not hmac.compare_digest(given, self._daemon.token):
            return _reply(403, json.dumps({"error": "this is not the sandbox's control token"}))
        order = self._orders.get(environ["PATH_INFO"].removeprefix(state.CONTROL))
        if order is None or environ["REQUEST_METHOD"] != "POST":
            return _reply(404, json.dumps({"error": "no such order"}))
        body = calls.read_call(environ).body.decode() or "{}"
        try:
            with self._daemon.lock:
                return _reply(200, order(body))
        except (Refused, BadInput, ValueError) as error:
            return _reply(400, json.dumps({"error": str(error)}))

    def _status(self, _: str) -> str:
        return state.encode(self._daemon.status())

    def _interrupt(self, body: str) -> str:
        order = state.decode(body, InterruptOrder, "interrupt")
        return json.dumps({"ids": self._daemon.hypervisor.interrupt(order.instance_id, order.notice_seconds)})

    def _kill(self, body: str) -> str:
        order = state.decode(body, KillOrder, "kill")
        self._daemon.hypervisor.kill(order.instance_id)
        return json.dumps({"ids": [order.instance_id]})

    def _spot_price(self, body: str) -> str:
        order = state.decode(body, PriceOrder, "spot price")
        changed = self._daemon.prices.change(order.instance_type, order.zone_id, order.usd_per_hour, datetime.now(UTC))
        return state.encode(PriceList(tuple(changed)))

    def _faults(self, body: str) -> str:
        self._daemon.faults().add(state.decode(body, FaultPlan, "fault plan"))
        return "{}"

    def _clear_faults(self, _: str) -> str:
        self._daemon.faults().clear()
        return "{}"

    def _down(self, _: str) -> str:
        self._daemon.stop.set()
        return "{}"


def _reply(status: int, text: str) -> Answer:
    return calls.answer(text.encode(), "application/json", status=status)
