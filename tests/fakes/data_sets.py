"""Small data sets, built on disk."""

from collections.abc import Mapping
from pathlib import Path

from PIL import Image

BOX = "0 0.5 0.5 0.2 0.2\n"
YAML = "train: images/train\nval: images/val\nnc: 2\nnames: [first, second]\n"


def write_picture(path: Path, shade: int = 120) -> Path:
    """A small picture; each name has its own content, so that no two are copies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (24, 16), (shade, sum(path.stem.encode()) % 251, len(path.name)))
    image.save(path)
    return path


def write_split(root: Path, split: str, labels: Mapping[str, str | None]) -> None:
    """Pictures under images/SPLIT and their label texts under labels/SPLIT; None: no label file."""
    for number, (name, text) in enumerate(labels.items()):
        write_picture(root / "images" / split / f"{name}.png", shade=(40 if split == "train" else 140) + number)
        if text is not None:
            label = root / "labels" / split / f"{name}.txt"
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_bytes(text.encode())


def make_set(
    root: Path,
    train: Mapping[str, str | None] | None = None,
    val: Mapping[str, str | None] | None = None,
    yaml: str = YAML,
) -> Path:
    """A data set in the standard layout: pictures a and b in train, v in val, one object each unless told otherwise."""
    root.mkdir(parents=True, exist_ok=True)
    write_split(root, "train", {"a": BOX, "b": BOX} if train is None else train)
    write_split(root, "val", {"v": BOX} if val is None else val)
    (root / "data.yaml").write_text(yaml, encoding="utf-8")
    return root
