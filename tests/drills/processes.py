"""Programs of a machine that die, checkpoints that rot, disks that fill."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cli_process import Launcher

from drills.result import Drill
from drills.scene import Scene
from drills.vm.network import run

EPOCHS = 60
LONG = 150
"""Epochs for the time between two checkpoints, and some more."""
DISK_SIZE = "700m"
_REST_BYTES = 65536
"""Left free on a full disk: a file system without any room is another accident."""


def _begin(scene: Scene, epochs: int = EPOCHS) -> Launcher:
    launcher = scene.train(epochs=epochs)
    scene.wait_training()
    return launcher


def _kill_one(scene: Scene, words: str) -> None:
    """One program gets SIGKILL in the middle of the training; the run ends as if nothing had been."""
    launcher = _begin(scene)
    machine = scene.truth.instance()
    scene.strike(lambda: scene.ground.kill(machine, words))
    scene.expect_code(launcher, 0)


def _kill_staging(scene: Scene) -> None:
    """The program that brings the data gets SIGKILL."""
    launcher = scene.train(epochs=10)
    scene.wait_record("InstanceReady")
    machine = scene.truth.instance()
    scene.strike(lambda: scene.ground.kill(machine, "remote.transfer stage"))
    scene.expect_code(launcher, 0)


def _kill_final_sync(scene: Scene) -> None:
    """The program that stores the results gets SIGKILL at the end of the training."""
    launcher = scene.train(epochs=10)
    scene.wait_record("DataStaged")
    machine = scene.truth.instance()

    def request() -> bool:
        return any((lease / "transfer/final.request").exists() for lease in scene.ground.leases(machine.instance_id))

    scene.wait_for("the last pass of the upload", request)
    scene.strike(lambda: scene.ground.kill(machine, "remote.transfer sync"))
    scene.expect_code(launcher, 0)


def _asleep(scene: Scene, epochs: int, seconds: float) -> None:
    """The launcher's computer sleeps: its process stands still, and its connections are old when it wakes."""
    launcher = _begin(scene, epochs)

    def sleep() -> None:
        launcher.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        launcher.process.send_signal(signal.SIGCONT)

    scene.strike(sleep)
    scene.expect_code(launcher, 0)


def _cloud_silent(scene: Scene) -> None:
    """The cloud's API and its object store take requests and answer none for 45 s."""
    launcher = _begin(scene, LONG)

    def hang() -> None:
        with scene.ground.silent():
            time.sleep(45)

    scene.strike(hang)
    scene.expect_code(launcher, 0)


def _spoil_newest(scene: Scene, spoil: Callable[[bytes], bytes], suffix: str) -> None:
    """A stopped run's newest checkpoint rots in the bucket before it is resumed: the one before it is taken."""
    launcher = _begin(scene, LONG)
    scene.wait_for("two checkpoints in the bucket", lambda: len(scene.truth.stored_steps(scene.run_id)) >= 2)
    launcher.signal(signal.SIGINT)
    scene.expect_code(launcher, 130)
    steps = scene.truth.stored_steps(scene.run_id)
    assert len(steps) >= 2, f"only the checkpoints {steps} are in the bucket"
    _rewrite(scene, steps[-1], suffix, spoil)
    scene.strike(lambda: None)
    scene.spoilt = steps[-1]
    scene.command("resume")
    began = scene.began_after_strike()
    scene.remark(f"went on from step {began}, {steps[-1]} was spoilt, {steps[-2]} was the one before")
    if began != steps[-2]:
        scene.faults.append(f"training went on from step {began}, not from {steps[-2]}")


def _rewrite(scene: Scene, step: int, suffix: str, spoil: Callable[[bytes], bytes]) -> None:
    store, bucket = scene.truth.s3(), scene.truth.info.bucket
    names = [key for key in scene.truth.objects(scene.run_id) if "/checkpoints/" in key and key.endswith(suffix)]
    key = next(name for name in names if int(name.rpartition("/")[2].partition("-")[0]) == step)
    content = store.get_object(Bucket=bucket, Key=key)["Body"].read()
    store.put_object(Bucket=bucket, Key=key, Body=spoil(content))


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _full_disk(scene: Scene) -> None:
    """The disk fills while training: what was stored before is enough to go on from, on another machine."""
    with _small_disk(scene) as disk:
        launcher = _begin(scene)
        scene.strike(lambda: _fill(disk))
        scene.expect_code(launcher, None)
        scene.remark(f"on the full disk: {scene.outcome()}")
        (disk / "filler").unlink()
        if scene.outcome() != "done":
            scene.command("resume")


@contextmanager
def _small_disk(scene: Scene) -> Iterator[Path]:
    """All instances of the embedded cloud on one small file system. Raises AssertionError where that takes root."""
    assert os.geteuid() == 0, "a disk of its own for the machine needs root"
    folder = scene.ground.paths.instances
    run("mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE},mode=711", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        run("umount", "-l", str(folder))


def _fill(disk: Path) -> None:
    room = os.statvfs(disk)
    with (disk / "filler").open("wb") as out:
        os.posix_fallocate(out.fileno(), 0, room.f_bavail * room.f_frsize - _REST_BYTES)


DRILLS = (
    Drill("processes/agent", "agent killed while training", partial(_kill_one, words="remote.agent")),
    Drill("processes/trainer", "trainer killed while training", partial(_kill_one, words="remote.yolov9")),
    Drill("processes/sync", "upload killed while training", partial(_kill_one, words="remote.transfer sync")),
    Drill("processes/stage", "download of the data killed", _kill_staging),
    Drill("processes/last-sync", "last upload killed", _kill_final_sync),
    Drill(
        "processes/asleep",
        "launcher stands still for 30 s while training",
        partial(_asleep, epochs=LONG, seconds=30),
    ),
    Drill(
        "processes/asleep-past-end",
        "launcher stands still for 100 s, over the end of the training",
        partial(_asleep, epochs=EPOCHS, seconds=100),
    ),
    Drill("processes/cloud-silent", "API and bucket answer nothing for 45 s while training", _cloud_silent),
    Drill(
        "processes/rot-flipped",
        "one byte of the newest checkpoint flipped before `resume`",
        partial(_spoil_newest, spoil=_flipped, suffix=".pt"),
    ),
    Drill(
        "processes/rot-short",
        "newest checkpoint cut to half before `resume`",
        partial(_spoil_newest, spoil=_half, suffix=".pt"),
    ),
    Drill(
        "processes/rot-manifest",
        "manifest of the newest checkpoint cut to half before `resume`",
        partial(_spoil_newest, spoil=_half, suffix=".json"),
    ),
    Drill("processes/full-disk", "disk full while training; `resume`", _full_disk),
)
