"""Brings an instance's wanted units to life: arms timers, starts services, makes up for missed times at boot.

The wishes are files (see `shims`); nothing is kept here that a look at them would not restore.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from launcher.sandbox.rootfs import Root
from launcher.sandbox.units import Timer, UnitError, missed, parse_service, parse_timer

Start = Callable[[list[str]], tuple["subprocess.Popen[bytes]", "asyncio.Future[int]"]]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Running:
    pid: int
    end: asyncio.Future[int]


class Services:
    """The units of one instance."""

    def __init__(self, root: Root, start: Start, say: Say) -> None:
        self._root = root
        self._start = start
        self._say = say
        self._timers: dict[str, Timer | None] = {}
        """Armed timers; None: one that elapsed or was refused, and stays listed until it is stopped."""
        self._running: dict[str, _Running] = {}

    def boot(self) -> None:
        """At power-on nothing is active but what is enabled."""
        for wish in self._root.wishes.iterdir():
            wish.unlink()
        self._root.shutdown.unlink(missing_ok=True)
        for link in self._root.units.glob("*.wants/*"):
            (self._root.wishes / link.name).touch()

    def tick(self, now: float) -> None:
        """One look at the wishes and at the clock (`now` in Unix seconds)."""
        wanted = {wish.name for wish in self._root.wishes.iterdir()}
        for name in sorted(wanted):
            if name.endswith(".timer"):
                self._arm(name, now)
            elif name.endswith(".service"):
                self._run(name)
        for name in set(self._timers) - wanted:
            del self._timers[name]
        for name in set(self._running) - wanted:
            self._end(name)
        for timer in [timer for timer in self._timers.values() if timer is not None and timer.due <= now]:
            self._elapse(timer)

    def _arm(self, name: str, now: float) -> None:
        if name in self._timers:
            return
        try:
            timer = parse_timer(name, (self._root.units / name).read_text(encoding="utf-8"))
        except (UnitError, OSError) as error:
            self._say(f"[sandbox] timer refused: {error}")
            self._timers[name] = None
            return
        stamp = self._root.stamps / f"stamp-{name}"
        last = stamp.stat().st_mtime if stamp.exists() else None
        stamp.touch()
        # As in systemd: a time already past is made up for only by a persistent timer that was armed before it.
        self._timers[name] = timer if timer.due > now or missed(timer, last, now) else None

    def _elapse(self, timer: Timer) -> None:
        self._timers[timer.name] = None
        self._say(f"[sandbox] {timer.name} elapsed, starting {timer.service}")
        (self._root.wishes / timer.service).touch()
        self._run(timer.service)

    def _run(self, name: str) -> None:
        running = self._running.get(name)
        if running is not None:
            if running.end.done():
                self._say(f"[sandbox] {name} ended with exit code {running.end.result()}")
                self._forget(name)
            return
        try:
            service = parse_service(name, (self._root.units / name).read_text(encoding="utf-8"))
            child, end = self._start(self._root.command(list(service.argv)))
        except (UnitError, OSError) as error:
            self._say(f"[sandbox] service refused: {error}")
            self._forget(name)
            return
        self._running[name] = _Running(child.pid, end)

    def _end(self, name: str) -> None:
        running = self._running.pop(name)
        if not running.end.done():
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGTERM)

    def _forget(self, name: str) -> None:
        self._running.pop(name, None)
        (self._root.wishes / name).unlink(missing_ok=True)
