"""The fakes of the agent, and one lease on them whose parts a test changes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from agent_ports import CHECKPOINT, FakeChild, FakeClock, FakePrograms, MachineGone

from remote import protocol
from remote.agent.forward import ForwardClock
from remote.agent.processes import Answer
from remote.agent.supervise import Ports, Supervisor
from remote.protocol import (
    AgentJob,
    AgentStatus,
    DataSpec,
    LeasePaths,
    Reason,
    StopCommand,
    StorageSpec,
    TaskProgress,
    TaskSpec,
    TransferOutcome,
)


@dataclass
class FakeNotices:
    """Announcements that a test makes."""

    notice: dict[str, str] | None = None
    likely: str | None = None
    broken: Exception | None = None

    def preemption(self) -> dict[str, str] | None:
        if self.broken is not None:
            raise self.broken
        return self.notice

    def rebalance(self) -> str | None:
        return self.likely


@dataclass
class Lease:
    """One lease. By default: staging takes 3 s, each training 20 s, the last sync 2 s, and nobody watches."""

    paths: LeasePaths
    job: AgentJob
    clock: FakeClock = field(default_factory=FakeClock)
    notices: FakeNotices = field(default_factory=FakeNotices)

    def __post_init__(self) -> None:
        self.programs = FakePrograms(self.clock)
        self.programs.answers["poweroff"] = MachineGone()
        self.programs.plans = {
            "transfer/stage": [self.staging()],
            "transfer/sync": [self.syncing()],
            "transfer/outcome": [lambda child: child.ends_in(1)],
            "transfer/post": [self.posting()],
            "task/a": [self.training(20)],
        }
        self.statuses: list[AgentStatus] = []

    def supervisor(self) -> Supervisor:
        """As `remote.agent` puts one together."""
        ports = Ports(self.programs, ForwardClock(self.clock), self.notices)
        return Supervisor(self.job, self.paths, ports, pid=77)

    def run(self) -> AgentStatus:
        """Until the power-off; the last status."""
        with pytest.raises(MachineGone):
            self.supervisor().run()
        return self.status()

    def status(self) -> AgentStatus:
        return protocol.read(self.paths.status, AgentStatus)

    def stored_outcome(self) -> AgentStatus:
        return protocol.read(self.paths.outcome, AgentStatus)

    def watch(self, seconds: float) -> None:
        """A launcher shows itself `seconds` from the start."""

        def touch() -> None:
            self.paths.launcher_beat.touch()
            os.utime(self.paths.launcher_beat, (self.clock.time, self.clock.time))

        self.clock.at(seconds, touch)

    def ask_to_stop(self, seconds: float, reason: Reason = Reason.CANCELLED) -> None:
        """The launcher asks for a stop `seconds` from the start."""
        self.clock.at(seconds, lambda: protocol.write(self.paths.command, StopCommand(reason, self.clock.time)))

    def announce(self, seconds: float, left: float) -> None:
        """The provider announces at `seconds` that the machine goes `left` seconds later."""

        def say() -> None:
            gone = datetime.fromtimestamp(self.clock.time + left, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self.notices.notice = {"action": "terminate", "time": gone}

        self.clock.at(seconds, say)

    def staging(self, seconds: float = 3, code: int = 0, **outcome: object):
        said = {"ok": True, "final": True, "files": 3, "data": str(self.paths.data), **outcome}

        def plan(child: FakeChild) -> None:
            child.ends_in(seconds, code)
            child.on_end = lambda: protocol.write(self.paths.stage_outcome, TransferOutcome(**said))

        return plan

    def syncing(self, seconds: float = 2, code: int = 0, message: str = "", sent: int = 0):
        """It beats while it lives and ends `seconds` after the final request, having `sent` so many bytes."""

        def plan(child: FakeChild) -> None:
            def beat(now: float) -> None:
                ok = not message
                if self.paths.final_request.exists() and child.ends_at is None:
                    child.ends_in(seconds, code)
                outcome = TransferOutcome(ok=ok, message=message, bytes=sent, checkpoint=CHECKPOINT, at=now)
                protocol.write(self.paths.sync_outcome, outcome)

            child.on_poll = beat
            child.on_end = lambda: protocol.write(
                self.paths.sync_outcome,
                TransferOutcome(code == 0, message, final=True, bytes=sent, checkpoint=CHECKPOINT, at=self.clock.time),
            )

        return plan

    def posting(self, seconds: float = 0):
        """It ends `seconds` after the last status is on the disk."""

        def plan(child: FakeChild) -> None:
            def look(_now: float) -> None:
                if child.ends_at is None and self._said_that_it_ended():
                    child.ends_in(seconds)

            child.on_poll = look

        return plan

    def _said_that_it_ended(self) -> bool:
        try:
            return '"phase": "ended"' in self.paths.status.read_text()
        except FileNotFoundError:
            return False

    def training(
        self,
        seconds: float | None,
        code: int = 0,
        *,
        task: str = "a",
        steps_per_second: float = 2.0,
        save_seconds: float | None = 1.0,
        resumed_step: int | None = None,
    ):
        """It makes steps and ends after `seconds` (None: never) with `code`. It began with `resumed_step`."""

        def plan(child: FakeChild) -> None:
            began = self.clock.time
            child.save_seconds = save_seconds
            if seconds is not None:
                child.ends_in(seconds, code)

            def tell(now: float) -> None:
                done = int((now - began) * steps_per_second)
                told = now if steps_per_second else began
                step = done + (resumed_step or 0)
                progress = TaskProgress(0, 9, step, 900, 1.0, resumed_step=resumed_step, saved_step=0, at=told)
                protocol.write(self.paths.task(task).progress, progress)

            child.on_poll = tell

        return plan


def make_job(**changes: object) -> AgentJob:
    base = {
        "run_id": "run",
        "lease_id": "lease",
        "deadline": FakeClock().start + 3600,
        "python": ["py"],
        "storage": StorageSpec("s3://b/out", "us-east-1"),
        "data": DataSpec("s3://b/d.tar", files=3),
        "tasks": [TaskSpec("a", {"epochs": 9})],
        "poweroff": ["poweroff"],
        "save_reserve_seconds": 90.0,
        "linger_seconds": 0.0,
    }
    return AgentJob(**{**base, **changes})


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake hour has thousands of beats, and each puts a status on the disk."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture
def lease(tmp_path: Path):
    """A maker of leases: `lease(deadline=...)` changes the job."""
    return lambda **changes: Lease(LeasePaths(tmp_path), make_job(**changes))


@pytest.fixture
def answer():
    """A maker of command answers."""
    return lambda code, output="": Answer(code, output)


@pytest.fixture
def config_of(tmp_path: Path):
    """Reads the configuration that a task's trainer got."""
    return lambda task: json.loads(LeasePaths(tmp_path).task(task).config.read_text())
