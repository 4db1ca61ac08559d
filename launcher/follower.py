"""What another process writes into a run's journal here, told once as it comes. Does nothing to the run."""

from __future__ import annotations

from dataclasses import replace

from launcher.context import Context
from launcher.errors import Unreadable
from launcher.events import RunOpened
from launcher.history import usd_now
from launcher.journal import follow
from launcher.report import Beat, Happened
from launcher.run import Run, opened

LOOK_SECONDS = 1.0
"""Between two looks at what a launcher of this machine wrote."""


class Follower:
    """What is new in a run's journal and status, told once."""

    def __init__(self, run_id: str, context: Context) -> None:
        self._context = context
        self._folder = context.home.run(run_id)
        self._told = 0
        self._beat: float | None = None

    def look(self, *, silent: bool = False) -> Run:
        """Tell what is new (`silent`: only take note of it); the run as it is now."""
        history = self._folder.journal.events()
        first = history[0] if history else None
        if not isinstance(first, RunOpened):
            path = self._folder.journal.path
            said = (
                f"{path} does not begin with a run" if first else f"the records of the run are gone from {path.parent}"
            )
            hint = "go on from its URL (s3://bucket/prefix/RUN_ID); `gpucost gc` finds what it left"
            raise Unreadable(said, hint=hint)
        run = replace(opened(first), results_dir=self._folder.results_dir(first.results_dir))
        for number, event in enumerate(history[1:], 1):
            run = follow(run, event, f"{self._folder.journal.path} line {number + 1}")
            if number >= self._told and not silent:
                self._context.report(Happened(event, run))
        self._told = len(history)
        self._tell_status(run)
        return run

    def _tell_status(self, run: Run) -> None:
        status = self._folder.last_status()
        if status is None or status.at == self._beat or run.lease is None or status.lease_id != run.lease.lease_id:
            return
        self._beat = status.at
        self._context.report(Beat(run, status, usd_now(run, self._context)))

    def until_left(self, seconds: float) -> bool:
        """Tell what is new until no launcher of this machine drives the run; whether that came within `seconds`."""
        give_up = self._context.clock.monotonic() + seconds
        while self._folder.journal.writer() is not None:
            if self._context.clock.monotonic() >= give_up:
                return False
            self.look()
            self._context.clock.sleep(LOOK_SECONDS)
        self.look()
        return True
