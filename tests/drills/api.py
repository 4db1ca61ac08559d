"""The cloud's API fails: each call that a run makes, one at a time, in each of the ways in which APIs fail.

Which calls there are is taken from a run that nothing happens to. Every fault comes often enough in a row to outlast
the retries of the SDK, so that gpucost itself has to deal with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from drills.result import Drill
from drills.scene import Scene
from launcher import sandbox
from launcher.sandbox import FaultPlan

EPOCHS = 4
_CONTROL_TRIES = 2
_STORE_TRIES = 5
"""How often the SDK tries a call by itself: see `launcher/providers/aws/account.py` and `remote/transfer/s3.py`."""
_OBJECTS = {
    "data": r".*/data/.*",
    "journal": r".*/journal/.*",
    "beat": r".*/launcher\.json",
    "checkpoint": r".*/checkpoints/.*\.pt",
    "manifest": r".*/checkpoints/.*\.json",
    "result": r".*/artifacts.*",
    "word": r".*/leases/.*",
    "object": r".*",
}
"""What an object is, by its key: the first that fits."""


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of call."""

    action: str
    what: str = ""
    """Which objects, for a call to the object store; empty: a call of the control plane, or of a whole bucket."""

    @property
    def name(self) -> str:
        """As the table says it."""
        return f"{self.action}-{self.what}" if self.what else self.action


@dataclass(frozen=True, slots=True)
class Fault:
    """A way to fail."""

    name: str
    code: str
    status: int = 500
    after: bool = False


FAULTS = (
    Fault("500", "InternalError", 500),
    Fault("503", "ServiceUnavailable", 503),
    Fault("throttled", "RequestLimitExceeded", 503),
    Fault("reset", "RESET"),
    Fault("answer-lost", "RESET", after=True),
)
STORE_FAULTS = (Fault("slow-down", "SlowDown", 503), Fault("answer-lost", "RESET", after=True))


@dataclass(slots=True)
class Seen:
    """What the undisturbed run asked of the cloud."""

    targets: list[Target] = field(default_factory=list)


def drills() -> Iterator[Drill]:
    """First the run that tells which calls there are, then one for each kind of call and fault."""
    seen = Seen()
    yield Drill("api/clean", "nothing", partial(_clean, seen=seen))
    for target in seen.targets:
        for fault in STORE_FAULTS if _is_store(target) else FAULTS:
            play = partial(_faulty, target=target, fault=fault)
            yield Drill(f"api/{target.name}/{fault.name}", f"{target.name}: {fault.name}", play)


def _clean(scene: Scene, seen: Seen) -> None:
    scene.expect_code(scene.train(epochs=EPOCHS), 0)
    seen.targets = list(dict.fromkeys(map(_target, scene.calls())))
    scene.remark(f"{len(seen.targets)} kinds of calls: {', '.join(target.name for target in seen.targets)}")


def _target(call: str) -> Target:
    action, _, key = call.partition(" ")
    what = next((name for name, pattern in _OBJECTS.items() if re.fullmatch(pattern, key)), "") if key else ""
    return Target(action, what)


def _is_store(target: Target) -> bool:
    return bool(target.what) or target.action in {"ListObjectsV2", "HeadBucket"}


def _faulty(scene: Scene, target: Target, fault: Fault) -> None:
    tries = _STORE_TRIES if _is_store(target) else _CONTROL_TRIES
    key = _OBJECTS[target.what] if target.what else None
    plan = FaultPlan(
        re.escape(target.action), code=fault.code, status=fault.status, times=tries, after=fault.after, key=key
    )
    scene.strike(lambda: sandbox.inject(scene.home, plan))
    try:
        launcher = scene.train(epochs=EPOCHS)
        scene.expect_code(launcher, None)
    finally:
        sandbox.clear_faults(scene.home)
    if scene.outcome() == "done":
        return
    scene.remark(f"first {scene.outcome() or 'no run'} ({launcher.process.returncode})")
    if scene.run_id:
        scene.command("resume")
    else:
        scene.expect_code(scene.train(epochs=EPOCHS), 0)
