"""The object-storage port of the machine: five calls on one prefix, in our words. No vendor type passes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

READ_BYTES = 2**20
"""More than any record of ours has; what is longer is none."""

Progress = Callable[[int], None]
"""Called with the number of bytes that went over the wire since the last call; from any thread."""


class StoreError(Exception):
    """The storage did not do what was asked; the next try may work. Names the URL of the object or prefix."""


class StoreRefused(StoreError):
    """It will not work next time either: no access, no such bucket, no credentials, an unusable address."""


class StoreMissing(StoreError):
    """There is no such object."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object in a listing."""

    key: str
    """Relative to the prefix of the store."""
    size: int


def ignore(_count: int) -> None:
    """A progress that nobody watches."""


class RemoteStore(Protocol):
    """A prefix in an object storage. Keys are relative to it; every method may raise StoreError."""

    @property
    def url(self) -> str:
        """The prefix as a URL, without a slash at the end."""

    def put(self, source: Path | bytes, key: str, progress: Progress = ignore) -> None:
        """A file, or a record of a few bytes, becomes an object, whole, in place of an older one."""

    def get(self, key: str, target: Path, progress: Progress = ignore) -> None:
        """An object becomes a file that appears whole. Raises StoreMissing."""

    def read(self, key: str) -> bytes:
        """A record without a file, so that a full disk is no obstacle; cut after READ_BYTES. Raises StoreMissing."""

    def list(self, prefix: str) -> list[StoredObject]:
        """Objects whose key begins with `prefix`, by key."""

    def delete(self, key: str) -> None:
        """Remove an object; one that is gone already is fine."""
