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
    """The final files of one task. Every method may raise StoreError or OSError."""

    def __init__(self, store: RemoteStore, run: StoredRun, task: str, paths: TaskPaths, scratch: Path) -> None:
        self._store = store
        self._run = run
        self._task = task
        self._paths = paths
        self._scratch = scratch
        self._times: dict[str, int] = {}

    def upload_changed(self, moved: Progress = ignore) -> int:
        """While training runs: best weights, results and log where they changed. Returns how many went."""
        names = {"best.pt": self._paths.best, "results.csv": self._paths.results, "train.log": self._paths.log}
        changed = [Found(name, path) for name, path in names.items() if path.exists() and self._is_new(name, path)]
        for found in changed:
            self._put(found, moved)
        return len(changed)

    def upload_all(self, at: float, moved: Progress = ignore) -> int:
        """At the end: small files, then weights, then the list of all with size and SHA-256. Returns how many went."""
        files = [self._put(found, moved) for found in self.found()]
        listed = protocol.encode(ArtifactList(self._task, files, at))
        self._store.put(listed.encode(), self._run.artifacts(self._task))
        return len(files)

    def found(self) -> list[Found]:
        """All final files that are there, the small ones first."""
        root = self._paths.root
        named = [Found("train.log", self._paths.log), Found("best.pt", self._paths.best)]
        named += [Found("last.pt", self._paths.last)]
        small = [Found(path.relative_to(root).as_posix(), path) for path in sorted(root.rglob("*")) if _is_small(path)]
        return [found for found in (*small, *named) if found.path.is_file()]

    def _put(self, found: Found, moved: Progress) -> ArtifactFile:
        """Upload a link to the file: what is hashed is what goes, whatever is renamed over it meanwhile."""
        taken = self._scratch / f"{self._task}.artifact"
        taken.unlink(missing_ok=True)
        os.link(found.path, taken)
        self._times[found.name] = taken.stat().st_mtime_ns
        self._store.put(taken, self._run.artifact(self._task, found.name), moved)
        stored = ArtifactFile(found.name, taken.stat().st_size, sha256(taken))
        taken.unlink()
        return stored

    def _is_new(self, name: str, path: Path) -> bool:
        return self._times.get(name) != path.stat().st_mtime_ns


def _is_small(path: Path) -> bool:
    if not path.is_file() or path.is_symlink() or path.name.startswith(".") or path.name in INTERNAL:
        return False
    wanted = path.suffix.lower() in SMALL_SUFFIXES or path.name.startswith(EVENTS)
    return wanted and path.stat().st_size <= SMALL_BYTES
