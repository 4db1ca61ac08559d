"""Which other layout a folder is in, Pascal VOC or COCO, and where its parts are. Reads names, and VOC's list files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from remote.dataset.files import read_regular
from remote.dataset.pictures import SUFFIXES
from remote.dataset.values import DatasetError, Split

SPLIT_WORDS = {
    "train": Split.TRAIN,
    "training": Split.TRAIN,
    "val": Split.VAL,
    "valid": Split.VAL,
    "validation": Split.VAL,
    "test": Split.TEST,
}
WORD = re.compile(r"[a-z]+")
COCO_NAMES = re.compile(r"coco|instances|annotations")
LISTS = ("train", "val", "test", "trainval")
"""Beside them VOC keeps lists for each class, with a mark behind each name."""
DEEPEST = 2
"""Folders down: VOCdevkit/VOC2012 in the folder that it was unpacked to."""
PICTURE_FOLDERS = ("JPEGImages", "images", "Images")


class Layout(str, Enum):
    """A layout other than ours, by the name people know."""

    VOC = "Pascal VOC"
    COCO = "COCO"


@dataclass(frozen=True, slots=True)
class Part:
    """One split of a set in another layout."""

    split: Split
    files: tuple[Path, ...]
    """VOC: an XML file for each picture, some of which may be missing. COCO: one JSON file."""
    folders: tuple[Path, ...]
    """Where pictures may be, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Form:
    """A set in another layout."""

    layout: Layout
    root: Path
    parts: tuple[Part, ...]
    """In the order of the splits."""
    guessed: bool = False
    """Nothing says which picture is for what: all of them are for training."""
    unlisted: tuple[Path, ...] = ()
    """Files of pictures that are in no split."""


def find_form(folder: Path) -> Form | None:
    """The set in another layout that is here or up to two folders down; None where there is none.

    Raises DatasetError where there are several to choose from.
    """
    places = [folder]
    for depth in range(DEEPEST + 1):
        if depth:
            places = [inner for place in places for inner in _folders(place)]
        found = [form for place in places for find in FINDERS if (form := find(place)) is not None]
        if len(found) > 1:
            listed = ", ".join(f"{form.root} ({form.layout.value})" for form in found)
            raise DatasetError(f"{folder}: several data sets: {listed}", "give the path of the one that is meant")
        if found:
            return found[0]
    return None


def _folders(place: Path) -> list[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(place) if entry.is_dir())
    except OSError as error:
        raise DatasetError(f"{place}: {error.strerror}", "make the folder readable") from error
    return [place / name for name in names if not name.startswith((".", "__MACOSX"))]


def _split_of(name: str) -> Split | None:
    """The split that a file or folder is named after."""
    found = {SPLIT_WORDS[word] for word in WORD.findall(name.lower()) if word in SPLIT_WORDS}
    return found.pop() if len(found) == 1 else None


def _voc(root: Path) -> Form | None:
    """VOC's own layout: Annotations, JPEGImages, and lists in ImageSets/Main."""
    annotations = root / "Annotations"
    files = sorted(annotations.glob("*.xml")) if annotations.is_dir() else []
    if not files:
        return None
    folders = (*(root / name for name in PICTURE_FOLDERS if (root / name).is_dir()), annotations)
    lists = dict(_lists(root / "ImageSets" / "Main"))
    if not lists:
        return Form(Layout.VOC, root, (Part(Split.TRAIN, tuple(files), folders),), guessed=True)
    parts = [
        Part(split, tuple(annotations / f"{name}.xml" for name in names), folders) for split, names in lists.items()
    ]
    listed = {file for part in parts for file in part.files}
    return Form(Layout.VOC, root, tuple(parts), unlisted=tuple(file for file in files if file not in listed))


def _lists(folder: Path) -> Iterator[tuple[Split, list[str]]]:
    """Names by split. `trainval`, without those of `val`, stands in for a `train` that is not there."""
    names = {
        list_file.stem: _listed(list_file) for list_file in sorted(folder.glob("*.txt")) if list_file.stem in LISTS
    }
    if "train" not in names and "trainval" in names:
        held_out = set(names.get("val", ()))
        names["train"] = [name for name in names["trainval"] if name not in held_out]
    return ((split, names[split.value]) for split in Split if split.value in names)


def _listed(file: Path) -> list[str]:
    try:
        text = read_regular(file).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{file}: cannot be read: {error}", "save it as UTF-8, one picture a line") from error
    lines = (Path(line.strip().replace("\\", "/")) for line in text.splitlines() if line.strip())
    return list(dict.fromkeys(line.stem if line.suffix.lower() in {*SUFFIXES, ".xml"} else line.name for line in lines))


def _voc_by_split(root: Path) -> Form | None:
    """XML files beside their pictures, in a folder for each split."""
    parts = [
        Part(split, tuple(files), (folder,))
        for folder in _folders(root)
        if (split := _split_of(folder.name)) is not None and (files := sorted(folder.glob("*.xml")))
    ]
    return Form(Layout.VOC, root, _ordered(parts, root)) if parts else None


def _coco(root: Path) -> Form | None:
    """JSON files here, in `annotations`, or in a folder for each split."""
    split_folders = [folder for folder in _folders(root) if _split_of(folder.name) is not None]
    places = (root, root / "annotations", *split_folders)
    files = [file for place in places for file in sorted(place.glob("*.json")) if _may_be_coco(file)]
    parts = [
        Part(split, (file,), _beside(file, root, split))
        for file in files
        if (split := _split_of(file.stem) or _split_of(file.parent.name)) is not None
    ]
    if parts:
        return Form(Layout.COCO, root, _ordered(parts, root))
    if len(files) == 1:
        part = Part(Split.TRAIN, (files[0],), _beside(files[0], root, Split.TRAIN))
        return Form(Layout.COCO, root, (part,), guessed=True)
    return None


def _may_be_coco(file: Path) -> bool:
    return file.parent.name == "annotations" or COCO_NAMES.search(file.stem.lower()) is not None


def _beside(file: Path, root: Path, split: Split) -> tuple[Path, ...]:
    """Beside the file, and in folders that are named like its split (`train2017`)."""
    above = (root, *(root / name for name in PICTURE_FOLDERS if (root / name).is_dir()))
    named = [inner for place in above for inner in _folders(place) if _split_of(inner.name) is split]
    return tuple(dict.fromkeys((file.parent, *named, *above)))


def _ordered(parts: list[Part], root: Path) -> tuple[Part, ...]:
    """One part for each split. COCO's own sets have several files for one; that of the boxes is `instances`."""
    by_split: dict[Split, list[Part]] = {}
    for part in parts:
        by_split.setdefault(part.split, []).append(part)
    return tuple(_only(by_split[split], root) for split in Split if split in by_split)


def _only(parts: list[Part], root: Path) -> Part:
    boxes = [part for part in parts if part.files[0].name.startswith("instances")]
    chosen = parts if len(parts) == 1 else boxes
    if len(chosen) != 1:
        listed = ", ".join(str(part.files[0].relative_to(root)) for part in parts)
        raise DatasetError(f"{root}: several files for `{parts[0].split.value}`: {listed}", "leave one there")
    return chosen[0]


FINDERS: tuple[Callable[[Path], Form | None], ...] = (_voc, _voc_by_split, _coco)
