"""The object-storage port of the launcher: five calls, no vendor types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from launcher.errors import GpucostError


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object in a listing."""

    key: str
    """Relative to the prefix of the store."""
    size: int


class StorageError(GpucostError):
    """The object storage cannot be used: no such bucket, no access, no connection. Names the URL."""


class ObjectStore(Protocol):
    """A prefix in an object storage. Every method may raise StorageError."""

    @property
    def url(self) -> str:
        """The prefix as a URL, without a slash at the end."""

    def list(self, prefix: str) -> list[StoredObject]:
        """Objects whose key begins with `prefix`, by key."""

    def get(self, key: str, span: range | None = None) -> bytes | None:
        """A small object whole, or the bytes of `span`, which lies inside of it; None where there is none."""

    def download(self, key: str, target: Path) -> None:
        """An object to a file that appears whole."""

    def upload(self, source: Path, key: str) -> None:
        """A file to an object."""

    def create(self, key: str, content: bytes) -> bool:
        """A small object where there is none yet; False, and nothing is changed, where there is one.

        Of several callers at one time, exactly one gets True.
        """
