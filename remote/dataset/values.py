"""The values of a data set: what was read, what was left out and why. No reading happens here."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class DatasetError(Exception):
    """The data set cannot be used as it is. The message names the file and the key or line, `hint` the way out."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Split(str, Enum):
    """A part of the data set, under the key that data.yaml has for it."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"


class PictureCheck(Enum):
    """How much of each picture `open_dataset` reads."""

    NAMES = "names"
    """Nothing: a file with a picture's suffix counts as a picture."""
    HEADERS = "headers"
    """Kind, size and the end of the file, about 0.1 ms each; only a file whose end looks wrong is decoded."""
    PIXELS = "pixels"
    """Everything: each picture is decoded once."""


class NoteKind(str, Enum):
    """What a note is about; a report groups by it."""

    DATA_FILE = "data.yaml"
    PLACE = "place"
    """Where the pictures or labels were found, when it is not where data.yaml says."""
    OVERLAP = "overlap"
    """Train and val share pictures: the score says less than it seems to."""
    SKIPPED = "skipped"
    """A picture that is not used."""
    ROW = "row"
    """One label row that was dropped or changed."""
    COUNT = "count"
    """Something told once for the whole set."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should know, which stops nothing."""

    kind: NoteKind
    text: str
    file: Path | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = "" if self.file is None else f"{self.file}: " if self.line is None else f"{self.file}:{self.line}: "
        return place + self.text


@dataclass(frozen=True, slots=True)
class Object:
    """One labelled object. Centre and size as fractions of the upright picture; the box lies inside it."""

    cls: int
    cx: float
    cy: float
    w: float
    h: float
    outline: bytes = field(default=b"", compare=False, repr=False)
    """The points of a polygon, float32 x and y in turn, as fractions; empty for a box alone."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture that is used, with its objects; none of them: a background picture."""

    image: Path
    label: Path | None
    """The label file; None where there is none."""
    objects: tuple[Object, ...]
    size: tuple[int, int] | None = None
    """Width and height of the upright picture; None where pictures were not checked."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set that can be trained on: train and val are not empty and both have objects."""

    root: Path
    """The folder of data.yaml."""
    file: Path
    names: tuple[str, ...]
    """Class names, by class id."""
    train: tuple[Sample, ...]
    val: tuple[Sample, ...]
    test: tuple[Sample, ...]
    notes: tuple[Note, ...]

    @property
    def skipped(self) -> tuple[Note, ...]:
        """The pictures that are not used, each with its reason."""
        return tuple(note for note in self.notes if note.kind is NoteKind.SKIPPED)

    def split(self, split: Split) -> tuple[Sample, ...]:
        """The samples of one split."""
        return {Split.TRAIN: self.train, Split.VAL: self.val, Split.TEST: self.test}[split]
