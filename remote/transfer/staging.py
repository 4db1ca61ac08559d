"""Before training: the data set on the disk, and each task's newest whole checkpoints in place. Safe to run twice.

Owns `data/` of the lease folder until training starts. Knows the storage by `RemoteStore` alone.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from remote.dataset.archive import extract, find_root
from remote.dataset.pictures import SUFFIXES
from remote.protocol import AgentJob, Checkpoint, DataSpec, LeasePaths, StoredRun, TaskSpec, TransferOutcome
from remote.transfer.checkpoints import TaskCheckpoints, sha256
from remote.transfer.report import Report
from remote.transfer.store import RemoteStore, StoredObject, StoreError, StoreMissing

log = logging.getLogger(__name__)

DOWNLOADS = 8
SPARE_BYTES = 2**29
"""Left free on the disk, for checkpoints and logs at the least."""

OpenStore = Callable[[str], RemoteStore]
"""From a URL of a prefix."""


class StagingError(Exception):
    """The data set that came is not the one that was announced."""


@dataclass(frozen=True, slots=True)
class Staging:
    """What staging works with."""

    job: AgentJob
    paths: LeasePaths
    open_store: OpenStore
    report: Report


def stage(work: Staging) -> TransferOutcome:
    """Do it all. Raises StoreError, StagingError, DatasetError or OSError; what was complete by then is kept."""
    root = _data(work)
    pictures = count_pictures(root)
    expected = work.job.data.files
    if expected is not None and pictures < expected:
        raise StagingError(f"{root}: {pictures} pictures after staging, {expected} are expected")
    checkpoints, warnings = _checkpoints(work) if work.job.resume else ([], [])
    return TransferOutcome(
        ok=True,
        final=True,
        message="; ".join(warnings),
        files=pictures,
        checkpoint=max(checkpoints, key=lambda checkpoint: checkpoint.step, default=None),
        data=str(root),
        restored={checkpoint.task: checkpoint.step for checkpoint in checkpoints},
    )


def count_pictures(root: Path) -> int:
    """Files below `root` that are pictures by their suffix."""
    return sum(
        os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122 - a Path per file costs more than the count
        for _, _, names in os.walk(root)
        for name in names
    )


def _data(work: Staging) -> Path:
    """The root of the data set on the disk. Both ways make `data/` appear whole, so one that is there is complete."""
    data = work.paths.data
    if not (data.is_dir() and any(data.iterdir())):
        if work.job.data.url.endswith("/"):
            _copy_prefix(work, work.job.data.url, data)
        else:
            _unpack_archive(work, data)
    return find_root(data)


def _unpack_archive(work: Staging, data: Path) -> None:
    spec = work.job.data
    folder, _, name = spec.url.rpartition("/")
    archive = work.paths.transfer / f"archive-{name}"
    if not (archive.exists() and _problem(archive, spec) is None):
        work.open_store(folder).get(name, archive, work.report.moved)
    problem = _problem(archive, spec)
    if problem is not None:
        archive.unlink()
        raise StagingError(f"{spec.url}: {problem}")
    extract(archive, data)
    archive.unlink()


def _problem(archive: Path, spec: DataSpec) -> str | None:
    size = archive.stat().st_size
    if spec.size is not None and size != spec.size:
        return f"{size} bytes came, {spec.size} are expected"
    if spec.sha256 is not None and sha256(archive) != spec.sha256:
        return "its SHA-256 is not the expected one"
    return None


def _copy_prefix(work: Staging, url: str, data: Path) -> None:
    store = work.open_store(url.rstrip("/"))
    partial = data.with_name(f".{data.name}.partial")
    found = [(stored, partial / _inside(stored.key)) for stored in store.list("") if not stored.key.endswith("/")]
    if not found:
        raise StoreMissing(f"{url}: no objects below it")
    wanted = [(stored, target) for stored, target in found if not _is_there(stored, target)]
    _check_room(work, sum(stored.size for stored, _ in wanted), url)
    with ThreadPoolExecutor(DOWNLOADS) as pool:
        for _ in pool.map(lambda pair: store.get(pair[0].key, pair[1], work.report.moved), wanted):
            pass
    partial.replace(data)


def _check_room(work: Staging, size: int, url: str) -> None:
    """Raise StagingError before the first byte where the last one would not fit."""
    free = shutil.disk_usage(work.paths.root).free
    if free < size + SPARE_BYTES:
        raise StagingError(f"{url}: {size / 2**30:.1f} GiB do not fit: {free / 2**30:.1f} GiB are free on the disk")


def _inside(key: str) -> str:
    """The key as a path that stays below its folder. Raises StagingError."""
    name = PurePosixPath(key)
    if name.is_absolute() or ".." in name.parts:
        raise StagingError(f"object {key!r} refused: it would land outside the data set's folder")
    return str(name)


def _is_there(stored: StoredObject, target: Path) -> bool:
    return target.is_file() and target.stat().st_size == stored.size


def _checkpoints(work: Staging) -> tuple[list[Checkpoint], list[str]]:
    """Restore every task; what was restored, and all warnings.

    Everything is fetched before anything is put in place, so that a staging that breaks is the same the second time.
    """
    store = work.open_store(work.job.storage.url)
    found: list[Checkpoint] = []
    warnings: list[str] = []
    for task in work.job.tasks:
        checkpoint, said = _fetch(work, store, task)
        warnings += said
        if checkpoint is not None:
            found.append(checkpoint)
    for checkpoint in found:
        paths, before = work.paths.task(checkpoint.task), _fetched_before(work, checkpoint.task)
        paths.weights.mkdir(parents=True, exist_ok=True)
        if before.exists():
            before.replace(paths.previous)
        _fetched(work, checkpoint.task).replace(paths.last)
    return found, warnings


def _fetch(work: Staging, store: RemoteStore, task: TaskSpec) -> tuple[Checkpoint | None, list[str]]:
    """One task. A checkpoint that lies there already is this machine's own and newer than any stored one."""
    paths = work.paths.task(task.name)
    run = StoredRun(work.job.run_id)
    if paths.last.exists():
        return None, []
    stored = TaskCheckpoints(store, run, task.name, work.paths.transfer)
    checkpoint, warnings = stored.restore(_fetched(work, task.name), work.report.moved)
    if checkpoint is not None:
        log.info("task %s: checkpoint of epoch %d, step %d restored", task.name, checkpoint.epoch, checkpoint.step)
        for name, place in {"results.csv": paths.results, "best.pt": paths.best, "train.log": paths.log}.items():
            _restore_beside(work, store, run.artifact(task.name, name), place)
        if not paths.previous.exists():
            _fetch_before(work, stored, checkpoint)
    elif warnings:
        warnings.append(f"no stored checkpoint of {task.name} can be used: it begins with the first step")
    return checkpoint, warnings


