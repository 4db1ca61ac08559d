"""When a real training saves, that it does not wait for the disk, and what a full disk or a kill leaves behind."""

import errno
import logging
import random
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import (
    ROOT,
    STEPS,
    StopAfter,
    assert_same,
    command,
    last,
    rows,
    start,
    train,
    weights,
)

from remote import protocol
from remote.protocol import EXIT_DONE, TaskProgress
from remote.yolov9 import checkpoint, engine, interval, snapshot
from remote.yolov9.engine import Ending
from remote.yolov9.run import Run
from remote.yolov9.writer import Writer

pytestmark = pytest.mark.usefixtures("one_thread")

Config = Callable[..., dict[str, Any]]
WAIT = 60.0


class Saves:
    """`checkpoint.save` with a log of what last.pt was at each of them."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def __call__(self, path: Path, state: Mapping[str, Any], *, keep_previous: bool = False) -> None:
        checkpoint.save(path, state, keep_previous=keep_previous)
        if path.name == "last.pt":
            self.steps.append(state["epoch"] * STEPS + state["step"])


class SlowDisk(Saves):
    """Writes of last.pt begin, and go on only when `released`."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.begun = threading.Event()

    def __call__(self, path: Path, state: Mapping[str, Any], *, keep_previous: bool = False) -> None:
        if path.name == "last.pt":
            self.begun.set()
            assert self.released.wait(WAIT)
        super().__call__(path, state, keep_previous=keep_previous)


class ReleaseAndStop(StopAfter):
    """Lets the disk go on when so many batches are done, and asks to stop."""

    def __init__(self, batches: int, disk: SlowDisk) -> None:
        super().__init__(batches)
        self._disk = disk
        self.batches_before_the_disk = 0

    @property
    def requested(self) -> bool:  # type: ignore[override]
        asked = StopAfter.requested.fget(self)  # type: ignore[attr-defined]
        if asked and not self._disk.released.is_set():
            assert self._disk.begun.wait(WAIT)
            assert self._disk.steps == []
            self.batches_before_the_disk = self.run.batches_done if self.run else 0
            self._disk.released.set()
        return bool(asked)


def with_disk(run: Run, disk: Saves) -> Run:
    run.writer = Writer(disk)
    return run


def progress(raw: dict[str, Any]) -> TaskProgress:
    return protocol.read(Path(raw["output"]) / "progress.json", TaskProgress)


# -- when ----------------------------------------------------------------------------------------------------------


def test_short_epochs_save_the_first_and_the_last_and_none_between(config):
    raw, disk = config(epochs=4), Saves()
    assert engine.fit(with_disk(start(raw), disk)) is Ending.DONE
    assert disk.steps == [STEPS, 4 * STEPS]
    assert len(rows(raw)) == 4
    assert weights(raw, "best.pt").exists()
    assert progress(raw).checkpoint_seconds == interval.CEILING_SECONDS
    assert progress(raw).resumed_step is None
    assert (progress(raw).saved_step, progress(raw).saved_epoch) == (4 * STEPS, 4)


def test_a_request_to_save_is_met_at_the_next_step_once_and_training_goes_on(config):
    raw, disk = config(epochs=4), Saves()
    run = with_disk(start(raw), disk)
    told = run.reporter.stepped

    def ask(done: int, batch: int) -> None:
        told(done, batch)
        if done == STEPS + 2:
            run.writer.wait()  # the save of the first epoch
            run.paths.save_request.touch()

    run.reporter.stepped = ask  # type: ignore[method-assign]
    assert engine.fit(run) is Ending.DONE
    assert disk.steps == [STEPS, STEPS + 2, 4 * STEPS]
    assert not run.paths.save_request.exists()


def test_an_early_stop_is_saved_as_the_last_epoch(config):
    raw, disk = config(epochs=6, patience=1, hyp={"lr0": 0.0}), Saves()
    assert engine.fit(with_disk(start(raw), disk)) is Ending.DONE
    assert disk.steps[-1] == len(rows(raw)) * STEPS < 6 * STEPS


def test_the_end_of_an_epoch_that_is_not_saved_is_trained_again_to_the_same_rows(config):
    """A kill in the third epoch goes back to the end of the first: files that were ahead become the checkpoint's."""
    whole, killed = config("whole", epochs=4), config("killed", epochs=4)
    engine.fit(start(whole))
    run = start(killed, stop_after=2 * STEPS + 1)
    disk = Saves()
    run.writer = Writer(lambda path, state, **options: None if disk.steps else disk(path, state, **options))
    assert engine.fit(run) is Ending.INTERRUPTED
    assert (disk.steps, len(rows(killed)), progress(killed).epoch) == ([STEPS], 2, 2)
    again = start(killed)
    assert again.batches_done == STEPS
    assert len(rows(killed)) == 1
    assert (progress(killed).epoch, progress(killed).step, progress(killed).resumed_step) == (1, STEPS, STEPS)
    assert (progress(killed).saved_epoch, progress(killed).saved_step) == (1, STEPS)
    assert engine.fit(again) is Ending.DONE
    assert rows(killed) == rows(whole)
    assert_same(last(killed), last(whole))
    assert progress(killed).resumed_step == STEPS


