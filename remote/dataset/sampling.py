"""A data set that is elsewhere, checked by all of its names and a sample of its files.

Its names are laid out as empty files, so that data.yaml, lists and labels are found by the very rules that hold for a
set that is here; then the sample is filled in. What is only a sample is counted as one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from remote.dataset.archive import find_data_file
from remote.dataset.datafile import DataFile, read_data_file
from remote.dataset.elsewhere import Elsewhere, Traffic, evenly
from remote.dataset.listing import Listing, list_all
from remote.dataset.pictures import EMPTY
from remote.dataset.places import Written
from remote.dataset.reading import copied_pictures, no_labels, read_listings, shared_pictures
from remote.dataset.summary import class_counts, listed
from remote.dataset.values import DatasetError, Note, NoteKind, PictureCheck, Split

PICTURES = 16
"""Of a split: enough to see whether they open and of which size they are."""
LABEL_REQUESTS = 48
"""Of a split; where labels lie together, each brings thousands."""
LABELS = 5000
"""Of a split: seconds of reading."""
LARGEST_TEXT = 16 << 20
LARGEST_LABEL = 1 << 20
LARGEST_PICTURE = 16 << 20
MOST_BYTES = 256 << 20
"""Of one kind of file in a split: a bound for sets that are made to fill a disk."""
MOST_FILES = 2_000_000
YAML = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class SplitSample:
    """One split: what there is by name, and what was read of it."""

    split: Split
    pictures: int
    label_files: int
    """Pictures that have one; the others are background."""
    labels_read: int
    pictures_read: int
    objects: tuple[int, ...]
    """Count by class id, in the labels that were read."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A set elsewhere in which nothing was found that could not be trained on."""

    names: tuple[str, ...]
    splits: tuple[SplitSample, ...]
    notes: tuple[Note, ...]
    traffic: Traffic

    def lines(self) -> list[str]:
        """The set as text, a few lines for a person."""
        return [_line(split, self.names) for split in self.splits]


def check_sample(source: Elsewhere, folder: Path) -> Sampled:
    """Check a set elsewhere, in `folder`, which must not be there yet.

    Raises DatasetError for what cannot be trained on, as far as the names and the sample show it.
    """
    laid_out = _LaidOut(source, folder)
    laid_out.fill(_data_files(source))
    data = read_data_file(find_data_file(folder))
    laid_out.fill(_lists(source, data))
    listings = list_all(data)
    for listing in listings:
        _refuse_unlabelled(data, listing)
    labels = laid_out.fill(_labels(listings, laid_out))
    known = [_only(listing, labels, laid_out) for listing in listings]
    pictures = laid_out.fill(_pictures(known, laid_out))

    def check(image: Path) -> PictureCheck:
        return PictureCheck.PIXELS if laid_out.name(image) in pictures else PictureCheck.NAMES

    samples, notes = read_listings(data, known, check)
    notes += [*_empty(listings, laid_out), *_overlaps(data, listings, laid_out)]
    counted = tuple(
        SplitSample(
            listing.split,
            pictures=len(listing.pairs),
            label_files=_labelled(listing),
            labels_read=_labelled(part),
            pictures_read=sum(laid_out.name(image) in pictures for image, _ in listing.pairs),
            objects=class_counts(samples[listing.split], len(data.names)),
        )
        for listing, part in zip(listings, known, strict=True)
    )
    return Sampled(data.names, counted, tuple(dict.fromkeys(notes)), source.traffic)


def _labelled(listing: Listing) -> int:
    return sum(label is not None for _, label in listing.pairs)


class _LaidOut:
    """The names of a set as files in a folder, and the content of some."""

    def __init__(self, source: Elsewhere, folder: Path) -> None:
        """Raises DatasetError where there are too many, or where one is a folder too."""
        self.source = source
        self.folder = folder
        if len(source.sizes) > MOST_FILES:
            hint = "check it where it is unpacked"
            raise DatasetError(f"{source.name}: {len(source.sizes)} files are too many to be looked through", hint)
        try:
            for parent in {name.rpartition("/")[0] for name in source.sizes} | {""}:
                (folder / parent).mkdir(parents=True, exist_ok=True)
            for name in source.sizes:
                os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_EXCL))  # a Path costs three times this
        except OSError as error:
            hint = "give each file a name of its own, and see that the disk has room for many small files"
            raise DatasetError(f"{source.name}: {error.filename}: {error.strerror}", hint) from error

    def name(self, path: Path) -> str:
        """What the file at `path` is called in the set. Raises DatasetError for one of this machine."""
        plain, root = os.path.normpath(path), f"{self.folder}/"
        name = plain[len(root) :] if plain.startswith(root) else ""
        if name not in self.source.sizes:
            hint = "let the paths in data.yaml and in its lists start from its own folder"
            raise DatasetError(f"{plain}: is on this machine, not in {self.source.name}", hint)
        return name

    def fill(self, names: Iterable[str]) -> frozenset[str]:
        """Read these and put their content in place; their names."""
        wanted = list(dict.fromkeys(names))
        for name, content in self.source.read(wanted):
            (self.folder / name).write_bytes(content)
        return frozenset(wanted)


