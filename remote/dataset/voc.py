"""Pascal VOC: the XML file of one picture to boxes. Opens nothing.

Coordinates are taken as written, as edges in pixels from 0; that `xmin` equals `xmax` is a box without area. `folder`
and `path` name places of the labelling machine and are not looked at.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from remote.dataset.annotated import MOST_PIXELS, Annotated, PixelBox
from remote.dataset.values import DatasetError, Note, NoteKind

LARGEST = 16 << 20
CORNERS = ("xmin", "ymin", "xmax", "ymax")
FORM = "one <annotation> with an <object> (name, bndbox) for each box"


def parse_voc(content: bytes, file: Path) -> tuple[Annotated, tuple[Note, ...]]:
    """The picture that an XML file describes; a bad object is left out with a note.

    Raises DatasetError for what is no such file, and for one that declares a document type: entities are not expanded.
    """
    if len(content) > LARGEST:
        raise DatasetError(f"{file}: {len(content)} bytes are too many for one picture", f"it should hold {FORM}")
    root = _tree(content, file)
    if root.tag != "annotation":
        raise DatasetError(f"{file}: is no Pascal VOC file: it begins with <{root.tag}>", f"it should hold {FORM}")
    boxes: list[PixelBox] = []
    notes: list[Note] = []
    for thing in root.findall("object"):
        box = _box(thing)
        if isinstance(box, PixelBox):
            boxes.append(box)
        else:
            notes.append(Note(NoteKind.ROW, f"object dropped: {box}", file, _line(thing)))
    return Annotated(root.findtext("filename", "").strip(), _size(root), tuple(boxes)), tuple(notes)


def _tree(content: bytes, file: Path) -> Element:
    """The elements of a document, each with its line in place of its attributes, of which VOC has none."""
    builder, parser = TreeBuilder(), expat.ParserCreate()

    def refuse(*_: object) -> NoReturn:
        raise DatasetError(f"{file}: declares a document type or entities", "an annotation needs neither: remove it")

    parser.StartDoctypeDeclHandler = refuse  # without a document type there are no entities to expand
    parser.StartElementHandler = lambda tag, _: builder.start(tag, {"line": str(parser.CurrentLineNumber)})
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(content, True)
        root: Element = builder.close()
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise DatasetError(f"{file}: is not XML: {error}", f"it should hold {FORM}") from error
    return root


def _line(element: Element) -> int:
    return int(element.attrib["line"])


def _box(thing: Element) -> PixelBox | str:
    """The box of an object, or what is wrong with it."""
    name, bounds = thing.findtext("name", "").strip(), thing.find("bndbox")
    if not name:
        return "it has no name"
    if bounds is None:
        return f"{name!r} has no bndbox"
    x0, y0, x1, y1 = (_number(bounds.findtext(corner, "")) for corner in CORNERS)
    if not all(abs(corner) < MOST_PIXELS for corner in (x0, y0, x1, y1)):
        return f"{name!r} needs {', '.join(CORNERS)} as numbers"
    if x0 >= x1 or y0 >= y1:
        return f"box of {name!r} without area: {x0:g} to {x1:g}, {y0:g} to {y1:g}"
    return PixelBox(name, x0, y0, x1, y1, _line(thing))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _size(root: Element) -> tuple[int, int] | None:
    """Tools that did not know it write 0."""
    width, height = (_number(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
    return (int(width), int(height)) if all(1 <= side < MOST_PIXELS for side in (width, height)) else None