def test_an_interrupted_run_leaves_progress_of_the_step_that_it_saved(config):
    """Whoever uploads the checkpoint takes its step from there."""
    raw = config()
    engine.fit(start(raw, stop_after=STEPS + 2))
    assert (progress(raw).epoch, progress(raw).step) == (1, STEPS + 2)
    assert (progress(raw).saved_epoch, progress(raw).saved_step) == (1, STEPS + 2)


def test_a_high_hazard_brings_checkpoints_to_the_floor_and_it_is_told(config):
    raw = config(hazard_per_hour=50.0)
    engine.fit(start(raw))
    assert interval.FLOOR_SECONDS <= progress(raw).checkpoint_seconds < interval.CEILING_SECONDS
    told = config("told", checkpoint_seconds=7.5, hazard_per_hour=50.0)
    engine.fit(start(told))
    assert progress(told).checkpoint_seconds == 7.5


# -- beside the training -------------------------------------------------------------------------------------------


def test_a_slow_disk_holds_up_no_step_and_an_interruption_waits_for_it(config):
    whole, raw, disk = config("whole"), config("slow", checkpoint_seconds=0), SlowDisk()
    engine.fit(start(whole))
    stop = ReleaseAndStop(5, disk)
    assert engine.fit(with_disk(start(raw, stop), disk)) is Ending.INTERRUPTED
    assert stop.batches_before_the_disk == 5, "the first write was still under way"
    assert disk.steps == [1, 5], "one write at a time, none piled up, and the last one in place"
    early = config("early")
    engine.fit(start(early, stop_after=1))
    before = {"format": checkpoint.FORMAT, **checkpoint.load(checkpoint.previous(weights(raw)))}
    assert_same(before, last(early), "as it was when it was taken")
    resumed = start(raw)
    assert resumed.batches_done == 5
    engine.fit(resumed)
    assert_same(last(raw), last(whole))
    assert rows(raw) == rows(whole)


def test_two_quick_saves_are_one_write_and_the_second_stays_due(config):
    run, disk = start(config(), stop_after=1), SlowDisk()
    with_disk(run, disk)
    for _ in range(2):
        run.pace.hurry()
        snapshot.save_if_due(run)
    assert run.pace.due(time.monotonic())
    disk.released.set()
    run.writer.wait()
    assert disk.steps == [0]
    snapshot.save_if_due(run)
    run.writer.wait()
    assert disk.steps == [0, 0]


def test_progress_tells_the_step_that_is_on_the_disk_and_not_the_one_under_way(config):
    """A checkpoint in the storage goes by that step: a later one would outrank what really is further."""
    raw, disk = config(), SlowDisk()
    run = with_disk(start(raw, stop_after=3), disk)
    run.state.epoch, run.state.step = 1, 2
    run.pace.hurry()
    snapshot.save_if_due(run)
    assert disk.begun.wait(WAIT)
    run.reporter.finish()
    assert (progress(raw).saved_epoch, progress(raw).saved_step) == (0, 0)
    disk.released.set()
    run.writer.wait()
    run.reporter.finish()
    assert (progress(raw).saved_epoch, progress(raw).saved_step) == (1, STEPS + 2)


def test_weights_that_are_not_finite_never_get_over_a_good_checkpoint(config):
    run, disk = start(config()), Saves()
    with_disk(run, disk)
    next(iter(run.model.parameters())).data[:] = torch.nan
    run.pace.hurry()
    for save in (snapshot.save_if_due, snapshot.save_last):
        with pytest.raises(snapshot.NonFiniteLoss, match="the weights are not finite at epoch 1"):
            save(run)
    assert disk.steps == []


# -- a full disk ---------------------------------------------------------------------------------------------------


class FullDisk(Saves):
    """Has no room for so many writes of one file."""

    def __init__(self, failures: int, name: str = "last.pt") -> None:
        super().__init__()
        self._failures = failures
        self._name = name

    def __call__(self, path: Path, state: Mapping[str, Any], *, keep_previous: bool = False) -> None:
        if path.name == self._name and self._failures:
            self._failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().__call__(path, state, keep_previous=keep_previous)


