"""Checkpoints in the storage: an object under a name that never comes again, then a manifest that makes it count.

Owns their names, order, retention and verification. The manifest is the commit point: an object without one does not
count, it may be torn.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from remote import protocol
from remote.protocol import Checkpoint, Manifest, ProtocolError, StoredRun, TaskPaths, TaskProgress
from remote.transfer.store import Progress, RemoteStore, StoreMissing, ignore

log = logging.getLogger(__name__)

KEPT = 2
"""Of the line of checkpoints that is being written, and at most as many that are further than it."""
OBJECT_NAME = re.compile(r"\d+-[0-9a-f]{8}\.pt")
OUR_NAME = re.compile(r"\d+-[0-9a-f]{8}\.(pt|json)")


@dataclass
class Listing:
    """The manifests of one task, newest first, and what was wrong with others."""

    manifests: list[Manifest] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    """Of all objects, by their name in the folder."""
    warnings: list[str] = field(default_factory=list)


class TaskCheckpoints:
    """The checkpoints of one task. Every method may raise StoreError."""

    def __init__(self, store: RemoteStore, run: StoredRun, task: str, scratch: Path) -> None:
        self._store = store
        self._folder = run.checkpoints(task)
        self._task = task
        self._scratch = scratch
        self._rejected: set[str] = set()
        """Objects that came and were not what their manifests say."""

    def newest_first(self) -> Listing:
        """All readable manifests of this task, by step, then time."""
        listing = Listing()
        for stored in self._store.list(self._folder):
            listing.sizes[stored.key.removeprefix(self._folder)] = stored.size
            if stored.key.endswith(".json"):
                self._add(stored.key, listing)
        listing.manifests.sort(key=lambda manifest: (manifest.step, manifest.at), reverse=True)
        return listing

    def commit(self, source: Path, progress: TaskProgress | None, at: float, moved: Progress = ignore) -> Checkpoint:
        """Store `source`, which nobody changes any more, and then its manifest. What is stored whole is not sent.

        An object that is torn or gone below its manifest is sent again in its place: the manifest is of that content.
        """
        digest, size = sha256(source), source.stat().st_size
        listing = self.newest_first()
        stored = [manifest for manifest in listing.manifests if (manifest.sha256, manifest.size) == (digest, size)]
        if stored:
            whole = next((manifest for manifest in stored if self._seems_whole(manifest, listing)), None)
            return self.described(whole or self._repaired(stored[0], source, moved))
        step, epoch = (0, 0) if progress is None else _place(progress)
        name = f"{step:010d}-{digest[:8]}"
        manifest = Manifest(self._task, epoch, step, f"{name}.pt", digest, size, at)
        self._store.put(source, f"{self._folder}{name}.pt", moved)
        self._store.put(protocol.encode(manifest).encode(), f"{self._folder}{name}.json")
        return self.described(manifest)

    def prune(self, newest: str) -> None:
        """Keep the checkpoint whose object is called `newest`, the best before it, and the best ones beyond it.

        There are some beyond where a training did not go on from the furthest: they are its better past until it has
        passed them. Manifests go before their objects, so that no manifest ever names an object that is gone.
        """
        order = [manifest.key for manifest in self.newest_first().manifests]
        if newest not in order:
            return
        place = order.index(newest)
        kept = [*order[:place][:KEPT], *order[place:][:KEPT]]
        keys = [stored.key.removeprefix(self._folder) for stored in self._store.list(self._folder)]
        stems = {_stem(name) for name in kept}
        old = [key for key in keys if OUR_NAME.fullmatch(key) and _stem(key) not in stems]
        for key in sorted(old, key=lambda key: not key.endswith(".json")):
            self._store.delete(self._folder + key)

    def restore(
        self, target: Path, moved: Progress = ignore, before: Checkpoint | None = None
    ) -> tuple[Checkpoint | None, list[str]]:
        """Bring the newest checkpoint that is whole, or that and older than `before`, to `target`; None: there is none.

        The texts are warnings.
        """
        listing = self.newest_first()
        fetched = self._scratch / f"{self._task}.restore.pt"
        for manifest in listing.manifests:
            if before is not None and (manifest.step, manifest.at) >= (before.step, before.at):
                continue
            problem = self._fetched(manifest, fetched, moved)
            if problem is None:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(fetched, target)  # noqa: PTH105 - says that it overwrites
                return self.described(manifest), listing.warnings
            self._rejected.add(manifest.key)
            listing.warnings.append(f"checkpoint {manifest.key} of {self._task} skipped: {problem}")
            fetched.unlink(missing_ok=True)
        return None, listing.warnings

    def described(self, manifest: Manifest) -> Checkpoint:
        """The checkpoint of a manifest, with its full URL."""
        url = f"{self._store.url}/{self._folder}{manifest.key}"
        return Checkpoint(
            manifest.task, manifest.epoch, manifest.step, url, manifest.sha256, manifest.size, manifest.at
        )

    def _seems_whole(self, manifest: Manifest, listing: Listing) -> bool:
        return listing.sizes.get(manifest.key) == manifest.size and manifest.key not in self._rejected

    def _repaired(self, manifest: Manifest, source: Path, moved: Progress) -> Manifest:
        log.warning("checkpoint %s of %s is damaged in the storage: it is sent again", manifest.key, self._task)
        self._store.put(source, self._folder + manifest.key, moved)
        self._rejected.discard(manifest.key)
        return manifest

    def _add(self, key: str, listing: Listing) -> None:
        try:
            manifest = protocol.decode(self._store.read(key).decode("utf-8"), Manifest, key)
        except StoreMissing:
            return
        except (ProtocolError, UnicodeDecodeError) as error:
            listing.warnings.append(f"manifest {key} skipped: {error}")
            return
        if manifest.task != self._task or not OBJECT_NAME.fullmatch(manifest.key):
            listing.warnings.append(f"manifest {key} skipped: it is of {manifest.task!r} and names {manifest.key!r}")
            return
        listing.manifests.append(manifest)

    def _fetched(self, manifest: Manifest, target: Path, moved: Progress) -> str | None:
        """Download the object of a manifest; what is wrong with it, or None."""
        try:
            self._store.get(self._folder + manifest.key, target, moved)
        except StoreMissing:
            return "its object is missing"
        size = target.stat().st_size
        if size != manifest.size:
            return f"it has {size} bytes, its manifest says {manifest.size}"
        return None if sha256(target) == manifest.sha256 else "its content is not what its manifest says"


def sha256(path: Path) -> str:
    """Of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as data:
        while chunk := data.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def progress_of(paths: TaskPaths) -> TaskProgress | None:
    """The trainer's own word on where it is, or None."""
    try:
        return protocol.read(paths.progress, TaskProgress)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ProtocolError) as error:
        log.warning("%s", error)
        return None


def _place(progress: TaskProgress) -> tuple[int, int]:
    """Step and finished epochs of the checkpoint on the disk; where the trainer is, if it does not tell them."""
    if progress.saved_step is None:
        return progress.step, progress.epoch
    return progress.saved_step, progress.epoch if progress.saved_epoch is None else progress.saved_epoch


def _stem(key: str) -> str:
    return key.rsplit(".", 1)[0]
