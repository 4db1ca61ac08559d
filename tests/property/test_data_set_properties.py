"""Broken input of any kind ends in the errors that are promised, never in another one."""

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from remote.dataset import DatasetError, PictureError, extract, load_image, picture_size
from remote.dataset.datafile import read_data_file
from remote.dataset.places import Written

T = TypeVar("T")


@contextmanager
def file_of(data: bytes, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        yield path


def outcome(call: Callable[[], T]) -> tuple[T | None, DatasetError | None]:
    """The answer or the promised error; any other error is the test's failure."""
    try:
        return call(), None
    except DatasetError as error:
        return None, error


KEYS = ["train:", "val:", "names:", "nc:", "path:", "0: ", "<<: "]
MARKS = [
    "\n",
    " ",
    "  ",
    "\t",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "'",
    '"',
    "|",
    ">",
    "?",
    "#",
    "&x ",
    "*x",
    "---",
    "...",
    "%YAML",
]
VALUES = ["a", "~", "é", "1e9", "!!int ", "!!python/object:os.system "]
YAML_TEXTS = st.lists(st.sampled_from(KEYS + MARKS + VALUES), max_size=30).map("".join)


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=200), YAML_TEXTS.map(str.encode)))
@example(b"train: a\nval: b\nnames: &x [*x]\n")
@example(b"? [a]\n: b\n")
def test_any_bytes_as_data_yaml_are_read_or_refused_in_words(data: bytes):
    with file_of(data, "data.yaml") as path:
        found, refusal = outcome(lambda: read_data_file(path))
        assert refusal is None or (str(path) in str(refusal) and refusal.hint)
        assert found is None or all(isinstance(name, str) and name for name in found.names)


def encoded(kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.effect_noise((40, 24), 60).convert("RGB").save(out, kind, exif=exif, **options)
    return out.getvalue()


PICTURES = [encoded("JPEG"), encoded("JPEG", progressive=True), encoded("PNG"), encoded("WEBP"), encoded("TIFF")]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(PICTURES)))
    for _ in range(draw(st.integers(0, 6))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@settings(max_examples=300, deadline=None)
@given(st.one_of(damaged(), st.binary(max_size=60)))
def test_a_damaged_picture_loads_in_rgb_or_is_refused(data: bytes):
    with file_of(data, "a.jpg") as path:
        size, refusal = outcome(lambda: picture_size(path))
        assert refusal is None or (isinstance(refusal, PictureError) and str(path) in str(refusal))
        assert size is None or min(size) >= 8
        image, refusal = outcome(lambda: load_image(path))
        assert refusal is None or (isinstance(refusal, PictureError) and str(path) in str(refusal))
        assert image is None or (image.mode == "RGB" and min(image.size) >= 8)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=2000))
@example(b"PK\x05\x06" + bytes(18))
@example(b"\x1f\x8b" + bytes(30))
def test_any_bytes_as_an_archive_are_refused_or_unpacked_inside_the_target(data: bytes):
    with file_of(data, "a.tar") as path:
        _, refusal = outcome(lambda: extract(path, path.parent / "out"))
        assert refusal is None or (refusal.hint and not (path.parent / "out").exists())
        assert {item.name for item in path.parent.iterdir()} <= {"a.tar", "out"}


@settings(deadline=None)
@given(st.text(st.sampled_from("ab./\\: CD"), max_size=12))
def test_a_written_path_never_leads_out_of_its_base_but_by_root_or_dots(text: str):
    written = Written.parse(text)
    assert not (written.rooted and written.foreign)
    if not written.rooted and ".." not in written.parts:
        assert written.below(Path("/base")).is_relative_to("/base")
    assert all(".." not in tail for tail in written.tails())
