"""From a folder to a checked data set: the one way in, for the launcher and for the trainer."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remote.dataset.archive import find_data_file
from remote.dataset.datafile import DataFile, read_data_file
from remote.dataset.labels import Finding, Labels, RowKind, read_labels
from remote.dataset.listing import Listing, label_path, list_all
from remote.dataset.pictures import PictureError, load_image, picture_size
from remote.dataset.values import Dataset, DatasetError, Note, NoteKind, PictureCheck, Sample, Split

REFUSED = 0.1
"""More than this share of label files without one usable row is a set in another form, not a few bad files."""
COUNTED = {
    RowKind.POLYGON: "polygon rows turned into boxes",
    RowKind.COMMAS: "rows with commas between the numbers, read as spaces",
    RowKind.CLIPPED: "boxes that leave their picture, cut at the border",
    RowKind.DUPLICATE: "duplicate rows removed",
}
"""Told once for the set, with the first place; all other findings are told row by row."""


@dataclass(slots=True)
class _Reading:
    """What gathers while the splits are read."""

    notes: list[Note] = field(default_factory=list)
    counted: Counter[RowKind] = field(default_factory=Counter)
    first: dict[RowKind, tuple[Path, int]] = field(default_factory=dict)
    out_of_range: list[tuple[Path, Finding]] = field(default_factory=list)
    refused: list[tuple[Path, Finding]] = field(default_factory=list)
    label_files: int = 0
    labels: dict[Path, Labels] = field(default_factory=dict)

    def of(self, label: Path, classes: int) -> Labels:
        """The content of a label file, read and reported once, however many pictures share it."""
        if label not in self.labels:
            self.labels[label] = read_labels(label, classes)
            self._report(label, self.labels[label])
        return self.labels[label]

    def _report(self, label: Path, found: Labels) -> None:
        self.label_files += 1
        if found.refusal is not None:
            self.refused.append((label, found.refusal))
            return
        for finding in found.findings:
            if finding.kind is RowKind.CLASS_RANGE:
                self.out_of_range.append((label, finding))
            elif finding.kind in COUNTED:
                self.counted[finding.kind] += 1
                self.first.setdefault(finding.kind, (label, finding.line))
            else:
                dropped = "row dropped: " if finding.kind is RowKind.MALFORMED else ""
                self.notes.append(Note(NoteKind.ROW, dropped + finding.text, label, finding.line))


def open_dataset(path: Path, check: PictureCheck = PictureCheck.HEADERS) -> Dataset:
    """Read and check the data set at `path`: a folder with a data.yaml, or the file itself.

    Pictures that cannot be used are left out with a note. Raises DatasetError for what cannot be trained on.
    """
    data = read_data_file(_data_file(path))
    listings = list_all(data)
    samples, notes = read_listings(data, listings, lambda _: check)
    for listing in listings:
        if listing.split is not Split.TEST:
            _refuse_empty(data, listing, samples[listing.split], notes)
    notes += _overlaps(data, samples, check)
    train, val, test = (samples.get(split, ()) for split in Split)
    return Dataset(data.file.parent, data.file, data.names, train, val, test, tuple(dict.fromkeys(notes)))


def read_listings(
    data: DataFile, listings: Sequence[Listing], check: Callable[[Path], PictureCheck]
) -> tuple[dict[Split, tuple[Sample, ...]], list[Note]]:
    """Read every label, and as much of each picture as `check` says; what was noticed, in data.yaml too.

    Raises DatasetError: a class is out of range, or too many label files are in another form.
    """
    reading = _Reading()
    for listing in listings:
        reading.notes += listing.notes
    samples = {listing.split: _samples(listing, len(data.names), check, reading) for listing in listings}
    _refuse_classes(reading, len(data.names), samples)
    _refuse_form(reading)
    return samples, [*data.notes, *reading.notes, *_counts(reading)]


def _data_file(path: Path) -> Path:
    if path.is_dir():
        return find_data_file(path)
    if path.suffix.lower() in (".yaml", ".yml"):
        return path
    if path.is_file():
        raise DatasetError(f"{path}: is not a data.yaml", "give a folder with a data.yaml, or an archive of one")
    raise DatasetError(f"{path}: no such folder or file", "give the folder of a data.yaml, or the file itself")


def _samples(
    listing: Listing, classes: int, check: Callable[[Path], PictureCheck], reading: _Reading
) -> tuple[Sample, ...]:
    samples: list[Sample] = []
    for image, label in listing.pairs:
        found = Labels((), ()) if label is None else reading.of(label, classes)
        if found.refusal is not None:
            text = f"not used: nothing in its label file can be read, line {found.refusal.line}: {found.refusal.text}"
            reading.notes.append(Note(NoteKind.SKIPPED, text, image))
            continue
        try:
            size = _size(image, check(image))
        except PictureError as error:
            reading.notes.append(Note(NoteKind.SKIPPED, error.reason, image))
            continue
        samples.append(Sample(image, label, found.objects, size))
    return tuple(samples)


def _size(image: Path, check: PictureCheck) -> tuple[int, int] | None:
    if check is PictureCheck.NAMES:
        return None
    return picture_size(image) if check is PictureCheck.HEADERS else load_image(image).size


def _refuse_classes(reading: _Reading, classes: int, samples: dict[Split, tuple[Sample, ...]]) -> None:
    if not reading.out_of_range:
        return
    label, finding = reading.out_of_range[0]
    rows, files = len(reading.out_of_range), len({path for path, _ in reading.out_of_range})
    many = f" ({rows} rows in {files} files are like this)" if rows > 1 else ""
    zero = any(thing.cls == 0 for split in samples.values() for sample in split for thing in sample.objects)
    from_one = "" if zero else "numbered from 1? no class 0 occurs: subtract 1 from every class; or "
    hint = f"{from_one}correct the labels, or `names` and `nc` in data.yaml (now {classes})"
    raise DatasetError(f"{label}:{finding.line}: {finding.text}{many}", hint)


def _refuse_form(reading: _Reading) -> None:
    if len(reading.refused) <= REFUSED * reading.label_files:
        return
    label, finding = reading.refused[0]
    many = f" ({len(reading.refused)} of {reading.label_files} label files are like this)"
    raise DatasetError(f"{label}:{finding.line}: {finding.text}{many}", "write the labels again in that form")


def _refuse_empty(data: DataFile, listing: Listing, samples: tuple[Sample, ...], notes: list[Note]) -> None:
    key = listing.split.value
    place = f"{data.file}:{data.splits[listing.split][0].line}"
    if not samples:
        images = {image for image, _ in listing.pairs}
        first = next(note for note in notes if note.kind is NoteKind.SKIPPED and note.file in images)
        hint = f"put pictures that open in a viewer under `{key}`"
        raise DatasetError(f"{place}: no usable picture in `{key}`: {first}", hint)
    if not any(sample.objects for sample in samples):
        found = "the label files hold no object" if any(sample.label for sample in samples) else None
        raise no_labels(data, listing.split, [sample.image for sample in samples], found)


def no_labels(data: DataFile, split: Split, images: Sequence[Path], found: str | None = None) -> DatasetError:
    """The error for a split in which nothing is labelled; `found` says what there is instead."""
    place = f"{data.file}:{data.splits[split][0].line}"
    found = found or f"looked in {label_path(images[0]).parent}"
    hint = "put one .txt file per picture there: the folder `images` in a picture's path becomes `labels`"
    return DatasetError(f"{place}: no labels for any of the {len(images)} pictures of `{split.value}`; {found}", hint)


def _counts(reading: _Reading) -> Iterator[Note]:
    for kind, text in COUNTED.items():
        if count := reading.counted[kind]:
            file, line = reading.first[kind]
            yield Note(NoteKind.COUNT, f"{count} {text}" if count > 1 else _singular(text), file, line)


def _singular(text: str) -> str:
    first, _, rest = text.replace("boxes that leave", "box that leaves").replace("rows", "row").partition(",")
    return f"1 {first},{rest}".rstrip(",").replace("into boxes", "into a box")


def _overlaps(data: DataFile, samples: dict[Split, tuple[Sample, ...]], check: PictureCheck) -> list[Note]:
    train, val = samples[Split.TRAIN], samples[Split.VAL]
    shared = shared_pictures(data, [sample.image for sample in train], [sample.image for sample in val])
    if shared or check is PictureCheck.NAMES:
        return shared
    return copied_pictures(data, [(own.image, twin.image) for own, twin in _copies(train, val)], len(val))


def shared_pictures(data: DataFile, train: Sequence[Path], val: Sequence[Path]) -> list[Note]:
    """What is to be said where the same files are in both."""
    known = {image.resolve() for image in train}
    same = sum(image.resolve() in known for image in val)
    if not same:
        return []
    text = f"{same} of {len(val)} pictures of val are also in train: the score will be too good"
    if same == len(val):
        text = "train and val are the same pictures: the score will say nothing about new ones"
    return [Note(NoteKind.OVERLAP, text, data.file, data.splits[Split.VAL][0].line)]


def copied_pictures(data: DataFile, copies: Sequence[tuple[Path, Path]], val: int) -> list[Note]:
    """What is to be said of pairs of a picture of val and the one of train that it is a copy of."""
    if not copies:
        return []
    first = f"{copies[0][0].name} is {copies[0][1].name}"
    text = f"{len(copies)} of {val} pictures of val are copies of pictures of train ({first})"
    return [Note(NoteKind.OVERLAP, text, data.file, data.splits[Split.VAL][0].line)]


def _copies(train: tuple[Sample, ...], val: tuple[Sample, ...]) -> list[tuple[Sample, Sample]]:
    """Pairs of val and train with the same bytes. Only files of the same size are read."""
    sizes = {sample.image: sample.image.stat().st_size for sample in (*train, *val)}
    shared = {sizes[sample.image] for sample in train} & {sizes[sample.image] for sample in val}
    digests = {_digest(sample.image): sample for sample in train if sizes[sample.image] in shared}
    candidates = ((sample, digests.get(_digest(sample.image))) for sample in val if sizes[sample.image] in shared)
    return [(sample, twin) for sample, twin in candidates if twin is not None]


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()
