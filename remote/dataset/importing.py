"""From Pascal VOC or COCO to our layout: images/SPLIT, labels/SPLIT and data.yaml, in a new folder that appears whole.

Pictures are linked where the file system can, else copied. Classes are numbered in a fixed order: VOC's by name, COCO's
by category id. Whatever is not taken over is a note.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from remote.dataset.annotated import Annotated, fraction_box, leaves, misfit
from remote.dataset.coco import parse_coco
from remote.dataset.datafile import data_file_text
from remote.dataset.files import new_folder, read_regular
from remote.dataset.forms import Form, Layout, Part, find_form
from remote.dataset.labels import label_text
from remote.dataset.pictures import SUFFIXES, PictureError, picture_size
from remote.dataset.places import Written, exists
from remote.dataset.summary import SplitSummary, Summary
from remote.dataset.values import DatasetError, Note, NoteKind, Object, Split
from remote.dataset.voc import parse_voc

FORMS = "a folder with Annotations and JPEGImages (Pascal VOC), or with COCO's JSON files and pictures"


@dataclass(frozen=True, slots=True)
class Imported:
    """A set that was taken over."""

    layout: Layout
    root: Path
    summary: Summary
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A picture's description and its file."""

    file: Path
    """That of the description."""
    annotated: Annotated
    picture: Path


@dataclass(slots=True)
class _Reading:
    """What gathers while a set is read."""

    names: dict[str, None] = field(default_factory=dict)
    """COCO's classes, in order."""
    found: dict[Split, list[_Found]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    cut: int = 0
    """Boxes that leave their picture."""


def import_dataset(source: Path, target: Path) -> Imported:
    """Make a data set in our layout in `target`, which must be new or empty, of the one in the folder `source`.

    Raises DatasetError: no other layout in `source`, nothing usable in it, or `target` is taken.
    """
    form = find_form(source) if source.is_dir() else None
    if form is None:
        raise DatasetError(f"{source}: neither Pascal VOC nor COCO is in it, nor two folders down", f"give {FORMS}")
    reading = _read(form)
    names = tuple(reading.names or _sorted_names(reading))
    try:
        return _written(form, names, reading, target)
    except OSError as error:
        hint = "check the path, and the space on the disk"
        raise DatasetError(f"{target}: cannot be written: {error.strerror or error}", hint) from error


def _written(form: Form, names: tuple[str, ...], reading: _Reading, target: Path) -> Imported:
    with new_folder(target, "name a new folder for the data set") as partial:
        splits = tuple(_write(split, names, partial, reading) for split in reading.found)
        if not any(sum(split.objects) for split in splits):
            raise DatasetError(f"{form.root}: no usable box in it{_first(reading.notes)}", f"give {FORMS}")
        text = data_file_text(names, [split.split for split in splits if split.pictures])
        (partial / "data.yaml").write_text(text, encoding="utf-8")
    notes = tuple(dict.fromkeys((*_of_the_whole(form, reading), *reading.notes)))
    skipped = tuple(note for note in notes if note.kind is NoteKind.SKIPPED)
    return Imported(form.layout, target, Summary(names, splits, skipped, None, None), notes)


def _first(notes: list[Note]) -> str:
    return f"; the first remark: {notes[0]}" if notes else ""


def _sorted_names(reading: _Reading) -> list[str]:
    return sorted({box.name for found in reading.found.values() for one in found for box in one.annotated.boxes})


def _of_the_whole(form: Form, reading: _Reading) -> Iterator[Note]:
    if form.guessed:
        text = "nothing says which pictures are for train and which for val: all of them are in `train`"
        yield Note(NoteKind.PLACE, text, form.root)
    if not reading.found.get(Split.VAL):
        text = "there is no `val`: move some 10 to 20 percent of the pictures and labels there before a training"
        yield Note(NoteKind.PLACE, text, form.root)
    if form.unlisted:
        text = f"annotation files of pictures that are in no list, left out: {len(form.unlisted)}"
        yield Note(NoteKind.COUNT, text, form.unlisted[0])
    if reading.cut:
        yield Note(NoteKind.COUNT, f"boxes that leave their picture, cut at the border: {reading.cut}", form.root)


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(form: Form) -> _Reading:
    reading = _Reading()
    read = {Layout.VOC: _read_voc, Layout.COCO: _read_coco}[form.layout]
    for part in form.parts:
        reading.found[part.split] = list(read(part, reading))
    return reading


def _read_voc(part: Part, reading: _Reading) -> Iterator[_Found]:
    stems = _pictures_by_stem(part.folders)
    for file in part.files:
        try:
            annotated, notes = parse_voc(_content(file), file)
        except DatasetError as error:
            reading.notes.append(Note(NoteKind.SKIPPED, f"picture left out: {error}", file))
            continue
        reading.notes += notes
        picture = stems.get(file.stem) or _located(annotated, part.folders)
        if picture is None:
            reading.notes.append(_no_picture(annotated.picture or file.stem, part, file))
        else:
            yield _Found(file, annotated, picture)


def _pictures_by_stem(folders: tuple[Path, ...]) -> dict[str, Path]:
    """The first of each name: an XML file is called like its picture, whatever it says inside."""
    found = (path for folder in folders for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES)
    return {path.stem: path for path in reversed(list(found))}


def _read_coco(part: Part, reading: _Reading) -> Iterator[_Found]:
    (file,) = part.files
    said = parse_coco(_content(file), file)
    reading.names.update(dict.fromkeys(said.names))
    reading.notes += said.notes
    for annotated in said.pictures:
        picture = _located(annotated, part.folders)
        if picture is None:
            reading.notes.append(_no_picture(annotated.picture, part, file))
        else:
            yield _Found(file, annotated, picture)


def _content(file: Path) -> bytes:
    try:
        return read_regular(file)
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror}", "put the file there, and make it readable") from error


