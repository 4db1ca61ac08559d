"""One drill's stage: a home and a folder of its own, an embedded cloud, a job, and eyes on all of it.

A play starts the launcher here, strikes, and brings the run to an end; what must hold then is in `checks`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from cli_process import Launcher, User

from drills import progress
from drills.ground import Ground
from drills.noting import noted_calls
from drills.progress import Progress
from drills.truth import Truth

NAME = "drill"
_JOB = """\
name: {name}
data: {data}
model: yolov9-t
epochs: {epochs}
image_size: 64
batch: 8
market: spot
disk: 20GiB
budget: {budget}
trainer: {{device: cpu, threads: 1, workers: 0, checkpoint_seconds: 5}}
"""
BUDGET_USD = "1"
COMMAND_SECONDS = 240
_SLOW_PLAN = "2"
"""Images per second that the plan is told: the truth is higher, so the estimate's deadline stays out of the way."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Strike:
    """The moment of the accident."""

    at: float
    """Unix seconds."""
    stored: int
    """Step of the newest checkpoint that was complete in the bucket; 0: none."""


class Scene:
    """The stage of one drill."""

    def __init__(self, folder: Path, pictures: Path, ground: type[Ground]) -> None:
        self._pictures = pictures
        self.user = User(folder, GPUCOST_SANDBOX_IMAGES_PER_SECOND=_SLOW_PLAN)
        self.home = self.user.home
        self.home.mkdir()
        self.epochs = 0
        self.accident: Strike | None = None
        self.remarks: list[str] = []
        self._launchers: list[Launcher] = []
        self.faults: list[str] = []
        self.spoilt: int | None = None
        """Step of the checkpoint that the play spoilt: a resume goes back behind it."""
        self.ground = ground(self.home)
        self.ground.start()
        self.user.run("sandbox", "up")
        self.truth = Truth(self.home)
        self._own_calls = len(noted_calls(self.home).read_text().splitlines())
        self.progress = Progress(self.ground.paths.instances)

    # -- the launcher ---------------------------------------------------------------------------------------------

    def train(self, *more: str, epochs: int, speed: str = _SLOW_PLAN) -> Launcher:
        """Start `gpucost train` on the job; `speed` is what the plan believes."""
        self.epochs = epochs
        job = self.user.folder / "job.yaml"
        job.write_text(_JOB.format(name=NAME, data=self._pictures, epochs=epochs, budget=BUDGET_USD))
        argv = ("train", str(job), "--cloud", "sandbox", "--yes", *more)
        return self._keep(self.user.start(*argv, GPUCOST_SANDBOX_IMAGES_PER_SECOND=speed))

    def command(self, *argv: str, code: int | None = 0) -> Launcher:
        """Run a command to its end; an exit code other than `code` is a fault (None: any will do)."""
        done = self._keep(self.user.start(*argv))
        self.expect_code(done, code, f"`gpucost {argv[0]}`")
        return done

    def _keep(self, launcher: Launcher) -> Launcher:
        self._launchers.append(launcher)
        return launcher

    def expect_code(self, launcher: Launcher, code: int | None, words: str = "the launcher") -> None:
        """Wait for a launcher's end; another exit code is a fault, told with its last lines."""
        found = launcher.end(COMMAND_SECONDS)
        if code is not None and found != code:
            self.faults.append(f"{words} ended with {found}, not {code}: {' / '.join(launcher.lines[-3:])[:600]}")

    # -- what is to be seen ---------------------------------------------------------------------------------------

    def records(self) -> list[dict[str, Any]]:
        """The journal of the one run; a line that is being written does not count."""
        lines = [line for path in self.home.glob("runs/*/journal.jsonl") for line in path.read_text().split("\n")[:-1]]
        return [json.loads(line) for line in lines]

    def calls(self) -> list[str]:
        """Every call that the cloud was asked, in order; those of the stage itself are before the first."""
        return noted_calls(self.home).read_text().splitlines()[self._own_calls :]

    @property
    def run_id(self) -> str:
        """The one run's id; empty before there is one."""
        return next((path.parent.name for path in self.home.glob("runs/*/journal.jsonl")), "")

    def journal_lines(self) -> int:
        """How many records the journal has; quicker than reading them."""
        return sum(path.read_bytes().count(b"\n") for path in self.home.glob("runs/*/journal.jsonl"))

    def outcome(self) -> str:
        """How the run ended, by its journal; empty while it has not."""
        last = self.records()[-1:]
        return str(last[0]["event"]["outcome"]) if last and last[0]["type"] == "Settled" else ""

    def count(self, kind: str) -> int:
        """How many records of a kind the journal has."""
        return sum(record["type"] == kind for record in self.records())

    def wait_for(self, words: str, look: Callable[[], Value], seconds: float = 120) -> Value:
        """The first true value of `look`. Raises AssertionError after a while."""
        limit = time.monotonic() + seconds
        while not (value := look()):
            assert time.monotonic() < limit, f"waited {seconds:g} s for {words}; journal: {self._kinds()}"
            time.sleep(0.05)
        return value

    def wait_record(self, kind: str, number: int = 1, seconds: float = 120) -> None:
        """Wait for the journal's `number`-th record of a kind."""
        self.wait_for(f"{kind} {number}", lambda: self.count(kind) >= number, seconds)

    def wait_training(self) -> None:
        """Wait until a checkpoint is safe and training has gone on from it."""
        self.wait_record("CheckpointSynced")
        stored = self.stored()
        self.wait_for(f"a step after {stored}", lambda: self.progress.reached() > stored)

    def wait_gone(self, seconds: float) -> float:
        """Wait until the provider says that nothing runs; how long that took."""
        started = time.monotonic()
        self.wait_for("the end of the machine", lambda: not self.truth.living(), seconds)
        return time.monotonic() - started

    def deadline(self) -> float:
        """Until when the newest lease may live, in Unix seconds."""
        asked = [record for record in self.records() if record["type"] == "LaunchRequested"]
        return datetime.fromisoformat(asked[-1]["event"]["lease"]["deadline"]).timestamp()

    def stored(self) -> int:
        """Step of the newest complete checkpoint in the bucket; 0: none."""
        return max(self.truth.stored_steps(self.run_id), default=0)

    def _kinds(self) -> str:
        return " ".join(record["type"] for record in self.records())

    # -- the accident ---------------------------------------------------------------------------------------------

    def strike(self, act: Callable[[], object]) -> None:
        """The accident: what is lost and paid is counted from this moment."""
        at = time.time()
        act()
        self.accident = Strike(at, self.stored() if self.run_id else 0)

    def began_after_strike(self) -> int | None:
        """The step that the first training after the accident began with."""
        assert self.accident is not None
        anew = progress.restarts(self.progress.samples, self.accident.at)
        return progress.began_at(anew[0][1]) if anew else None

    def remark(self, words: str) -> None:
        """Say something in the outcome's column."""
        self.remarks.append(words)

    def keep_words(self) -> None:
        """Write down what the launchers said, and what the trainer's machine did, for whoever looks into a fault."""
        for number, launcher in enumerate(self._launchers):
            (self.user.folder / f"launcher-{number}.txt").write_text(launcher.text)
        (self.user.folder / "calls.txt").write_text("\n".join(self.calls()))

    def close(self) -> list[str]:
        """End everything; what was left although nothing should be."""
        self.progress.close()
        self.user.leave()
        self.user.run("sandbox", "down", "--force", seconds=120)
        return self.ground.end()
