"""Pictures of figures: curves of precision and recall, confusion matrix, results of a training, labels of a data set.

Owns how figures look. Values in, one file out; matplotlib is imported where it is used. Each function raises
MissingPackage where it is not installed, and OSError. Shape symbols as in `metrics`.
"""

from __future__ import annotations

import csv
import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remote.dataset import Sample
from remote.yolov9.metrics import CONFIDENCES, RECALLS, Curves, Floats, Ints
from remote.yolov9.optional import required
from remote.yolov9.whole import whole

EXTRA = "plots"
_NAMED = 20
"""More classes than these have thin grey lines and no legend."""
_NUMBERED = 30
"""More classes than these have no numbers in the confusion matrix."""
_FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Arial Unicode MS", "PingFang SC")
"""Tried in this order, letter by letter: names of classes may be in any script."""
_MOST_BOXES = 1000
"""Outlines that are drawn over each other."""


def draw_curves(curves: Curves, names: Sequence[str], folder: Path) -> list[Path]:
    """PR_curve.png, F1_curve.png, P_curve.png and R_curve.png of one validation."""
    by_confidence = (("F1", curves.f1, "F1"), ("P", curves.precision, "Precision"), ("R", curves.recall, "Recall"))
    areas = curves.envelope.mean(1)  # (K,)
    labels = [f"{names[cls]} {area:.3f}" for cls, area in zip(curves.classes, areas, strict=True)]
    whole_label = f"all classes {areas.mean() if len(areas) else 0:.3f} mAP@0.5"
    lines = _Lines(RECALLS, curves.envelope, labels, whole_label)
    written = [_draw_lines(lines, ("Recall", "Precision"), folder / "PR_curve.png")]
    labels = [names[cls] for cls in curves.classes]
    for short, values, axis in by_confidence:
        lines = _Lines(CONFIDENCES, values, labels, _peak(values))
        written.append(_draw_lines(lines, ("Confidence", axis), folder / f"{short}_curve.png"))
    return written


@dataclass(frozen=True, slots=True)
class _Lines:
    """One line a class, and their mean."""

    x: Floats
    values: Floats
    """(K, length of x)."""
    labels: Sequence[str]
    mean_label: str


def _peak(values: Floats) -> str:
    """The highest mean over the classes, and where."""
    mean = values.mean(0) if len(values) else np.zeros_like(CONFIDENCES)
    return f"all classes {mean.max():.2f} at {CONFIDENCES[int(mean.argmax())]:.3f}"


def _draw_lines(lines: _Lines, axes: tuple[str, str], path: Path) -> Path:
    few = len(lines.values) <= _NAMED
    with _figure(path, (9, 6)) as figure:
        plot = figure.add_subplot()
        for number, (values, label) in enumerate(zip(lines.values, lines.labels, strict=True)):
            colour = f"C{number % 10}" if few else "lightgrey"
            style = "--" if few and number >= 10 else "-"
            plot.plot(lines.x, values, style, color=colour, linewidth=1, label=_literal(label) if few else None)
        if len(lines.values):
            plot.plot(lines.x, lines.values.mean(0), color="blue", linewidth=3, label=lines.mean_label)
        else:
            plot.text(0.5, 0.5, "no class has ground truth", ha="center")
        plot.set(xlabel=axes[0], ylabel=axes[1], xlim=(0, 1), ylim=(0, 1.02), title=f"{axes[1]} over {axes[0].lower()}")
        plot.grid(alpha=0.3)
        if len(lines.values):
            plot.legend(loc="upper left", bbox_to_anchor=(1.02, 1), fontsize="small")
    return path


def draw_confusion(matrix: Ints, names: Sequence[str], path: Path) -> Path:
    """confusion_matrix.png: (K + 1, K + 1) with detected classes in rows; shown as shares of each true class."""
    shares = matrix / np.maximum(matrix.sum(0, keepdims=True), 1)
    labels = [_literal(name) for name in (*names, "background")]
    count = len(labels)
    side = min(20, 5 + 0.35 * count)
    with _figure(path, (side + 1, side)) as figure:
        plot = figure.add_subplot()
        shown = plot.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        figure.colorbar(shown, ax=plot, fraction=0.046, pad=0.04)
        size = max(5, 10 - count / 12)
        plot.set_xticks(range(count), labels, rotation=90, fontsize=size)
        plot.set_yticks(range(count), labels, fontsize=size)
        plot.set(xlabel="True", ylabel="Detected", title="Confusion, share of each true class")
        if count <= _NUMBERED:
            _number(plot, shares)
    return path


