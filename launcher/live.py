"""The live view of a run: one line that is rewritten on a terminal, a line now and then elsewhere. On stderr."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from typing import TextIO

from launcher.clock import Clock
from launcher.events import (
    Abandoned,
    ArtifactsSynced,
    Cancelled,
    CapacityRefused,
    CheckpointSynced,
    Claimed,
    CloudStopArmed,
    DataStaged,
    Event,
    InstanceCreated,
    InstanceReady,
    LaunchRequested,
    LeaseClosed,
    LimitsChanged,
    Preempted,
    PriceChanged,
    Replanned,
    RunOpened,
    Settled,
    StepFailed,
    TrainingExited,
)
from launcher.render import show_agent
from launcher.report import Beat, Happened, Note, Update
from launcher.run import Run
from launcher.stops import show_stops, stops_of, stops_while_training
from launcher.units import show_duration, show_usd
from remote.protocol import AgentStatus, Phase

_NARROW = 80
ETA_SECONDS = 60
"""The remaining time follows the speed of so long."""
_INDENT = " " * 10
QUIET_SECONDS = 15
"""Without a terminal: how far apart two progress lines are."""


class LiveView:
    """A `Reporter` for people. Once its terminal is gone it says nothing: a run must end all the same."""

    def __init__(self, out: TextIO, clock: Clock) -> None:
        self._out = out
        self._clock = clock
        self._terminal = out.isatty()
        self._gone = False
        self._open_line = False
        self._next = 0.0
        self._seen: deque[tuple[float, int]] = deque()
        self._last_note = ("", 0.0)
        self._reached: dict[str, tuple[str, int]] = {}
        """Lease and step of each task, as it was heard last."""

    def __call__(self, update: Update) -> None:
        """Show an update."""
        match update:
            case Happened(event=event, run=run):
                text = describe(event, run)
                if text:
                    self._line(f"{event.at:%H:%M:%S}  {text}")
            case Note(text=text):
                self._note(text)
            case Beat():
                self._beat(update)

    def _tell_lost(self, beat: Beat) -> None:
        """What another machine does again, once for each machine."""
        lease = beat.status.lease_id
        for task in beat.status.tasks:
            if task.progress is None:
                continue
            before, reached = self._reached.get(task.name, (lease, 0))
            begun = task.progress.resumed_step or 0
            if before != lease and reached > begun:
                self._note(f"{task.name} goes on from step {begun}: {reached - begun} steps are done again")
            self._reached[task.name] = (lease, task.progress.step)

    def _beat(self, beat: Beat) -> None:
        self._tell_lost(beat)
        now = self._clock.monotonic()
        if not self._terminal and now < self._next:
            return
        self._next = now + QUIET_SECONDS
        tail = f"  {_spent(beat.usd, beat.run)}{self._eta(beat.status)}"
        if self._terminal:
            width = self._width() - 1
            room = width - len(_INDENT) - len(tail)
            self._write("\r" + (_INDENT + show_agent(beat.status, room) + tail)[:width].ljust(width))
            self._open_line = True
        else:
            self._write(f"{_INDENT}{show_agent(beat.status)}{tail}\n")

    def _note(self, text: str) -> None:
        """The same words again say nothing new for a while."""
        now = self._clock.monotonic()
        last, at = self._last_note
        if text == last and now - at < QUIET_SECONDS:
            return
        self._last_note = (text, now)
        self._line(f"{self._clock.now():%H:%M:%S}  {text}")

    def _line(self, text: str) -> None:
        before = "\n" if self._open_line else ""
        self._open_line = False
        self._write(f"{before}{text}\n")

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or _NARROW  # some terminals say 0
        except OSError:
            return _NARROW

    def _write(self, text: str) -> None:
        if self._gone:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):  # the window was closed, the pipe has no reader, the file is closed
            self._gone = True

    def _eta(self, status: AgentStatus) -> str:
        """Remaining training time, from the steps of the last minute."""
        known = [task.progress for task in status.tasks if task.progress is not None]
        done, steps = sum(p.step for p in known), sum(p.steps for p in known)
        if status.phase is not Phase.TRAINING or not steps or len(known) < len(status.tasks):
            return ""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((status.at, done))
        while len(self._seen) > 2 and status.at - self._seen[0][0] > ETA_SECONDS:
            self._seen.popleft()
        elapsed, advanced = status.at - self._seen[0][0], done - self._seen[0][1]
        return f"  ETA {show_duration(elapsed / advanced * (steps - done))}" if advanced > 0 else ""


def _spent(usd: Decimal, run: Run) -> str:
    cap = f" of {show_usd(run.budget_usd)}" if run.budget_usd is not None else ""
    return f"{show_usd(usd)}{cap}"


def describe(event: Event, run: Run) -> str:
    """One line about an event; empty for those that need none."""
    maker = _WORDS.get(type(event))
    return maker(event, run) if maker else ""


def _launching(event: LaunchRequested) -> str:
    lease = event.lease
    offer = lease.selection.offer
    what = f"{offer.instance.name} {offer.capacity_type} in {offer.zone or offer.region}"
    return f"launching {what}; off by {lease.deadline:%F %T} UTC at the latest ({lease.deadline_basis})"


def _limits(event: LimitsChanged) -> str:
    budget = "no budget" if event.budget_usd is None else f"at most {show_usd(event.budget_usd)}"
    return budget if event.ends_by is None else f"{budget}, off by {event.ends_by:%F %T} UTC"


def _stops(event: CloudStopArmed, run: Run) -> str:
    """Which of the four stops of a machine are armed, and until when; the agent comes later."""
    if run.lease is None:
        return event.message
    said = "" if event.until is not None else event.message
    return show_stops(stops_of(run.lease, None, event.at, driven=True, cloud_said=said), run.lease.deadline)


def _staged(run: Run) -> str:
    armed = "" if run.lease is None else f"; {show_stops(stops_while_training(run.lease), run.lease.deadline)}"
    return f"data staged ({run.data_files or '?'} pictures), training{armed}"


def _opened(run: Run) -> str:
    """The run's name here, and the one by which any other machine knows it."""
    if run.opened.cloud == "sandbox":
        return f"run {run.run_id}"
    return f"run {run.run_id}; from any machine: gpucost status {run.url}"


