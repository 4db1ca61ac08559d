"""Label files: text to objects. Knows rows and nothing of pictures, folders or data.yaml.

A row is `class x_centre y_centre width height`, or `class x1 y1 x2 y2 x3 y3 ...`, a polygon, which is read as the box
around its points and kept beside it; all but the class are fractions of the picture. What is wrong with a row is a
value with its line number: one bad row never costs the good rows beside it.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from remote.dataset.files import read_regular
from remote.dataset.values import DatasetError, Object

ROW_FORM = "a row is `class x_centre y_centre width height`, all but the class as fractions of the picture (0 to 1)"
BOX_COLUMNS = 5
POLYGON_COLUMNS = 7
"""Class and three points: the least a polygon has. Every polygon has an odd number of columns."""
FURTHEST = 2.0
"""A fraction beyond this is no box that leaves its picture a little: it is in pixels."""
SMALLEST = 1e-5
"""A side below this fraction has no pixel in any picture that is trained on."""
VISIBLE = 1e-3
"""A box this far outside is told about; less is the rounding of the tool that wrote it."""
DECIMAL_COMMAS = re.compile(r"\d,\d.*[^,\s]\s+[^,\s]|[^,\s]\s+[^,\s].*\d,\d")


class RowKind(Enum):
    """What was found in a row, by what was done about it."""

    MALFORMED = "malformed"
    """Dropped: not a row of either form."""
    CLASS_RANGE = "class out of range"
    """Dropped: no such class."""
    NO_AREA = "no area"
    """Dropped: width or height is zero."""
    OUTSIDE = "outside"
    """Dropped: nothing of the box lies in the picture."""
    CENTRE_OUTSIDE = "centre outside"
    """Kept, cut at the border, though most of it lies outside."""
    CLIPPED = "clipped"
    """Kept, cut at the border."""
    POLYGON = "polygon"
    """Kept, as the box around it."""
    COMMAS = "commas"
    """Kept: commas were read as spaces."""
    DUPLICATE = "duplicate"
    """Dropped: the same row again."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark on one row."""

    line: int
    kind: RowKind
    text: str


@dataclass(frozen=True, slots=True)
class Labels:
    """The content of one label file."""

    objects: tuple[Object, ...]
    findings: tuple[Finding, ...]

    @property
    def refusal(self) -> Finding | None:
        """Why nothing in this file can be used, if so: its picture is then no background picture but unlabelled."""
        if self.objects:
            return None
        return next((finding for finding in self.findings if finding.kind is RowKind.MALFORMED), None)


class _BadRow(Exception):
    def __init__(self, kind: RowKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def read_labels(path: Path, classes: int) -> Labels:
    """Parse a label file for a set of `classes` classes. Raises DatasetError where it cannot be opened."""
    try:
        data = read_regular(path)
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}", "make the label file readable") from error
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return Labels((), (Finding(1, RowKind.MALFORMED, "is not a text file"),))
    return parse_labels(text, classes)


def label_text(objects: Iterable[Object]) -> str:
    """The text of a label file."""
    return "".join(f"{thing.cls} {thing.cx:.6f} {thing.cy:.6f} {thing.w:.6f} {thing.h:.6f}\n" for thing in objects)


def parse_labels(text: str, classes: int) -> Labels:
    """Objects and findings of a label file's text. Total: every text has an answer."""
    objects: dict[Object, None] = {}  # keeps the order and sees repeated rows
    findings: list[Finding] = []
    for line, row in _rows(text):
        remarks: list[Finding] = []
        try:
            found = _parse_row(row, classes, line, remarks)
        except _BadRow as bad:
            findings.append(Finding(line, bad.kind, str(bad)))
            continue
        if found in objects:
            findings.append(Finding(line, RowKind.DUPLICATE, "repeats a row above"))
            continue
        objects[found] = None
        findings += remarks
    return Labels(tuple(objects), tuple(findings))


def _rows(text: str) -> Iterator[tuple[int, str]]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return ((number, row) for number, line in enumerate(lines, 1) if (row := line.strip()))


