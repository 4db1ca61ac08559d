"""The launcher dies right after a record of its journal, one run for each; then `resume`, or `stop`, ends the run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from cli_process import Launcher

from drills.result import Drill
from drills.scene import Scene

EPOCHS = 20
_LOOK_SECONDS = 0.001
_MOST_RECORDS = 40


@dataclass(slots=True)
class Reach:
    """How far the series came."""

    over: bool = False
    """A run ended before it had the record that the launcher was to die after."""


def drills() -> Iterator[Drill]:
    """One for each record that a run has; the last of them ends undisturbed."""
    reach, number = Reach(), 0
    while not reach.over and number < _MOST_RECORDS:
        number += 1
        verb = "resume" if number % 2 else "stop"
        done = f"launcher killed after record {number}; `{verb}`"
        yield Drill(f"records/{number:02}", done, partial(_play, number=number, verb=verb, reach=reach))


def _play(scene: Scene, number: int, verb: str, reach: Reach) -> None:
    launcher = scene.train(epochs=EPOCHS)
    if not _wait_record(scene, launcher, number):
        reach.over = True
        scene.remark("it had no such record")
        scene.expect_code(launcher, 0)
        return
    kinds = [record["type"] for record in scene.records()]
    scene.remark(f"after {kinds[number - 1]}")
    scene.expect_code(launcher, None)
    scene.command(verb, code=None)
    expected = {"done"} if verb == "resume" else {"done", "cancelled"}
    if scene.outcome() not in expected:
        scene.faults.append(f"the run ended as {scene.outcome()!r}")


def _wait_record(scene: Scene, launcher: Launcher, number: int) -> bool:
    """Kill the launcher as soon as its journal has so many records; whether it came to that."""
    while launcher.process.poll() is None:
        if scene.journal_lines() >= number:
            scene.strike(launcher.process.kill)
            return True
        time.sleep(_LOOK_SECONDS)
    return False