def _fetch_before(work: Staging, stored: TaskCheckpoints, newest: Checkpoint) -> None:
    """The one before `newest`, in case the trainer cannot use that; one that does not come or fit stops nothing."""
    target = _fetched_before(work, newest.task)
    target.unlink(missing_ok=True)
    if shutil.disk_usage(work.paths.root).free < newest.size + SPARE_BYTES:
        log.warning("task %s: no room for the checkpoint before the newest one", newest.task)
        return
    try:
        before, _ = stored.restore(target, work.report.moved, newest)
    except (StoreError, OSError) as error:
        log.warning("task %s: the checkpoint before the newest one did not come: %s", newest.task, error)
        return
    if before is not None:
        log.info("task %s: checkpoint of step %d restored, too, as the one before", newest.task, before.step)


def _fetched(work: Staging, task: str) -> Path:
    return work.paths.transfer / f"{task}.restored.pt"


def _fetched_before(work: Staging, task: str) -> Path:
    return work.paths.transfer / f"{task}.restored.previous.pt"


def _restore_beside(work: Staging, store: RemoteStore, key: str, target: Path) -> None:
    try:
        store.get(key, target, work.report.moved)
    except StoreMissing:
        log.info("%s is not stored", key)


def announced(outcome: TransferOutcome, error: Exception) -> TransferOutcome:
    """The outcome of a staging that failed."""
    hint = getattr(error, "hint", "")
    said = f"{error}; {hint}" if hint else str(error)
    return replace(outcome, ok=False, final=True, message=said if str(error) else type(error).__name__)


def worth_again(error: Exception) -> bool:
    """Whether a failed staging may work a moment later."""
    return type(error) is StoreError