def _located(annotated: Annotated, folders: tuple[Path, ...]) -> Path | None:
    """The picture's file: its path as written, or the end of it, in one of the folders; never outside of them."""
    tails = list(Written.parse(annotated.picture).tails())
    candidates = (folder.joinpath(*tail) for tail in tails for folder in folders)
    return next((path for path in candidates if exists(path) and path.is_file()), None)


def _no_picture(name: str, part: Part, file: Path) -> Note:
    return Note(NoteKind.SKIPPED, f"there is no such picture, which {file.name} describes", part.folders[0] / name)


# -- writing -----------------------------------------------------------------------------------------------------------


def _write(split: Split, names: tuple[str, ...], root: Path, reading: _Reading) -> SplitSummary:
    """Write the pictures and labels of a split below `root`, and count them."""
    images, labels = (root / kind / split.value for kind in ("images", "labels"))
    ids = {name: number for number, name in enumerate(names)}
    written: dict[str, list[Object]] = {}
    for found in reading.found[split]:
        size = _usable_size(found, written, reading)
        if size is None:
            continue
        objects = list(_objects(found, size, ids, reading))
        for folder in (images, labels):
            folder.mkdir(parents=True, exist_ok=True)
        _take(found.picture, images / found.picture.name)
        (labels / f"{found.picture.stem}.txt").write_text(label_text(objects), encoding="utf-8")
        written[found.picture.stem] = objects
    background = sum(not objects for objects in written.values())
    counts = Counter(thing.cls for objects in written.values() for thing in objects)
    return SplitSummary(split, len(written), background, 0, tuple(counts[number] for number in range(len(names))))


def _usable_size(found: _Found, written: Collection[str], reading: _Reading) -> tuple[int, int] | None:
    """The size that the boxes of a picture are in; None, with a note, where it cannot be used."""
    try:
        size = picture_size(found.picture)
        trouble = misfit(found.annotated.size, size)
    except PictureError as error:
        trouble = error.reason
    if trouble is None and found.picture.stem in written:
        trouble = "left out: another picture of this split has its name"
    if trouble is not None:
        reading.notes.append(Note(NoteKind.SKIPPED, trouble, found.picture))
        return None
    return found.annotated.size or size


def _objects(found: _Found, size: tuple[int, int], ids: dict[str, int], reading: _Reading) -> Iterator[Object]:
    for box in found.annotated.boxes:
        thing = fraction_box(box, ids[box.name], size)
        if thing is None:
            text = f"box of {box.name!r} dropped: outside of its picture {found.picture.name}"
            reading.notes.append(Note(NoteKind.ROW, text, found.file, box.line))
        else:
            reading.cut += leaves(box, size)
            yield thing


def _take(picture: Path, target: Path) -> None:
    """Link a picture, or copy it to another file system."""
    source = picture.resolve()
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
