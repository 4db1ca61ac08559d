"""Which pictures a split has and which label file belongs to each. Opens list files, no picture and no label file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remote.dataset.datafile import DataFile
from remote.dataset.files import read_regular
from remote.dataset.pictures import FOREIGN_SUFFIXES, SUFFIXES
from remote.dataset.places import Place, Written, bases, exists, locate
from remote.dataset.values import DatasetError, Note, NoteKind, Split

LISTS = frozenset({".txt"})
NOT_LABELS = frozenset({"classes.txt", "readme.txt", "notes.txt"})
"""Files that labelling tools leave among the labels."""
TOLERATED = 0.1
"""More than this share of a list's pictures missing is a wrong list, not a few lost files."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The pictures of one split in a fixed order, each with its label file if it has one."""

    split: Split
    pairs: tuple[tuple[Path, Path | None], ...]
    notes: tuple[Note, ...]


def list_all(data: DataFile) -> list[Listing]:
    """Find the pictures of every split that data.yaml has. Raises DatasetError as `list_split` does."""
    return [list_split(data, split) for split in Split if data.splits[split]]


def list_split(data: DataFile, split: Split) -> Listing:
    """Find the pictures of a split. Raises DatasetError: a place is missing, or there is no picture in it."""
    notes: list[Note] = []
    counts: list[tuple[Place, int]] = []
    pictures: dict[Path, None] = {}
    for entry in data.splits[split]:
        place, note = locate(data, entry)
        notes += [] if note is None else [note]
        found = _pictures(data, place, notes)
        if not found:
            hint = f"put pictures there ({', '.join(sorted(SUFFIXES))}) or change `{entry.key}`"
            raise DatasetError(f"{data.file}:{entry.line}: no pictures in {place.path} (`{entry.key}`)", hint)
        counts.append((place, len(found)))
        pictures.update(dict.fromkeys(found))
    if len(counts) > 1:
        notes.append(_counts(data, split, counts))
    folders = [place.path for place, _ in counts if place.path.is_dir()]
    return Listing(split, tuple(_with_labels(pictures, folders, notes)), tuple(notes))


def label_path(image: Path) -> Path:
    """Where a picture's label file is by the rule: the last folder `images` becomes `labels`, the suffix `.txt`."""
    return _label_folder(image.parent) / f"{image.stem}.txt"


def _label_folder(folder: Path) -> Path:
    parts = list(folder.parts)
    for index in range(len(parts) - 1, -1, -1):
        if parts[index].lower() == "images":
            parts[index] = {"images": "labels", "Images": "Labels", "IMAGES": "LABELS"}.get(parts[index], "labels")
            return Path(*parts)
    return folder


