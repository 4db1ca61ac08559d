"""The user's own data set: a folder, a data.yaml or an archive here, opened and counted before anything is paid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from launcher.errors import BadInput
from remote.dataset import (
    Dataset,
    DatasetError,
    Imported,
    Note,
    PictureCheck,
    extract,
    find_root,
    import_dataset,
    open_dataset,
)

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
    with _folder(data) as place:
        dataset = open_dataset(find_root(place.path) if place.name else place.path, check)
        yield replace(dataset, notes=tuple(map(place.note, dataset.notes)))


def imported(source: str, target: Path) -> Imported:
    """Make a data set in `target` of one in another layout, in a folder or archive. Raises BadInput."""
    with _folder(source) as place:
        made = import_dataset(place.path, target)
        return replace(made, notes=tuple(map(place.note, made.notes)))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a data set is read, and what its user calls that: the place it is unpacked to is soon gone."""

    path: Path
    name: str = ""
    """Of the archive; empty for a folder that stays."""
    inner: str = ""
    """Before the names of its members."""

    def text(self, text: str) -> str:
        """What is said of the set, with its user's names."""
        return text.replace(f"{self.path}/", self.inner).replace(str(self.path), self.name) if self.name else text

    def note(self, note: Note) -> Note:
        """The same with its user's names."""
        return replace(note, text=self.text(note.text), file=note.file and Path(self.text(str(note.file))))


@contextmanager
def _folder(data: str) -> Iterator[Place]:
    path = _existing(data)
    packed = path.is_file() and path.name.lower().endswith(_ARCHIVES)
    with TemporaryDirectory(prefix="gpucost-data-") as scratch:
        place = Place(Path(scratch) / "data", str(path), f"{path}/") if packed else Place(path)
        with said_of(place):
            if packed:
                extract(path, place.path)
            yield place


@contextmanager
def said_of(place: Place) -> Iterator[None]:
    """Turns errors of a data set into BadInput."""
    try:
        yield
    except DatasetError as error:
        raise BadInput(place.text(str(error)), hint=place.text(error.hint)) from error


def _existing(data: str) -> Path:
    if "://" in data:
        raise BadInput(f"{data[:200]} is not a place on this machine", hint="download it, then give its path")
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
