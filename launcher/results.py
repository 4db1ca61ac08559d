"""Brings a run's results from the object storage to the user's folder, verified."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import GpucostError
from launcher.run import Run
from launcher.storage.interface import ObjectStore
from remote import protocol
from remote.protocol import ArtifactList, ProtocolError, StoredRun


class ResultsDamaged(GpucostError):
    """What was downloaded is not what the machine uploaded."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What was copied."""

    files: int
    missing: tuple[str, ...]
    """Tasks without a finished upload."""
    bytes: int = 0
    """Of all final files that are in the storage, copied now or before."""


def artifact_list(run: Run, task: str, store: ObjectStore) -> ArtifactList | None:
    """The final files of a task; None where its upload was not finished. Raises StorageError, ResultsDamaged."""
    key = StoredRun(run.run_id).artifacts(task)
    content = store.get(key)
    if content is None:
        return None
    try:
        return protocol.decode(content.decode(), ArtifactList, f"{store.url}/{key}")
    except (ProtocolError, UnicodeDecodeError) as error:
        raise ResultsDamaged(str(error), hint="the files themselves may still be in the storage") from error


def results_folder(run: Run, task: str, tasks: tuple[str, ...]) -> Path:
    """Where a task's results go: the run's own folder, or one inside it where there are several tasks."""
    return Path(run.results_dir) / (task if len(tasks) > 1 else "")


def collect(run: Run, tasks: tuple[str, ...], store: ObjectStore) -> Collected:
    """Copy each task's final files to `results_dir` (`results_dir/TASK` where there are several).

    Files that are there already with the right digest are left alone. Raises StorageError, ResultsDamaged.
    """
    copied = size = 0
    missing = []
    for task in tasks:
        listed = artifact_list(run, task, store)
        if listed is None:
            missing.append(task)
            continue
        folder = results_folder(run, task, tasks)
        size += sum(artifact.size for artifact in listed.files)
        for artifact in listed.files:
            copied += _fetch(run, task, artifact.name, artifact.sha256, folder, store)
    return Collected(copied, tuple(missing), size)


def _fetch(run: Run, task: str, name: str, digest: str, folder: Path, store: ObjectStore) -> int:
    target = folder / name
    if folder.resolve() not in target.resolve().parents:
        raise ResultsDamaged(
            f"the list of results names {name!r}, outside the folder", hint="do not trust this storage"
        )
    if target.exists() and sha256_of(target) == digest:
        return 0
    store.download(StoredRun(run.run_id).artifact(task, name), target)
    if sha256_of(target) != digest:
        target.unlink()
        raise ResultsDamaged(f"{name} of {task} arrived damaged", hint=f"try `gpucost resume {run.run_id}` again")
    return 1


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
