"""A data set in numbers: what is used, what is not, and of which size. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from remote.dataset.values import Dataset, Note, Sample, Split


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """One split in numbers."""

    split: Split
    pictures: int
    background: int
    """Of the pictures: those without an object."""
    unlabelled: int
    """Of the background pictures: those without a label file."""
    objects: tuple[int, ...]
    """Count by class id."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole set in numbers."""

    names: tuple[str, ...]
    splits: tuple[SplitSummary, ...]
    """Train, val and, where there is one, test."""
    skipped: tuple[Note, ...]
    """The pictures left out, each with its reason."""
    smallest: tuple[int, int] | None
    """Width and height of the picture with the fewest pixels; None where pictures were not checked."""
    largest: tuple[int, int] | None

    @property
    def pictures(self) -> int:
        """Pictures used, over all splits."""
        return sum(split.pictures for split in self.splits)

    def lines(self) -> list[str]:
        """The summary as text, a few lines for a person."""
        lines = [_line(split, self.names) for split in self.splits]
        if self.smallest and self.largest:
            small, large = (f"{width}x{height}" for width, height in (self.smallest, self.largest))
            lines.append(f"pictures of {small}" if small == large else f"pictures from {small} to {large}")
        if self.skipped:
            files = [note.file.name if note.file else note.text for note in self.skipped]
            more = f" and {len(files) - 8} more" if len(files) > 8 else ""
            lines.append(f"{len(files)} skipped: {', '.join(files[:8])}{more}")
        return lines


def summary(dataset: Dataset) -> Summary:
    """Count a data set."""
    present = [split for split in Split if dataset.split(split)]
    sizes = [s.size for split in present for s in dataset.split(split) if s.size is not None]
    smallest = min(sizes, key=_area) if sizes else None
    largest = max(sizes, key=_area) if sizes else None
    splits = tuple(_count(split, dataset.split(split), len(dataset.names)) for split in present)
    return Summary(dataset.names, splits, dataset.skipped, smallest, largest)


def brief(notes: Sequence[Note], per_kind: int = 5) -> list[str]:
    """Notes as lines, at most `per_kind` of a kind and then how many more there are."""
    lines: list[str] = []
    for kind, group in groupby(sorted(notes, key=lambda note: note.kind), key=lambda note: note.kind):
        members = list(group)
        lines += [str(note) for note in members[:per_kind]]
        if len(members) > per_kind:
            lines.append(f"... and {len(members) - per_kind} more of this kind ({kind.value})")
    return lines


def _area(size: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    return size[0] * size[1], size


def class_counts(samples: Sequence[Sample], classes: int) -> tuple[int, ...]:
    """Objects by class id."""
    objects = Counter(thing.cls for sample in samples for thing in sample.objects)
    return tuple(objects[number] for number in range(classes))


def listed(names: tuple[str, ...], objects: tuple[int, ...]) -> str:
    """Objects by class as text, the first ten classes of them."""
    each = ", ".join(f"{name} {count}" for name, count in list(zip(names, objects, strict=True))[:10])
    more = ", ..." if len(names) > 10 else ""
    return f"{sum(objects)} objects ({each}{more})"


def _count(split: Split, samples: tuple[Sample, ...], classes: int) -> SplitSummary:
    background = [sample for sample in samples if not sample.objects]
    unlabelled = sum(sample.label is None for sample in background)
    return SplitSummary(split, len(samples), len(background), unlabelled, class_counts(samples, classes))


def _line(split: SplitSummary, names: tuple[str, ...]) -> str:
    background = f", {split.background} of them background" if split.background else ""
    unlabelled = f" ({split.unlabelled} without a label file)" if split.unlabelled else ""
    pictures = f"{split.split.value}: {split.pictures} pictures{background}{unlabelled}"
    return f"{pictures}, {listed(names, split.objects)}"