def _number(plot: Any, shares: Floats) -> None:  # noqa: ANN401 - axes of a package without types here
    size = max(5, 11 - len(shares) / 4)
    for row, column in np.argwhere(shares >= 0.005).tolist():
        share = shares[row, column]
        colour = "white" if share > 0.5 else "black"
        plot.text(column, row, f"{share:.2f}", ha="center", va="center", fontsize=size, color=colour)


def draw_results(text: str, path: Path) -> Path:
    """results.png: each column of results.csv, whose text this is, over the epochs that have a value."""
    head, *rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    table = {name: np.array([float(row[place]) for row in rows]) for place, name in enumerate(head)}
    epochs = table.pop(head[0])
    columns = math.ceil(len(table) / 3)
    with _figure(path, (2.6 * columns, 7.5)) as figure:
        for place, (name, values) in enumerate(table.items()):
            plot = figure.add_subplot(3, columns, place + 1)
            seen = np.isfinite(values)
            plot.plot(epochs[seen], values[seen], marker="." if seen.sum() <= 100 else None, linewidth=1.5)
            plot.set_title(name, fontsize=10)
            plot.grid(alpha=0.3)
            plot.tick_params(labelsize=8)
            plot.locator_params(axis="x", nbins=5, integer=True)
    return path


def draw_labels(samples: Sequence[Sample], names: Sequence[str], path: Path) -> Path:
    """labels.jpg: objects of each class, outlines around one centre, where centres are, and which sizes there are."""
    objects = np.array([(o.cls, o.cx, o.cy, o.w, o.h) for s in samples for o in s.objects], float).reshape(-1, 5)
    with _figure(path, (10, 10)) as figure:
        histogram, outlines, centres, sizes = figure.subplots(2, 2).flat
        counts = np.bincount(objects[:, 0].astype(int), minlength=len(names))
        histogram.bar(range(len(names)), counts, color=[f"C{number % 10}" for number in range(len(names))])
        size = max(4, 10 - len(names) / 12)
        histogram.set_xticks(range(len(names)), [_literal(name) for name in names], rotation=90, fontsize=size)
        histogram.set(ylabel="objects", title="classes")
        _draw_outlines(outlines, objects)
        _draw_density(centres, objects[:, 1:3], ("x", "y"), "centres")
        centres.invert_yaxis()  # as in a picture, y grows downwards
        _draw_density(sizes, objects[:, 3:], ("width", "height"), "sizes")
    return path


def _draw_outlines(plot: Any, objects: Floats) -> None:  # noqa: ANN401
    collections, patches = required("matplotlib.collections", EXTRA), required("matplotlib.patches", EXTRA)
    some = objects[:: max(1, -(-len(objects) // _MOST_BOXES))]
    boxes = [patches.Rectangle((0.5 - w / 2, 0.5 - h / 2), w, h) for w, h in some[:, 3:].tolist()]
    colours = [f"C{int(cls) % 10}" for cls in some[:, 0]]
    plot.add_collection(collections.PatchCollection(boxes, facecolor="none", edgecolor=colours, linewidth=0.5))
    plot.set(xlim=(0, 1), ylim=(0, 1), title="outlines, as shares of the picture", aspect="equal")


def _draw_density(plot: Any, points: Floats, axes: tuple[str, str], title: str) -> None:  # noqa: ANN401
    plot.hist2d(points[:, 0], points[:, 1], bins=50, range=((0, 1), (0, 1)), cmap="Blues")
    plot.set(xlabel=axes[0], ylabel=axes[1], title=title)


def _literal(name: str) -> str:
    """A name as it is, without the mathematics that a dollar sign begins; a leading _ hides a legend's line."""
    text = name.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


@contextmanager
def _figure(path: Path, inches: tuple[float, float]) -> Iterator[Any]:
    """A figure that is saved at the end, without a window."""
    figures, fonts = required("matplotlib.figure", EXTRA), required("matplotlib.font_manager", EXTRA)
    installed = set(fonts.get_font_names())
    families = [name for name in _FONTS if name in installed]
    settings = {"font.family": families}
    with required("matplotlib", EXTRA).rc_context(settings), warnings.catch_warnings(), whole(path) as temporary:
        warnings.filterwarnings("ignore", message="Glyph")  # a script without a font here: a box instead of a letter
        figure = figures.Figure(inches, layout="constrained")
        yield figure
        figure.savefig(temporary, dpi=150)