def _pictures(data: DataFile, place: Place, notes: list[Note]) -> list[Path]:
    if place.path.is_dir():
        return _in_folder(place.path, notes)
    if place.path.suffix.lower() in LISTS:
        return _in_list(data, place.path, notes)
    hint = "give a folder of pictures, or a .txt file with one picture a line"
    raise DatasetError(f"{data.file}:{place.entry.line}: {place.path} is neither a folder nor a .txt list", hint)


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders below, sorted, with their files; what begins with a dot (macOS leaves such files) is not looked at."""

    def unreadable(error: OSError) -> None:
        raise DatasetError(f"{error.filename}: {error.strerror}", "make the folder readable") from error

    for name, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(inner for inner in folders if not inner.startswith((".", "__MACOSX")))
        yield Path(name), sorted(file for file in files if not file.startswith("."))


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122  # called for each file of a set: a Path costs ten times this


def _in_folder(folder: Path, notes: list[Note]) -> list[Path]:
    pictures: list[Path] = []
    foreign: Counter[str] = Counter()
    for inner, files in _walk(folder):
        pictures += [inner / name for name in files if _suffix(name) in SUFFIXES]
        foreign.update(_suffix(name) for name in files if _suffix(name) in FOREIGN_SUFFIXES)
    if foreign:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in sorted(foreign.items()))
        notes.append(Note(NoteKind.COUNT, f"files of kinds that are not read, left out: {kinds}", folder))
    return pictures


def _in_list(data: DataFile, file: Path, notes: list[Note]) -> list[Path]:
    starts = list(dict.fromkeys([file.parent, *bases(data)]))
    found: list[Path] = []
    missing: list[Note] = []
    for number, text in _lines(file):
        picture, starts = _listed(text, starts)
        if picture is None:
            missing.append(Note(NoteKind.SKIPPED, f"no such picture: {text}", file, number))
        else:
            found.append(picture)
    if len(missing) > TOLERATED * (len(missing) + len(found)):
        message = f"{missing[0]} ({len(missing)} of {len(missing) + len(found)} lines are like this)"
        tried = ", ".join(str(start) for start in starts)
        raise DatasetError(message, f"correct the list: a line is the path of a picture, tried from {tried}")
    notes += missing
    return found


def _lines(file: Path) -> list[tuple[int, str]]:
    try:
        text = read_regular(file).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{file}: this file is not UTF-8", "open it in an editor and save it as UTF-8") from error
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror}", "make the list readable") from error
    return [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _listed(text: str, starts: list[Path]) -> tuple[Path | None, list[Path]]:
    """The picture a line means, and `starts` with the one that worked in front: the next line is like it."""
    written = Written.parse(text)
    for start in starts:
        if not written.foreign and exists(picture := written.below(start)):
            return picture, [start, *(other for other in starts if other != start)]
    for start in starts if written.foreign else ():
        for tail in written.tails():
            if exists(picture := start.joinpath(*tail)):
                return picture, starts
    return None, starts


def _counts(data: DataFile, split: Split, counts: list[tuple[Place, int]]) -> Note:
    each = ", ".join(f"{count} in {place.path}" for place, count in counts)
    return Note(NoteKind.COUNT, f"{split.value}: {each}", data.file, counts[0][0].entry.line)


def _with_labels(
    pictures: dict[Path, None], folders: list[Path], notes: list[Note]
) -> Iterator[tuple[Path, Path | None]]:
    """Pairs of picture and label. A folder's names are read once, instead of asking for each file."""
    by_folder: dict[Path, list[Path]] = {}
    for picture in pictures:
        by_folder.setdefault(picture.parent, []).append(picture)
    labels: dict[Path, Path | None] = {}
    for folder, inside in by_folder.items():
        found = _labels_of(folder, inside, notes)
        labels.update(found)
        if any(folder == top or top in folder.parents for top in folders):
            _note_strays(folder, inside, {label for label in found.values() if label is not None}, notes)
    _note_twins(labels, notes)
    for picture in pictures:
        yield picture, labels[picture]


def _labels_of(folder: Path, pictures: list[Path], notes: list[Note]) -> dict[Path, Path | None]:
    by_rule = _label_folder(folder)
    found = _matched(by_rule, pictures)
    if by_rule != folder and not any(found.values()):
        beside = _matched(folder, pictures)
        if any(beside.values()):
            notes.append(Note(NoteKind.PLACE, f"no labels in {by_rule}; those beside the pictures are used", folder))
            return beside
    return found


def _matched(folder: Path, pictures: list[Path]) -> dict[Path, Path | None]:
    names = _names_in(folder)
    return {picture: folder / name if (name := f"{picture.stem}.txt") in names else None for picture in pictures}


def _names_in(folder: Path) -> frozenset[str]:
    try:
        return frozenset(entry.name for entry in os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError as error:
        raise DatasetError(f"{folder}: {error.strerror}", "make the folder of labels readable") from error


def _note_strays(folder: Path, pictures: list[Path], used: set[Path], notes: list[Note]) -> None:
    where = next(iter(used)).parent if used else _label_folder(folder)
    if where == folder:
        return  # pictures and other text files share the folder: any .txt may be there
    stems = {picture.stem for picture in pictures}
    names = (name for name in _names_in(where) if name.endswith(".txt") and name.lower() not in NOT_LABELS)
    strays = sorted(name for name in names if name[: -len(".txt")] not in stems)
    if strays:
        more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
        notes.append(Note(NoteKind.COUNT, f"label files without a picture, ignored: {strays[0]}{more}", where))


def _note_twins(labels: dict[Path, Path | None], notes: list[Note]) -> None:
    owner: dict[Path, Path] = {}
    for picture, label in labels.items():
        if label is not None and (first := owner.setdefault(label, picture)) is not picture:
            notes.append(Note(NoteKind.COUNT, f"{first.name} and {picture.name} share this label file", label))