def _data_files(source: Elsewhere) -> list[str]:
    """What may be data.yaml."""
    near = (name for name in source.sizes if name.endswith(YAML) and name.count("/") <= 1)
    return _within(_up_to(LARGEST_TEXT, near, source), source)


def _lists(source: Elsewhere, data: DataFile) -> list[str]:
    """What may be the list files that data.yaml names."""
    parts = [Written.parse(entry.text).parts for entries in data.splits.values() for entry in entries]
    wanted = {last[-1] for last in parts if last and last[-1].lower().endswith(".txt")}
    named = (name for name in source.sizes if name.rpartition("/")[2] in wanted)
    return _within(_up_to(LARGEST_TEXT, named, source), source)


def _refuse_unlabelled(data: DataFile, listing: Listing) -> None:
    if listing.split is not Split.TEST and not any(label for _, label in listing.pairs):
        raise no_labels(data, listing.split, [image for image, _ in listing.pairs])


def _pictures(listings: Sequence[Listing], laid_out: _LaidOut) -> list[str]:
    """The sample of pictures, of those with a label file where possible."""
    chosen: list[str] = []
    for listing in listings:
        labelled = [laid_out.name(image) for image, label in listing.pairs if label is not None]
        names = labelled or [laid_out.name(image) for image, _ in listing.pairs]
        chosen += _within(evenly(_up_to(LARGEST_PICTURE, names, laid_out.source), PICTURES), laid_out.source)
    return chosen


def _labels(listings: Sequence[Listing], laid_out: _LaidOut) -> list[str]:
    """The sample of label files."""
    source = laid_out.source
    chosen: list[str] = []
    for listing in listings:
        names = [laid_out.name(label) for _, label in listing.pairs if label is not None]
        at_hand = source.pick(_up_to(LARGEST_LABEL, names, source), LABEL_REQUESTS)
        chosen += _within(evenly(at_hand, LABELS), source)
    return chosen


def _up_to(largest: int, names: Iterable[str], source: Elsewhere) -> list[str]:
    return [name for name in names if source.sizes[name] <= largest]


def _within(names: Sequence[str], source: Elsewhere) -> list[str]:
    """The first of these, as many as take no more than MOST_BYTES."""
    sums = accumulate(source.sizes[name] for name in names)
    return [name for name, total in zip(names, sums, strict=True) if total <= MOST_BYTES]


def _only(listing: Listing, labels: frozenset[str], laid_out: _LaidOut) -> Listing:
    """The pictures of which is known what is in them."""
    known = (pair for pair in listing.pairs if pair[1] is None or laid_out.name(pair[1]) in labels)
    return replace(listing, pairs=tuple(known))


def _empty(listings: Sequence[Listing], laid_out: _LaidOut) -> list[Note]:
    """Pictures without content: all of them, since sizes are known of all."""
    images = [image for listing in listings for image, _ in listing.pairs]
    empty = [image for image in images if not laid_out.source.sizes[laid_out.name(image)]]
    return [Note(NoteKind.SKIPPED, EMPTY, image) for image in empty]


def _overlaps(data: DataFile, listings: Sequence[Listing], laid_out: _LaidOut) -> list[Note]:
    """Pictures of val that are in train, too: all of them, since names and fingerprints are known of all."""
    images = {listing.split: [image for image, _ in listing.pairs] for listing in listings}
    train, val = images[Split.TRAIN], images[Split.VAL]
    shared = shared_pictures(data, train, val)
    if shared:
        return shared
    known = {laid_out.source.fingerprint(laid_out.name(image)): image for image in train}
    known.pop(None, None)
    twins = ((image, known.get(laid_out.source.fingerprint(laid_out.name(image)))) for image in val)
    return copied_pictures(data, [(image, twin) for image, twin in twins if twin is not None], len(val))


def _line(split: SplitSample, names: tuple[str, ...]) -> str:
    without = split.pictures - split.label_files
    background = f", {without} of them without a label file" if without else ""
    read = "all" if split.labels_read == split.label_files else f"a sample of {split.labels_read}"
    labels = f"{read} of {split.label_files} label files read: {listed(names, split.objects)}"
    return f"{split.split.value}: {split.pictures} pictures{background}, {split.pictures_read} of them opened; {labels}"
