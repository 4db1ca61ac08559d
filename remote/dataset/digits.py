"""The quickstart data set: handwritten digits pasted over textures, made on first use and never shipped.

The digits are those that scikit-learn bundles (8x8 pixels, ten classes; UCI "Optical Recognition of Handwritten
Digits", E. Alpaydin and C. Kaynak, CC BY 4.0). A digit that appears in a picture of val appears in none of train, so
that the score is about handwriting not seen before. The same seed gives the same pictures.

Run as a program: `python -m remote.dataset.digits TARGET`.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from remote.dataset.datafile import data_file_text
from remote.dataset.labels import label_text
from remote.dataset.values import DatasetError, Object, Split

RECIPE = 1
"""Goes up when the pictures change, so that an older set is not taken for this one."""
CLASSES = 10
VAL_SHARE = 0.2
"""Of the bundled digits, kept for the pictures of val."""
MOST_PER_PICTURE = 6
SIDES = (24, 90)
"""Side of a digit's square in pixels, for pictures of 224; the square is a little wider than the ink."""
TURN_DEGREES = 10.0
LEAST_CONTRAST = 70
"""Between ink and ground, of 255."""
OVERLAP = 0.05
"""Of the smaller box, that another one may cover."""
TRIES = 40
SMALLEST_SIZE = 96
"""Below it the smallest digits cannot be told apart."""

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Digits:
    """The bundled digits of one split. N digits."""

    inks: Array
    """(N, 8, 8), 0 paper to 1 ink."""
    classes: NDArray[np.int64]
    """(N,)"""


def make_digits(target: Path, *, seed: int = 0, train: int = 200, val: int = 40, size: int = 224) -> Path:
    """Make the data set in the folder `target`, which appears whole; one made before with the same numbers is kept.

    `train` and `val` count pictures of `size` x `size` pixels. Raises DatasetError: something else is at `target`,
    scikit-learn is not installed, or `size` is too small.
    """
    if size < SMALLEST_SIZE:
        raise DatasetError(f"pictures of {size} pixels are too small for digits", f"use {SMALLEST_SIZE} or more")
    title = f"# handwritten digits, recipe {RECIPE}: seed {seed}, {train} + {val} pictures of {size} pixels\n"
    if target.exists():
        return _kept(target, title)
    digits = _bundled(seed)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for number, (split, count) in enumerate(((Split.TRAIN, train), (Split.VAL, val))):
            for index in range(count):
                rng = np.random.default_rng([seed, number, index])
                _write(partial, f"{split.value}/{index:04d}", *_picture(digits[split], size, rng))
        text = title + data_file_text([str(name) for name in range(CLASSES)], (Split.TRAIN, Split.VAL))
        (partial / "data.yaml").write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError:
        if not target.exists():
            raise
        return _kept(target, title)  # another run was quicker
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _kept(target: Path, title: str) -> Path:
    file = target / "data.yaml"
    if file.is_file() and file.read_text(encoding="utf-8").startswith(title):
        return target
    raise DatasetError(
        f"{target}: something else is there", "name a new folder, or delete this one if it is not needed"
    )


def _bundled(seed: int) -> dict[Split, Digits]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        hint = "pip install scikit-learn, or give a data set of your own"
        raise DatasetError("the quickstart data set needs scikit-learn, which carries its digits", hint) from error
    bundle = load_digits()
    inks, classes = bundle.images.astype(np.float32) / 16, bundle.target
    order = np.random.default_rng(seed).permutation(len(classes))
    held_out = round(len(order) * VAL_SHARE)
    parts = {Split.VAL: order[:held_out], Split.TRAIN: order[held_out:]}
    return {split: Digits(inks[part], classes[part]) for split, part in parts.items()}


def _picture(digits: Digits, size: int, rng: np.random.Generator) -> tuple[Image.Image, list[Object]]:
    canvas = _texture(size, rng)
    boxes: list[tuple[int, int, int, int]] = []
    objects: list[Object] = []
    for _ in range(rng.integers(1, MOST_PER_PICTURE + 1)):
        pick = int(rng.integers(len(digits.classes)))
        ink = _stroke(digits.inks[pick], size, rng)
        height, width = ink.shape
        place = _free_place(boxes, width, height, size, rng)
        if place is None:
            continue
        x, y = place
        boxes.append((x, y, x + width, y + height))
        _paste(canvas[y : y + height, x : x + width], ink, rng)
        box = (x + width / 2, y + height / 2, width, height)
        objects.append(Object(int(digits.classes[pick]), *(value / size for value in box)))
    return Image.fromarray(canvas.clip(0, 255).astype(np.uint8)), objects


