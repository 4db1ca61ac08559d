"""Pictures as other layouts describe them: boxes in pixels, classes by name. Pure; knows no file format."""

from __future__ import annotations

import math
from dataclasses import dataclass

from remote.dataset.values import Object

SAME_FORM = 0.02
"""Width to height may differ by this share between two sizes of one picture: the rounding of a tool that scaled it."""

MOST_PIXELS = 1_000_000
"""No side of a picture, and no coordinate in one, is as large."""


@dataclass(frozen=True, slots=True)
class PixelBox:
    """One labelled object: corners in pixels of the picture that was labelled, counted from 0 at its edge."""

    name: str
    x0: float
    y0: float
    x1: float
    y1: float
    line: int | None = None
    """Of the file that says so, where it has lines."""


@dataclass(frozen=True, slots=True)
class Annotated:
    """One picture and its boxes."""

    picture: str
    """Its file as written, which may be a path of another machine."""
    size: tuple[int, int] | None
    """Width and height as written; None where nothing usable is."""
    boxes: tuple[PixelBox, ...]


def misfit(written: tuple[int, int] | None, size: tuple[int, int]) -> str | None:
    """Why boxes for a picture of the `written` size are not those of a file of this `size`; None where they can be."""
    if written is None:
        return None
    (width, height), (wide, high) = written, size
    if math.isclose(width * high, height * wide, rel_tol=SAME_FORM):
        return None
    turned = ": labelled before it was turned?" if math.isclose(height * high, width * wide, rel_tol=SAME_FORM) else ""
    return f"its annotation is for a picture of {width}x{height}, the file has {wide}x{high}{turned}"


def fraction_box(box: PixelBox, cls: int, size: tuple[int, int]) -> Object | None:
    """The box as fractions of a picture of this size, cut at its border; None where nothing of it is in there."""
    xs, ys = (box.x0 / size[0], box.x1 / size[0]), (box.y0 / size[1], box.y1 / size[1])
    x0, x1, y0, y1 = (min(max(value, 0.0), 1.0) for value in (*xs, *ys))
    if x1 <= x0 or y1 <= y0:
        return None
    return Object(cls, (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0)


def leaves(box: PixelBox, size: tuple[int, int]) -> bool:
    """Whether a box leaves a picture of this size by more than a pixel: less is the rounding of a tool."""
    return min(box.x0, box.y0) < -1 or box.x1 > size[0] + 1 or box.y1 > size[1] + 1
