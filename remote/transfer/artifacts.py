"""The files that a training leaves for its user: which they are, their upload, and the list that makes them count."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from remote import protocol
from remote.protocol import ArtifactFile, ArtifactList, StoredRun, TaskPaths
from remote.transfer.checkpoints import sha256
from remote.transfer.store import Progress, RemoteStore, ignore

SMALL_BYTES = 50 * 2**20
SMALL_SUFFIXES = {".csv", ".jpeg", ".jpg", ".json", ".png", ".txt", ".yaml", ".yml"}
EVENTS = "events."
"""How TensorBoard's files begin."""
INTERNAL = {"config.json", "progress.json"}
"""Of the machine: paths and moments that mean nothing elsewhere."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file and the name it is stored under."""

    name: str
    path: Path


class TaskArtifacts:
    """The final files of one task. Every method may raise StoreError or OSError.

    The list names what this machine stored, with size and SHA-256. It goes before a file that it may name is replaced,
    and comes again after the last one, so that a list that is there is true.
    """

    def __init__(self, store: RemoteStore, run: StoredRun, task: str, paths: TaskPaths, scratch: Path) -> None:
        self._store = store
        self._run = run
        self._task = task
        self._paths = paths
        self._scratch = scratch
        self._sent: dict[str, tuple[int, int]] = {}
        self._listed: dict[str, ArtifactFile] = {}

    def upload_changed(self, at: float, moved: Progress = ignore) -> int:
        """While training runs: best weights, results and log where they changed. Returns how many went."""
        found = [Found("results.csv", self._paths.results), self._log(), self._best()]
        changed = [one for one in found if one.path.exists() and self._sent.get(one.name) != _version(one.path)]
        return self._upload(changed, at, moved)

    def upload_small(self, at: float, moved: Progress = ignore) -> int:
        """When the machine is taken away: what is not weights. Returns how many went."""
        return self._upload(self._small(), at, moved)

    def upload_all(self, at: float, moved: Progress = ignore) -> int:
        """At the end: small files, then weights. Returns how many went."""
        weights = [self._best(), Found("last.pt", self._paths.last)]
        return self._upload([*self._small(), *weights], at, moved, empty=True)

    def _upload(self, found: list[Found], at: float, moved: Progress, *, empty: bool = False) -> int:
        """Files, and then the list of all that are stored; an `empty` list is worth a word at the end only."""
        files = [one for one in found if one.path.is_file()]
        if not files and not empty:
            return 0
        self._store.delete(self._run.artifacts(self._task))
        for one in files:
            self._put(one, moved)
        listed = ArtifactList(self._task, sorted(self._listed.values(), key=lambda file: file.name), at)
        self._store.put(protocol.encode(listed).encode(), self._run.artifacts(self._task))
        return len(files)

    def _log(self) -> Found:
        return Found("train.log", self._paths.log)

    def _best(self) -> Found:
        return Found("best.pt", self._paths.best)

    def _small(self) -> list[Found]:
        root = self._paths.root
        small = [Found(path.relative_to(root).as_posix(), path) for path in sorted(root.rglob("*")) if _is_small(path)]
        return [*small, self._log()]

    def _put(self, found: Found, moved: Progress) -> None:
        """Upload a link to the file: what is hashed is what goes, whatever is renamed over it meanwhile.

        One that grows while it goes, like a log, is not listed: nobody knows which part of it went.
        """
        taken = self._scratch / f"{self._task}.artifact"
        taken.unlink(missing_ok=True)
        os.link(found.path, taken)
        version = _version(taken)
        self._listed.pop(found.name, None)
        self._store.put(taken, self._run.artifact(self._task, found.name), moved)
        stored = ArtifactFile(found.name, taken.stat().st_size, sha256(taken))
        if _version(taken) == version:
            self._listed[found.name] = stored
            self._sent[found.name] = version
        taken.unlink()


def _version(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_mtime_ns, state.st_size


def _is_small(path: Path) -> bool:
    if not path.is_file() or path.is_symlink() or path.name.startswith(".") or path.name in INTERNAL:
        return False
    wanted = path.suffix.lower() in SMALL_SUFFIXES or path.name.startswith(EVENTS)
    return wanted and path.stat().st_size <= SMALL_BYTES