def _texture(size: int, rng: np.random.Generator) -> Array:
    """(size, size, 3), 0 to 255: a ground colour with blotches, stripes and grain."""
    ground = rng.uniform(30, 225) + rng.uniform(-25, 25, 3)
    cells = int(rng.integers(2, 9))
    blotches = _smooth(rng.uniform(-1, 1, (cells, cells)), size)[..., None] * rng.uniform(5, 25, 3)
    y, x = np.mgrid[0:size, 0:size] / size
    angle, waves = rng.uniform(0, np.pi), rng.uniform(2, 20)
    stripes = np.sin((x * np.cos(angle) + y * np.sin(angle)) * waves * 2 * np.pi + rng.uniform(0, 6)) * rng.uniform(
        0, 9
    )
    grain = rng.normal(0, rng.uniform(1, 8), (size, size, 1))
    texture: Array = (ground + blotches + stripes[..., None] + grain).astype(np.float32)
    return texture


def _smooth(values: NDArray[np.float64], size: int) -> Array:
    image = Image.fromarray(values.astype(np.float32)).resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(image, dtype=np.float32)


def _stroke(digit: Array, size: int, rng: np.random.Generator) -> Array:
    """(h, w), 0 to 1: a digit enlarged, turned a little and cut to its ink."""
    shortest, longest = (side * size / 224 for side in SIDES)
    side = round(float(np.exp(rng.uniform(np.log(shortest), np.log(longest)))))
    framed = Image.fromarray((np.pad(digit, 1) * 255).astype(np.uint8))
    large = framed.resize((side * 10 // 8,) * 2, Image.Resampling.BICUBIC)
    turned = large.rotate(rng.uniform(-TURN_DEGREES, TURN_DEGREES), Image.Resampling.BICUBIC)
    grey = np.asarray(turned, dtype=np.float32) / 255
    ink: Array = np.clip((grey - 0.25) / 0.4, 0, 1).astype(np.float32)  # crisp, as a pen is
    rows, columns = np.flatnonzero(ink.max(1) > 0.2), np.flatnonzero(ink.max(0) > 0.2)
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _free_place(
    boxes: list[tuple[int, int, int, int]], width: int, height: int, size: int, rng: np.random.Generator
) -> tuple[int, int] | None:
    for _ in range(TRIES):
        x, y = int(rng.integers(0, size - width + 1)), int(rng.integers(0, size - height + 1))
        if all(_covered((x, y, x + width, y + height), other) <= OVERLAP for other in boxes):
            return x, y
    return None


def _covered(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> float:
    """Share of the smaller box that the other one covers."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return max(width, 0) * max(height, 0) / smaller


def _paste(ground: Array, ink: Array, rng: np.random.Generator) -> None:
    """Draw `ink` (h, w) into `ground` (h, w, 3) in a colour that stands out from it."""
    level = float(ground.mean())
    darker, lighter = level - LEAST_CONTRAST, 255 - level - LEAST_CONTRAST
    if rng.uniform() * (max(darker, 0) + max(lighter, 0)) < max(darker, 0):
        shade = rng.uniform(0, max(darker, 1))
    else:
        shade = rng.uniform(min(level + LEAST_CONTRAST, 254), 255)
    colour = np.clip(shade + rng.uniform(-30, 30, 3), 0, 255)
    alpha = ink[..., None] * rng.uniform(0.85, 1.0)
    ground += (colour.astype(np.float32) - ground) * alpha


def _write(root: Path, name: str, image: Image.Image, objects: list[Object]) -> None:
    picture, label = root / "images" / f"{name}.jpg", root / "labels" / f"{name}.txt"
    for path in (picture, label):
        path.parent.mkdir(parents=True, exist_ok=True)
    image.save(picture, quality=90)
    label.write_text(label_text(objects), encoding="utf-8")


def main() -> int:
    """Make the set in the folder that the command line names."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m remote.dataset.digits TARGET\n")
        return 2
    try:
        target = make_digits(Path(sys.argv[1]))
    except DatasetError as error:
        sys.stderr.write(f"{error}\n{error.hint}\n")
        return 2
    sys.stdout.write(f"{target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
