"""Augmentation as pure functions of pictures, labels and a random generator.

Mosaic, copy-paste, affine warp, mixup, HSV, flips. Owns geometry and colour. Knows nothing of files, samplers or torch.
Pictures are uint8 (H, W, 3) RGB; labels are float32 (N, 5): class, x1, y1, x2, y2 in pixels of their picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from remote.yolov9.config import Hyp

Picture = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.float32]
Outline = npt.NDArray[np.float32]
"""(M, 2): the points of a polygon in pixels; none of them where an object has a box alone."""
Rng = np.random.Generator

COVERED = 0.3
"""An object is not pasted where it would cover so much of another one's box."""
FILL = 114
"""Grey of what no picture covers."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A picture and its labels."""

    picture: Picture
    labels: Labels
    outlines: tuple[Outline, ...] = ()
    """One for each label, or none at all. Kept until objects are pasted, no further."""


def mosaic(parts: Sequence[Labelled], size: int, rng: Rng) -> Labelled:
    """Four pictures around a random centre of a canvas of 2 `size` x 2 `size`; what does not fit is cut off."""
    canvas = np.full((2 * size, 2 * size, 3), FILL, np.uint8)
    centre_x, centre_y = (int(c) for c in rng.uniform(0.5 * size, 1.5 * size, 2))
    labels = []
    outlines: list[Outline] = []
    for corner, part in enumerate(parts):
        height, width = part.picture.shape[:2]
        left = centre_x - width if corner % 2 == 0 else centre_x
        top = centre_y - height if corner < 2 else centre_y
        x1, y1, x2, y2 = max(left, 0), max(top, 0), min(left + width, 2 * size), min(top + height, 2 * size)
        canvas[y1:y2, x1:x2] = part.picture[y1 - top : y2 - top, x1 - left : x2 - left]
        labels.append(shift(part.labels, left, top))
        moved = (outline + np.array((left, top), np.float32) for outline in part.outlines)
        outlines += moved if part.outlines else [_BOX_ALONE] * len(part.labels)
    whole = np.concatenate(labels)
    np.clip(whole[:, 1:], 0, 2 * size, out=whole[:, 1:])
    return Labelled(canvas, whole, tuple(outlines) if any(map(len, outlines)) else ())


_BOX_ALONE: Outline = np.zeros((0, 2), np.float32)


def copy_paste(part: Labelled, share: float, rng: Rng) -> Labelled:
    """A share of the outlined objects once more, mirrored left to right, where they cover little of any other box."""
    outlined = [index for index, outline in enumerate(part.outlines) if len(outline)]
    count = round(share * len(outlined))
    if not count:
        return part
    width = part.picture.shape[1]
    labels = [part.labels]
    mask = Image.new("1", (width, part.picture.shape[0]))
    for index in rng.choice(outlined, count, replace=False):
        cls, x1, y1, x2, y2 = part.labels[index]
        pasted = np.array([[cls, width - x2, y1, width - x1, y2]], np.float32)
        if (_covered(pasted, np.concatenate(labels)) < COVERED).all():
            labels.append(pasted)
            ImageDraw.Draw(mask).polygon([(width - float(x), float(y)) for x, y in part.outlines[index]], fill=1)
    picture = np.where(np.asarray(mask)[..., None], part.picture[:, ::-1], part.picture)
    return Labelled(picture, np.concatenate(labels))


def _covered(box: Labels, others: Labels) -> npt.NDArray[np.float32]:
    """Share of each of `others` (N, 5) that lies in `box` (1, 5): (N,)."""
    sides = np.minimum(box[:, 3:], others[:, 3:]) - np.maximum(box[:, 1:3], others[:, 1:3])
    result: npt.NDArray[np.float32] = np.clip(sides, 0, None).prod(1) / np.maximum(_area(others), 1e-9)
    return result


def letterbox(part: Labelled, height: int, width: int) -> Labelled:
    """The picture in the middle of a grey canvas of `height` x `width`, which must hold it."""
    h, w = part.picture.shape[:2]
    top, left = (height - h) // 2, (width - w) // 2
    canvas = np.full((height, width, 3), FILL, np.uint8)
    canvas[top : top + h, left : left + w] = part.picture
    return Labelled(canvas, shift(part.labels, left, top))


def shift(labels: Labels, dx: float, dy: float) -> Labels:
    """Labels moved by (dx, dy) pixels; a copy."""
    moved = labels.copy()
    moved[:, 1::2] += dx
    moved[:, 2::2] += dy
    return moved


