"""Picture files: every kind that people train on, as upright 8-bit RGB. Knows nothing of labels and folders."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

from PIL import Image

from remote.dataset.files import open_regular, read_regular
from remote.dataset.values import DatasetError

SUFFIXES = frozenset({".bmp", ".jfif", ".jpe", ".jpeg", ".jpg", ".mpo", ".png", ".tif", ".tiff", ".webp"})
FOREIGN_SUFFIXES = frozenset({".avif", ".dng", ".gif", ".heic", ".heif", ".jp2", ".jxl", ".psd", ".svg"})
"""Pictures too, but not read here: a folder that holds some is told about."""
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")
SMALLEST_SIDE = 8
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"
EMPTY = "is empty (0 bytes)"
FILLER = bytes(range(1, 255)) * 8
BROKEN = (
    OSError, SyntaxError, ValueError, TypeError, IndexError, KeyError, EOFError, OverflowError,
    struct.error, zlib.error, Image.DecompressionBombError, Warning,
)  # fmt: skip
"""What Pillow raises on broken files, by itself and from the parsing beneath; warnings too, where they are errors."""


class PictureError(DatasetError):
    """This file cannot be used as a picture; `reason` is the message without the file's name."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}", "replace the file or take it out of the data set")
        self.reason = reason


def load_image(path: Path) -> Image.Image:
    """The picture as a viewer shows it: RGB, 8 bit, EXIF orientation applied, alpha dropped, 16 bit scaled to 8.

    A JPEG that lacks only its end marker is read. Raises PictureError for what is no picture, too small or cut off.
    """
    try:
        data = read_regular(path)
    except OSError as error:
        raise PictureError(path, f"cannot be read: {error.strerror}") from error
    image = _decoded(data, path)
    turn = TURNS.get(_orientation(image))
    colour = _rgb(image)
    return colour if turn is None else colour.transpose(turn)


def picture_size(path: Path) -> tuple[int, int]:
    """Width and height of the upright picture, from its header; a file whose end looks wrong is decoded as well.

    Raises PictureError as `load_image` does, but damage in the middle of a file goes unnoticed.
    """
    try:
        with open_regular(path) as file:
            image = _opened(file, path)
            size = image.size if _orientation(image) < 5 else image.size[::-1]
            complete = _has_its_end(file, image.format)
    except PictureError:
        raise
    except OSError as error:
        raise PictureError(path, f"cannot be read: {error.strerror}") from error
    return size if complete else load_image(path).size


def _opened(file: BinaryIO, path: Path) -> Image.Image:
    try:
        image = Image.open(file, formats=FORMATS)
    except BROKEN as error:
        file.seek(0)
        raise PictureError(path, _what_it_is(file.read(512))) from error
    if min(image.size) < SMALLEST_SIDE:
        raise PictureError(path, f"is too small: {image.width}x{image.height} pixels, at least {SMALLEST_SIDE} a side")
    return image


def _what_it_is(start: bytes) -> str:
    if not start:
        return EMPTY
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "is a web page, not a picture"
    if len(start) < 512 and start.isascii() and b"/" in start and b"\n" not in start.strip():
        return "is a text file with a path in it (a symbolic link that was checked out as text?), not a picture"
    return f"is not a picture of a known kind ({', '.join(FORMATS)})"


def _orientation(image: Image.Image) -> int:
    # A PNG is asked for EXIF only where its header has some: else Pillow decodes the picture to look behind it.
    if image.format == "PNG" and "exif" not in image.info:
        return 1
    try:
        value = image.getexif().get(ORIENTATION, 1)
    except BROKEN:
        return 1
    return value if isinstance(value, int) and value in TURNS else 1


def _has_its_end(file: BinaryIO, kind: str | None) -> bool:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 64))
    tail = file.read(64)
    if kind in ("JPEG", "MPO"):  # MPO: a JPEG with more pictures behind the first
        return JPEG_END in tail
    if kind == "PNG":
        return b"IEND" in tail
    if kind == "WEBP":
        file.seek(4)
        return int.from_bytes(file.read(4), "little") + 8 <= size
    return False  # nothing to look for: decoding tells


def _decoded(data: bytes, path: Path) -> Image.Image:
    image = _opened(io.BytesIO(data), path)
    try:
        image.load()
    except BROKEN as error:
        if data.startswith(JPEG_START) and (rescued := _without_end_marker(data)):
            return rescued
        raise PictureError(path, "is damaged or cut off: not all of the picture is there") from error
    return image


def _without_end_marker(data: bytes) -> Image.Image | None:
    """The picture, if only the end marker is missing.

    The decoder fills what is cut off from whatever follows. So two different endings are tried: where they give the
    same pixels, nothing was missing.
    """
    body = data.rstrip(b"\xff")
    first, second = (Image.open(io.BytesIO(body + ending), formats=FORMATS) for ending in (JPEG_END, FILLER + JPEG_END))
    try:
        same = first.tobytes() == second.tobytes()
    except BROKEN:
        return None
    return first if same else None


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        return _eight_bit(image).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA").convert("RGB")
    return image.convert("RGB")


def _eight_bit(image: Image.Image) -> Image.Image:
    """Gray of more than 8 bits: 16-bit values keep their black and white, others are stretched to theirs."""
    sixteen = image.mode.startswith("I;16") or image.format == "PNG"  # older versions of Pillow call it I
    wide = image.convert("I") if sixteen else image
    low, high = (float(bound) for bound in wide.getextrema())  # type: ignore[arg-type]  # one band, two numbers
    if sixteen:
        low, high = 0.0, float(0xFFFF)
    scale = 255.0 / (high - low) if high > low else 0.0
    return wide.convert("F").point(lambda value: value * scale - low * scale).convert("L")