def test_a_full_disk_is_said_each_time_and_the_training_goes_on(config, caplog):
    whole, raw, disk = config("whole"), config("full", checkpoint_seconds=0), FullDisk(2)
    engine.fit(start(whole))
    with caplog.at_level(logging.WARNING, "yolov9"):
        assert engine.fit(with_disk(start(raw), disk)) is Ending.DONE
    said = [message for message in caplog.messages if "cannot be written" in message]
    assert len(said) == 2
    assert "2 failures in a row" in said[1]
    assert_same(last(raw), last(whole))


def test_best_weights_that_had_no_room_are_written_at_the_end(config):
    raw = config(epochs=2, hyp={"lr0": 0.0})  # the first epoch stays the best
    assert engine.fit(with_disk(start(raw), FullDisk(1, "best.pt"))) is Ending.DONE
    assert checkpoint.load(weights(raw, "best.pt"))["epoch"] == 0


def test_a_disk_that_is_still_full_at_the_end_is_an_error(config):
    with pytest.raises(OSError, match="No space left"):
        engine.fit(with_disk(start(config(checkpoint_seconds=0)), FullDisk(10**6)))


@pytest.fixture
def small_files() -> Iterator[None]:
    """The system refuses files over 1 MiB, as a full disk does: in the middle of a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_breaks_off_is_an_os_error_and_gives_its_space_back(tmp_path, small_files):
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"n": 1})
    with pytest.raises(OSError, match="File too large"):
        checkpoint.save(path, {"n": 2, "weights": torch.zeros(2**20)}, keep_previous=True)
    assert checkpoint.load(path) == {"n": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["last.pt"]


def test_a_really_full_disk_leaves_the_last_good_checkpoint(tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(room)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    try:
        writer, path = Writer(), room / "last.pt"
        for size in (2**17, 2**18, 2**19, 2**20):  # 0.5, 1, 2 and 4 MiB: the third has no room beside the first two
            writer.write(path, {"size": size, "weights": torch.zeros(size)}, keep_previous=True)
            writer.wait()
        assert writer.failed(path)
        assert checkpoint.load(path)["size"] == 2**18
        assert checkpoint.load(checkpoint.previous(path))["size"] == 2**17
        assert {file.name for file in room.iterdir()} == {"last.pt", "last.previous.pt"}
    finally:
        subprocess.run(["umount", str(room)], check=True)


# -- kills ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_two_checkpoints_and_a_run_that_resumes_to_the_same_end(config, tmp_path):
    epochs = 8
    whole, killed = config("whole", epochs=epochs), config("killed", epochs=epochs, checkpoint_seconds=0)
    chance = random.Random(0)  # noqa: S311
    before = 0
    for _ in range(4):
        process = subprocess.Popen(command(killed, tmp_path), cwd=ROOT, stderr=subprocess.PIPE, text=True)
        wait_until_saved(killed, process)
        time.sleep(chance.uniform(0, 0.7))
        process.kill()
        _, errors = process.communicate(timeout=WAIT)
        assert process.returncode in (-signal.SIGKILL, EXIT_DONE), errors
        assert "warning" not in errors
        found, faults = checkpoint.load_newest(weights(killed))
        assert faults == {}
        assert found is not None
        step = found["epoch"] * STEPS + found["step"]
        assert step >= before
        before = step
        checkpoint.load(weights(killed, "last.previous.pt"))
    done = train(killed, tmp_path)
    assert done.returncode == EXIT_DONE, done.stderr
    assert train(whole, tmp_path).returncode == EXIT_DONE
    assert_same(last(killed), last(whole))
    assert rows(killed) == rows(whole)


def wait_until_saved(raw: dict[str, Any], process: subprocess.Popen[str]) -> None:
    """Until this process has saved, and there is one checkpoint more to fall back on."""
    path, began = weights(raw), time.time()
    give_up = time.monotonic() + WAIT
    while process.poll() is None and time.monotonic() < give_up:
        saved = path.exists() and path.stat().st_mtime > began
        if saved and checkpoint.previous(path).exists():
            return
        time.sleep(0.01)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_saves_beside_the_training_and_resumes_where_it_was(config):
    """What the processor alone cannot show: copies through pinned memory, and states that go back to the GPU."""
    raw, disk = config(epochs=3, device="cuda", checkpoint_seconds=0, workers=2), Saves()
    assert engine.fit(with_disk(start(raw, stop_after=STEPS + 1), disk)) is Ending.INTERRUPTED
    assert disk.steps[-1] == STEPS + 1
    run = start(raw)
    assert run.batches_done == STEPS + 1
    assert {tensor.device.type for tensor in run.model.state_dict().values()} == {"cuda"}
    assert engine.fit(run) is Ending.DONE
    assert [row["epoch"] for row in rows(raw)] == ["0", "1", "2"]
