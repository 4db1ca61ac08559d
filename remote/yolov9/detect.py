"""Detection on pictures: a trained detector over files, to boxes in their own pixels, drawn pictures and label files.

Owns what happens to one picture. Knows nothing of command lines. Boxes are (x1, y1, x2, y2).
"""

from __future__ import annotations

import colorsys
import glob
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from remote.dataset import load_image
from remote.dataset.pictures import SUFFIXES
from remote.yolov9 import augment
from remote.yolov9.augment import Labelled
from remote.yolov9.boxes import NmsLimits
from remote.yolov9.data import padded, resized, to_input
from remote.yolov9.trained import Trained

_GOLDEN = 0.61803398875
"""Hues that far apart on the circle stay apart however many classes there are."""


@dataclass(frozen=True, slots=True)
class Found:
    """One object in a picture."""

    cls: int
    score: float
    box: tuple[float, float, float, float]
    """In pixels of the upright picture."""


def find_pictures(source: str) -> list[Path]:
    """The pictures of a file, a folder (not below it) or a glob pattern, by name."""
    path = Path(source)
    if path.is_dir():
        return sorted(each for each in path.iterdir() if each.suffix.lower() in SUFFIXES and each.is_file())
    if path.is_file():
        return [path]
    found = map(Path, glob.glob(source, recursive=True))  # noqa: PTH207 - a pattern as it is typed, absolute or not
    return sorted(each for each in found if each.suffix.lower() in SUFFIXES)


def detect(trained: Trained, picture: Image.Image, size: int, limits: NmsLimits) -> list[Found]:
    """The objects of an upright RGB picture, the best first; its longer side is brought to `size` before."""
    fitted = resized(picture, size)
    width, height = fitted.size
    whole_height, whole_width = padded(height, width)
    part = Labelled(np.asarray(fitted), np.zeros((0, 5), np.float32))
    canvas = augment.letterbox(part, whole_height, whole_width).picture
    device = next(trained.model.parameters()).device
    images = to_input(torch.from_numpy(canvas.copy()).permute(2, 0, 1)[None], device)
    found = trained.model.detect(images, limits)
    left, top = (whole_width - width) // 2, (whole_height - height) // 2
    moved = found.boxes[0] - torch.tensor([left, top, left, top], device=device)
    moved *= torch.tensor([picture.width / width, picture.height / height] * 2, device=device)
    most = torch.tensor([picture.width, picture.height] * 2, device=device)
    boxes = torch.minimum(moved.clamp(min=0), most).tolist()
    rows = zip(found.classes[0].tolist(), found.scores[0].tolist(), boxes, strict=True)
    return [Found(cls, score, (box[0], box[1], box[2], box[3])) for cls, score, box in rows if score > 0]


def detect_files(
    trained: Trained, pictures: Sequence[Path], size: int, limits: NmsLimits, classes: frozenset[int] = frozenset()
) -> Iterator[tuple[Path, Image.Image, list[Found]]]:
    """Each picture with what is on it; of `classes` alone where any are named. Raises PictureError."""
    for path in pictures:
        picture = load_image(path)
        found = detect(trained, picture, size, limits)
        yield path, picture, [one for one in found if not classes or one.cls in classes]


def label_text(found: Sequence[Found], size: tuple[int, int], *, scores: bool = False) -> str:
    """A line for each object: class, centre x and y, width, height as shares of the picture, and its score if asked."""
    lines = []
    for one in found:
        x1, y1, x2, y2 = one.box
        shares = ((x1 + x2) / 2 / size[0], (y1 + y2) / 2 / size[1], (x2 - x1) / size[0], (y2 - y1) / size[1])
        numbers = [*shares, one.score] if scores else shares
        lines.append(" ".join([str(one.cls), *(f"{number:.6g}" for number in numbers)]))
    return "".join(f"{line}\n" for line in lines)


def coco_rows(found: Sequence[Found], stem: str) -> list[dict[str, object]]:
    """Results as COCO has them: the picture by its number, or by its name where that is none; x, y, width, height."""
    picture = int(stem) if stem.isdecimal() else stem
    boxes = [(one, one.box) for one in found]
    return [
        {
            "image_id": picture,
            "category_id": one.cls,
            "bbox": [round(side, 3) for side in (x1, y1, x2 - x1, y2 - y1)],
            "score": round(one.score, 5),
        }
        for one, (x1, y1, x2, y2) in boxes
    ]


def unique_stems(paths: Sequence[Path]) -> list[str]:
    """The names of files without their suffix, with a number behind where one comes again."""
    seen: Counter[str] = Counter()
    stems = []
    for path in paths:
        seen[path.stem] += 1
        stems.append(path.stem if seen[path.stem] == 1 else f"{path.stem}-{seen[path.stem]}")
    return stems


def drawn(picture: Image.Image, found: Sequence[Found], names: Sequence[str], *, scores: bool = True) -> Image.Image:
    """A copy with a box, a name and, unless it is ground truth, a score for each object."""
    copy = picture.copy()
    draw = ImageDraw.Draw(copy)
    font = _font()
    width = max(1, round(max(picture.size) / 400))
    for one in reversed(found):  # the best on top
        colour = _colour(one.cls)
        draw.rectangle(one.box, outline=colour, width=width)
        text = f"{names[one.cls]} {one.score:.2f}" if scores else names[one.cls]
        # Above the box, and inside the picture: whatever is cut off there says nothing.
        corner = (max(0.0, min(one.box[0], copy.width - draw.textlength(text, font))), max(0.0, one.box[1] - 12))
        left, top, right, bottom = draw.textbbox(corner, text, font)
        draw.rectangle((left - 1, top - 1, right + 1, bottom + 1), fill=colour)
        draw.text(corner, text, fill="white", font=font)
    return copy


@cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """One with letters of many scripts where the system has it, for names of classes."""
    try:
        return ImageFont.truetype("DejaVuSans.ttf", 10)
    except (OSError, ImportError):
        return ImageFont.load_default()


def _colour(cls: int) -> tuple[int, int, int]:
    red, green, blue = colorsys.hls_to_rgb(cls * _GOLDEN % 1, 0.4, 0.8)
    return round(red * 255), round(green * 255), round(blue * 255)