def warp_matrix(height: int, width: int, size: int, hyp: Hyp, rng: Rng) -> npt.NDArray[np.float64]:
    """A random 3 x 3 matrix from a picture of `height` x `width` to one of `size` x `size` around the same centre."""
    centre = np.eye(3)
    centre[:2, 2] = -width / 2, -height / 2
    perspective = np.eye(3)
    perspective[2, :2] = rng.uniform(-hyp.perspective, hyp.perspective, 2)
    angle, zoom = math.radians(rng.uniform(-hyp.degrees, hyp.degrees)), rng.uniform(1 - hyp.scale, 1 + hyp.scale)
    rotation = np.eye(3)
    rotation[:2, :2] = zoom * np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    shear = np.eye(3)
    shear[0, 1], shear[1, 0] = np.tan(np.radians(rng.uniform(-hyp.shear, hyp.shear, 2)))
    translation = np.eye(3)
    translation[:2, 2] = rng.uniform(0.5 - hyp.translate, 0.5 + hyp.translate, 2) * size
    result: npt.NDArray[np.float64] = translation @ shear @ rotation @ perspective @ centre
    return result


def warp(part: Labelled, matrix: npt.NDArray[np.float64], size: int) -> Labelled:
    """Picture and labels through `matrix` onto `size` x `size`; labels that shrink to little or nothing are dropped."""
    inverse = np.linalg.inv(matrix)
    inverse /= inverse[2, 2]
    method = Image.Transform.PERSPECTIVE if inverse[2, :2].any() else Image.Transform.AFFINE
    numbers = tuple(inverse.flatten()[: 8 if inverse[2, :2].any() else 6])
    image = Image.fromarray(part.picture).transform(
        (size, size), method, numbers, Image.Resampling.BILINEAR, fillcolor=(FILL,) * 3
    )
    return Labelled(np.asarray(image), _warp_labels(part.labels, matrix, size))


def _warp_labels(labels: Labels, matrix: npt.NDArray[np.float64], size: int) -> Labels:
    corners = labels[:, [1, 2, 3, 2, 3, 4, 1, 4]].reshape(-1, 4, 2)
    points = np.concatenate((corners, np.ones_like(corners[..., :1])), -1) @ matrix.T
    points = points[..., :2] / points[..., 2:]
    moved = labels.copy()
    moved[:, 1:3], moved[:, 3:5] = points.min(1), points.max(1)
    whole_area = _area(labels) * abs(np.linalg.det(matrix[:2, :2]))
    np.clip(moved[:, 1:], 0, size, out=moved[:, 1:])
    return moved[_worth_keeping(moved, whole_area)]


def _area(labels: Labels) -> npt.NDArray[np.float32]:
    area: npt.NDArray[np.float32] = (labels[:, 3] - labels[:, 1]) * (labels[:, 4] - labels[:, 2])
    return area


def _worth_keeping(labels: Labels, whole_area: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Wider and higher than 2 px, more than a tenth of the area left, and no thinner than 1 to 100."""
    width, height = labels[:, 3] - labels[:, 1], labels[:, 4] - labels[:, 2]
    aspect = np.maximum(width, height) / np.maximum(np.minimum(width, height), 1e-9)
    kept: npt.NDArray[np.bool_] = (width > 2) & (height > 2) & (_area(labels) > 0.1 * whole_area) & (aspect < 100)
    return kept


def mixup(a: Labelled, b: Labelled, rng: Rng) -> Labelled:
    """A blend of two pictures of one size, about half and half, with the labels of both."""
    share = rng.beta(32.0, 32.0)
    blend = Image.blend(Image.fromarray(b.picture), Image.fromarray(a.picture), share)
    return Labelled(np.asarray(blend), np.concatenate((a.labels, b.labels)))


def hsv(picture: Picture, hyp: Hyp, rng: Rng) -> Picture:
    """Hue, saturation and value each multiplied by a random factor near one; hue wraps round."""
    gains = 1 + rng.uniform(-1, 1, 3) * (hyp.hsv_h, hyp.hsv_s, hyp.hsv_v)
    steps = np.arange(256)
    tables = [steps * gains[0] % 256, np.minimum(steps * gains[1], 255), np.minimum(steps * gains[2], 255)]
    table = np.concatenate(tables).astype(np.uint8).tolist()
    return np.asarray(Image.fromarray(picture).convert("HSV").point(table).convert("RGB"))


def flip(part: Labelled, *, horizontal: bool, vertical: bool) -> Labelled:
    """Mirrored left to right and top to bottom as asked."""
    height, width = part.picture.shape[:2]
    picture, labels = part.picture, part.labels.copy()
    if horizontal:
        picture, labels[:, [1, 3]] = picture[:, ::-1], width - labels[:, [3, 1]]
    if vertical:
        picture, labels[:, [2, 4]] = picture[::-1], height - labels[:, [4, 2]]
    return Labelled(picture, labels)


def colours_and_flips(part: Labelled, hyp: Hyp, rng: Rng) -> Labelled:
    """The last steps of every training picture."""
    recoloured = Labelled(hsv(part.picture, hyp, rng), part.labels)
    horizontal, vertical = rng.random(2) < (hyp.fliplr, hyp.flipud)
    return flip(recoloured, horizontal=bool(horizontal), vertical=bool(vertical))