_WORDS: dict[type[Event], Callable[..., str]] = {
    RunOpened: lambda _e, run: _opened(run),
    LaunchRequested: lambda e, _: _launching(e),
    Claimed: lambda e, _: f"driven by {e.launcher}",
    LimitsChanged: lambda e, _: f"new limits: {_limits(e)}; they hold at once, the machine's own stops keep their time",
    InstanceCreated: lambda e, _: f"machine {e.instance_id}",
    CloudStopArmed: _stops,
    PriceChanged: lambda e, _: f"the machine costs {e.change.usd_per_hour} USD an hour now",
    InstanceReady: lambda e, _: f"logged in at {e.address}, host key as on its console",
    DataStaged: lambda _e, run: _staged(run),
    CheckpointSynced: lambda e, _: (
        f"checkpoint of {e.checkpoint.task} is safe (epoch {e.checkpoint.epoch}, step {e.checkpoint.step})"
    ),
    TrainingExited: lambda e, _: f"training ended: {e.reason}{'; ' + e.message if e.message else ''}",
    ArtifactsSynced: lambda e, _: f"{e.files} result files are in the storage",
    CapacityRefused: lambda e, _: f"refused: {e.message}",
    Preempted: lambda e, _: f"preempted: {e.message}",
    Abandoned: lambda e, _: f"given up: {e.message}",
    StepFailed: lambda e, _: f"failed: {e.message}",
    Cancelled: lambda e, _: f"stopping: {e.message}; saving what was trained (a second signal skips that)",
    LeaseClosed: lambda e, _: (
        "confirmed: no machine of this lease exists"
        if e.entry is None
        else f"confirmed gone: {e.entry.billed_seconds} s billed, {show_usd(e.entry.usd)}"
    ),
    Replanned: lambda e, _: f"going on with {e.selection.offer.key}",
    Settled: lambda e, _: f"ended: {e.outcome}",
}
