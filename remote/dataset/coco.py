"""COCO: one JSON file of pictures, categories and boxes to values. Opens nothing.

Boxes are `[x, y, width, height]` in pixels. Polygons are not read: each annotation has its box. Regions of crowds are
left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from remote.dataset.annotated import MOST_PIXELS, Annotated, PixelBox
from remote.dataset.values import DatasetError, Note, NoteKind

FORM = "it should hold lists called images, annotations and categories"

Record = Mapping[str, object]
Id = int | str


@dataclass(frozen=True, slots=True)
class CocoFile:
    """What a JSON file says."""

    names: tuple[str, ...]
    """Classes in the order of their category ids; a supercategory that no box uses is none."""
    pictures: tuple[Annotated, ...]
    notes: tuple[Note, ...]


@dataclass(slots=True)
class _Boxes:
    """What gathers while annotations are read."""

    by_picture: dict[Id, list[PixelBox]]
    notes: list[Note] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    used: set[str] = field(default_factory=set)


def parse_coco(content: bytes, file: Path) -> CocoFile:
    """Pictures and boxes of a JSON file; a bad record is left out with a note. Raises DatasetError for another form."""
    document = _document(content, file)
    notes: list[Note] = []
    categories = _categories(_records(document, "categories", file), file, notes)
    images = _images(_records(document, "images", file), file, notes)
    boxes = _Boxes({key: [] for key in images})
    for number, record in enumerate(_records(document, "annotations", file)):
        _add(record, number, categories, boxes, file)
    names, unused = _classes(_records(document, "categories", file), categories, boxes.used, file)
    pictures = tuple(_picture(image, boxes.by_picture[key]) for key, image in images.items())
    return CocoFile(names, pictures, (*notes, *unused, *boxes.notes, *_counts(boxes, file)))


def _document(content: bytes, file: Path) -> Record:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{file}: is not JSON: {error}", FORM) from error
    if not isinstance(document, dict):
        raise DatasetError(f"{file}: is no COCO file", FORM)
    return document


def _records(document: Record, key: str, file: Path) -> list[Record]:
    found = document.get(key)
    if not isinstance(found, list):
        raise DatasetError(f"{file}: is no COCO file: it has no list called {key}", FORM)
    return [record for record in found if isinstance(record, dict)]


def _categories(records: list[Record], file: Path, notes: list[Note]) -> dict[Id, str]:
    """Name by category id."""
    found: dict[Id, str] = {}
    for record in records:
        key, name = _key(record.get("id")), _text(record.get("name"))
        if key is None or not name:
            notes.append(Note(NoteKind.ROW, f"category left out, it has no id or no name: {_short(record)}", file))
        elif found.setdefault(key, name) != name:
            raise DatasetError(f"{file}: category {key} has two names, {found[key]!r} and {name!r}", "keep one")
    return found


def _images(records: list[Record], file: Path, notes: list[Note]) -> dict[Id, Record]:
    """Record by image id."""
    found: dict[Id, Record] = {}
    for record in records:
        key, name = _key(record.get("id")), _text(record.get("file_name"))
        if key is None or not name:
            notes.append(Note(NoteKind.SKIPPED, f"it has no id or no file_name: {_short(record)}", file))
        elif found.setdefault(key, record) is not record:
            notes.append(Note(NoteKind.SKIPPED, f"image id {key} is taken already: {name}", file))
    return found


def _key(value: object) -> Id | None:
    """An id that can be looked up; None for anything else."""
    return value if isinstance(value, int | str) else None


def _text(value: object) -> str:
    """A value as text that can be written: JSON may hold halves of characters, which no encoding has."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode().strip()


def _short(record: Record) -> str:
    return repr(record)[:80]


def _add(record: Record, number: int, categories: dict[Id, str], boxes: _Boxes, file: Path) -> None:
    image = _key(record.get("image_id"))
    if image is None or image not in boxes.by_picture:
        boxes.counted["annotations of pictures that are not in `images`, left out"] += 1
    elif record.get("iscrowd") == 1:
        boxes.counted["regions of crowds, left out"] += 1
    else:
        box = _box(record, categories)
        if isinstance(box, PixelBox):
            boxes.by_picture[image].append(box)
            boxes.used.add(box.name)
        else:
            text = f"annotation {record.get('id', f'number {number + 1}')} dropped: {box}"
            boxes.notes.append(Note(NoteKind.ROW, text, file))


def _box(record: Record, categories: dict[Id, str]) -> PixelBox | str:
    """The box of an annotation, or what is wrong with it."""
    category = _key(record.get("category_id"))
    if category is None or category not in categories:
        return f"category {category} is not in `categories`"
    numbers = record.get("bbox")
    if not isinstance(numbers, list) or len(numbers) != 4 or not all(map(_is_coordinate, numbers)):
        return f"its bbox is not four numbers: {numbers!r:.60}"
    x, y, width, height = numbers
    if width <= 0 or height <= 0:
        return f"box of {categories[category]!r} without area: width {width:g} and height {height:g}"
    return PixelBox(categories[category], x, y, x + width, y + height)


def _is_coordinate(value: object) -> bool:
    return isinstance(value, int | float) and -MOST_PIXELS < value < MOST_PIXELS  # nan is not


def _classes(
    records: list[Record], categories: dict[Id, str], used: set[str], file: Path
) -> tuple[tuple[str, ...], list[Note]]:
    above = {str(record.get("supercategory")) for record in records}
    order = sorted(categories, key=lambda key: (0, key, "") if isinstance(key, int) else (1, 0, key))
    names = dict.fromkeys(categories[key] for key in order)
    kept = tuple(name for name in names if name in used or name not in above or _names_itself(name, records))
    text = "category {!r} left out: it is only a supercategory, and no box uses it"
    return kept, [Note(NoteKind.COUNT, text.format(name), file) for name in names if name not in kept]


def _names_itself(name: str, records: list[Record]) -> bool:
    """Whether a category is its own supercategory, and no other's."""
    return {record.get("name") for record in records if record.get("supercategory") == name} == {name}


def _picture(record: Record, boxes: list[PixelBox]) -> Annotated:
    width, height = record.get("width"), record.get("height")
    size = None
    if (
        isinstance(width, int)
        and isinstance(height, int)
        and 0 < min(width, height) <= max(width, height) < MOST_PIXELS
    ):
        size = (width, height)
    return Annotated(_text(record["file_name"]), size, tuple(boxes))


def _counts(boxes: _Boxes, file: Path) -> Iterator[Note]:
    return (Note(NoteKind.COUNT, f"{count} {text}", file) for text, count in sorted(boxes.counted.items()))
