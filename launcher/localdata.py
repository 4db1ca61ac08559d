"""The user's own data set: a folder, a data.yaml or an archive here, opened and counted before anything is paid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from launcher.errors import BadInput
from remote.dataset import Dataset, DatasetError, Note, PictureCheck, extract, find_root, open_dataset

_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True)
class DataFacts:
    """What planning needs to know of a data set."""

    train_images: int
    val_images: int
    bytes: int


@contextmanager
def opened(data: str, check: PictureCheck = PictureCheck.HEADERS) -> Iterator[Dataset]:
    """The data set at a local path; an archive is unpacked for as long as the block lasts.

    Raises BadInput that names the file, and the line where there is one.
    """
    path = _existing(data)
    try:
        if path.is_file() and path.name.lower().endswith(_ARCHIVES):
            with TemporaryDirectory(prefix="gpucost-data-") as scratch:
                yield _unpacked(path, Path(scratch) / "data", check)
        else:
            yield open_dataset(path, check)
    except DatasetError as error:
        raise BadInput(str(error), hint=error.hint) from error


def _unpacked(archive: Path, target: Path, check: PictureCheck) -> Dataset:
    """The set of an archive. What is said of it names places in the archive: those it is unpacked to are soon gone."""

    def seen(text: str) -> str:
        return text.replace(str(target), str(archive))

    def of_archive(note: Note) -> Note:
        return replace(note, text=seen(note.text), file=None if note.file is None else Path(seen(str(note.file))))

    try:
        extract(archive, target)
        dataset = open_dataset(find_root(target), check)
    except DatasetError as error:
        raise DatasetError(seen(str(error)), seen(error.hint)) from error
    return replace(dataset, notes=tuple(of_archive(note) for note in dataset.notes))


def _existing(data: str) -> Path:
    hint = "correct `data`, or the path: a folder, data.yaml or archive"
    try:
        path = Path(data).expanduser()
        path.stat()
    except FileNotFoundError as error:
        raise BadInput(f"there is no data at {path}", hint=hint) from error
    except OSError as error:
        raise BadInput(f"the data at {data[:200]} cannot be read: {error.strerror}", hint=hint) from error
    except (RuntimeError, ValueError) as error:  # ~nobody, or a zero byte
        raise BadInput(f"the data at {data[:200]!r} cannot be read: {error}", hint=hint) from error
    return path


def facts(dataset: Dataset) -> DataFacts:
    """Counts and size of a data set."""
    size = sum(sample.image.stat().st_size for sample in (*dataset.train, *dataset.val))
    return DataFacts(len(dataset.train), len(dataset.val), size)