def _parse_row(row: str, classes: int, line: int, remarks: list[Finding]) -> Object:
    numbers = _numbers(row, line, remarks)
    cls = _class_id(numbers[0], classes)
    if len(numbers) == BOX_COLUMNS:
        (cx, cy, w, h), outline = numbers[1:], b""
        if w < 0 or h < 0:
            raise _BadRow(RowKind.MALFORMED, f"negative width or height; {ROW_FORM}")
    else:
        points = [min(max(number, 0.0), 1.0) for number in numbers[1:]]
        (cx, cy, w, h), outline = _around(points), array("f", points).tobytes()
        remarks.append(Finding(line, RowKind.POLYGON, "polygon read as the box around it"))
    return _inside(Object(cls, cx, cy, w, h, outline), line, remarks)


def _numbers(row: str, line: int, remarks: list[Finding]) -> list[float]:
    if "," in row:
        if DECIMAL_COMMAS.search(row):
            raise _BadRow(RowKind.MALFORMED, "decimal commas: write 0.5 instead of 0,5")
        remarks.append(Finding(line, RowKind.COMMAS, "commas between the numbers were read as spaces"))
        row = row.replace(",", " ")
    try:
        numbers = [float(part) for part in row.split()]
    except ValueError:
        raise _BadRow(RowKind.MALFORMED, f"not a number in {row[:60]!r}; {ROW_FORM}") from None
    if not all(map(math.isfinite, numbers)):
        raise _BadRow(RowKind.MALFORMED, "a number is nan or infinite")
    if len(numbers) != BOX_COLUMNS and (len(numbers) < POLYGON_COLUMNS or len(numbers) % 2 == 0):
        score = "; is one of them a score?" if len(numbers) == BOX_COLUMNS + 1 else ""
        raise _BadRow(RowKind.MALFORMED, f"{len(numbers)} columns are neither a box nor a polygon{score}; {ROW_FORM}")
    if any(abs(number) > FURTHEST for number in numbers[1:]):
        raise _BadRow(RowKind.MALFORMED, f"coordinates are in pixels? {ROW_FORM}")
    return numbers


def _class_id(number: float, classes: int) -> int:
    if number != int(number):
        raise _BadRow(RowKind.MALFORMED, f"class {number:g} is not a whole number; {ROW_FORM}")
    cls = int(number)
    if not 0 <= cls < classes:
        raise _BadRow(RowKind.CLASS_RANGE, f"class {cls}, allowed 0-{classes - 1}")
    return cls


def _around(points: list[float]) -> tuple[float, float, float, float]:
    x0, x1, y0, y1 = min(points[0::2]), max(points[0::2]), min(points[1::2]), max(points[1::2])
    return (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0


def _inside(box: Object, line: int, remarks: list[Finding]) -> Object:
    x0, x1, y0, y1 = box.cx - box.w / 2, box.cx + box.w / 2, box.cy - box.h / 2, box.cy + box.h / 2
    if box.w < SMALLEST or box.h < SMALLEST:
        raise _BadRow(RowKind.NO_AREA, f"box of width {box.w:g} and height {box.h:g} dropped")
    beyond = max(-x0, x1 - 1, -y0, y1 - 1)
    if beyond <= 0:
        return box
    x0, x1, y0, y1 = max(x0, 0.0), min(x1, 1.0), max(y0, 0.0), min(y1, 1.0)
    if x1 - x0 < SMALLEST or y1 - y0 < SMALLEST:
        raise _BadRow(RowKind.OUTSIDE, "box outside the picture dropped")
    if not (0 <= box.cx <= 1 and 0 <= box.cy <= 1):
        remarks.append(Finding(line, RowKind.CENTRE_OUTSIDE, "centre outside the picture: cut at the border"))
    elif beyond > VISIBLE:
        remarks.append(Finding(line, RowKind.CLIPPED, "box leaves the picture: cut at the border"))
    return Object(box.cls, (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0, box.outline)
