"""Several launchers at one time: each is real code that goes on where it stopped, and only one of them runs.

Time passes in `sleep` alone, so that is where one gives way to another: the launcher that a test drives sleeps in the
test's own thread, and whoever else is due meanwhile gets its turn in a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from cut_journal import Killed
from launcher_clock import START, FakeClock

from launcher.interrupts import Interrupts


class SharedClock(FakeClock):
    """A clock in which several processes sleep."""

    def __init__(self, start: datetime = START, *, limit: timedelta = timedelta(days=40)) -> None:
        super().__init__(start, limit=limit)
        self.running: Process | None = None
        """Whose turn it is; None: it is the test's."""

    def sleep(self, seconds: float) -> None:
        if self.running is None:
            super().sleep(seconds)
        else:
            self.running.pause(seconds)


class Process:
    """A launcher beside the one that the test drives. Made and started by the test; `error` says how it ended."""

    def __init__(self, clock: SharedClock, work: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.alive = True
        self._clock = clock
        self._work = work
        self._turn = threading.Semaphore(0)
        self._over = threading.Semaphore(0)
        self._sleeps = 0
        self._killed = False
        self._thread = threading.Thread(target=self._live, daemon=True)

    def start(self) -> None:
        """Run until it sleeps for the first time."""
        self._thread.start()
        self._run()

    def kill(self) -> None:
        """`kill -9`."""
        if self.alive:
            self._killed = True
            self._run()

    def pause(self, seconds: float) -> None:
        """For the process itself: others run meanwhile."""
        self._sleeps += 1
        sleep = self._sleeps
        self._clock.after(seconds, lambda: self._run() if self.alive and self._sleeps == sleep else None)
        self._over.release()
        self._turn.acquire()
        if self._killed:
            raise Killed

    def _run(self) -> None:
        """Let it go on until it sleeps again, or ends."""
        before, self._clock.running = self._clock.running, self
        self._turn.release()
        self._over.acquire()
        self._clock.running = before

    def _live(self) -> None:
        self._turn.acquire()
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - how it ended is for the test to judge
            self.error = error
        self.alive = False
        self._over.release()


@contextmanager
def heard(interrupts: Interrupts) -> Iterator[None]:
    """Only the test's own thread can get signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with interrupts.installed():
        yield
