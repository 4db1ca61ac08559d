"""Packs the `remote` package for the machine: one tar, named by its content, the same bytes for the same sources."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

import remote

_SOURCES = (".py", ".md", ".csv")


@dataclass(frozen=True, slots=True)
class Bundle:
    """The archive and its name."""

    digest: str
    content: bytes = field(repr=False)


def pack_remote() -> Bundle:
    """An uncompressed tar of the installed `remote` package."""
    package = Path(remote.__file__).parent
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(package.rglob("*")):
            if path.suffix in _SOURCES and "__pycache__" not in path.parts:
                _add(archive, path, f"remote/{path.relative_to(package).as_posix()}")
    content = buffer.getvalue()
    return Bundle(hashlib.sha256(content).hexdigest()[:16], content)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    content = path.read_bytes()
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o644
    archive.addfile(entry, io.BytesIO(content))
