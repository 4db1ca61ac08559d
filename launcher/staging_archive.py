"""Packs a local data set into the one tar that is staged: what training needs, in the standard layout, nothing else.

The same content gives the same bytes on every machine and day, so that the digest names it and it is uploaded once.
Knows nothing of storage, runs or clouds.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from remote.dataset import Dataset, DatasetError, Sample, Split, data_file_text, label_path, open_dataset


@dataclass(frozen=True, slots=True)
class PackedData:
    """A packed data set."""

    path: Path
    sha256: str
    size: int
    """Bytes."""
    files: int
    """Pictures inside."""


class _Digested:
    """A file that is hashed while it is written."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self.out.write(data)


def pack(dataset: Dataset | Path, target: Path) -> PackedData:
    """Write the pictures that are used and their labels into the tar `target`, which appears whole.

    Splits lie in `images/SPLIT` and `labels/SPLIT` and data.yaml says so, whatever the original looked like. Raises
    DatasetError: the set cannot be used, a file of it changed meanwhile, or the tar cannot be written.
    """
    opened = open_dataset(dataset) if isinstance(dataset, Path) else dataset
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            out = _Digested(file)
            pictures = _write(opened, out)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        hint = "leave the data set alone meanwhile, and see that the disk has room for a copy"
        raise DatasetError(f"{opened.root}: cannot be packed into {target}: {error}", hint) from error
    finally:
        partial.unlink(missing_ok=True)
    return PackedData(target, out.digest.hexdigest(), out.size, pictures)


def _write(dataset: Dataset, out: _Digested) -> int:
    pictures = 0
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        text = data_file_text(dataset.names, [split for split in Split if dataset.split(split)]).encode()
        tar.addfile(_info("data.yaml", len(text)), io.BytesIO(text))
        for split in Split:
            placed = list(_placed(split, dataset.split(split)))
            pictures += len(placed)
            labels = {label_path(Path(name)).as_posix(): sample.label for name, sample in placed if sample.label}
            for name, path in sorted({**{name: sample.image for name, sample in placed}, **labels}.items()):
                with path.open("rb") as file:
                    tar.addfile(_info(name, os.fstat(file.fileno()).st_size), file)
    return pictures


def _placed(split: Split, samples: tuple[Sample, ...]) -> Iterator[tuple[str, Sample]]:
    """Samples with their names in the tar: the path below the folder that all pictures of the split share."""
    if not samples:
        return
    common = Path(os.path.commonpath([sample.image.parent.absolute() for sample in samples]))
    for sample in samples:
        inner = sample.image.absolute().relative_to(common)
        yield str(PurePosixPath("images", split.value, inner.as_posix())), sample


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644  # owner and times stay zero: they are not content
    return info
