"""Brings a run's results from the object storage to the user's folder, verified."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import GpucostError
from launcher.run import Run
from launcher.storage.interface import ObjectStore
from remote import protocol
from remote.protocol import ArtifactList, ProtocolError, StoredRun

OWNER = ".run_id"
"""A file in a folder of results that says whose they are."""
_PLAIN = re.compile(r"[0-9A-Za-z-]+")
"""What every run's id is made of."""


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


def kept_results(run: Run) -> Path | None:
    """Where the results of a run lie here: in its folder, or where that was moved to for a later run; None: nowhere."""
    folder = Path(run.results_dir)
    places = (folder, moved_folder(folder, run.run_id))
    return next((place for place in places if place.is_dir() and _owner(place) in (run.run_id, None)), None)


def moved_folder(folder: Path, run_id: str) -> Path:
    """What the folder of that run's results is called once a later run of the same name has it."""
    return folder.parent / f"{folder.name}-{run_id}"


def task_folder(folder: Path, task: str, tasks: tuple[str, ...]) -> Path:
    """Where a task's results are in the folder of a run: in itself, or in one inside it where there are several."""
    return folder / (task if len(tasks) > 1 else "")


def _owner(folder: Path) -> str | None:
    """Id of the run whose results are in a folder, where it says so; nothing that could be another place."""
    try:
        said = (folder / OWNER).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return said if _PLAIN.fullmatch(said) else None


def _make_room(run: Run) -> Path:
    """The run's folder, in which there is nothing of another run: what is there of one is moved aside, whole."""
    folder = Path(run.results_dir)
    before = _owner(folder)
    if before is not None and before != run.run_id:
        folder.rename(moved_folder(folder, before))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OWNER).write_text(f"{run.run_id}\n", encoding="utf-8")
    return folder


def collect(run: Run, tasks: tuple[str, ...], store: ObjectStore) -> Collected:
    """Copy each task's final files to `results_dir` (`results_dir/TASK` where there are several).

    Files that are there already with the right digest are left alone, those of an earlier run of the same name moved
    aside. Raises StorageError, ResultsDamaged, OSError.
    """
    lists = {task: artifact_list(run, task, store) for task in tasks}
    found = {task: listed.files for task, listed in lists.items() if listed is not None}
    copied = 0
    if found:
        room = _make_room(run)
        for task, files in found.items():
            folder = task_folder(room, task, tasks)
            copied += sum(_fetch(run, task, each.name, each.sha256, folder, store) for each in files)
    missing = tuple(task for task in tasks if task not in found)
    size = sum(each.size for files in found.values() for each in files)
    return Collected(copied, missing, size)


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
