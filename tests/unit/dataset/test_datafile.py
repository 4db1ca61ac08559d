"""What data.yaml may say, and what it is told where it may not."""

from pathlib import Path

import pytest

from remote.dataset import DatasetError, Split, data_file_text
from remote.dataset.datafile import DataFile, read_data_file

PLACES = "train: images/train\nval: images/val\n"


@pytest.fixture
def read(tmp_path: Path):
    def read(text: str | bytes) -> DataFile:
        file = tmp_path / "data.yaml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_data_file(file)

    return read


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("[a, b]", ("a", "b")),
        ("\n  1: b\n  0: a", ("a", "b")),
        ("\n- a\n- b", ("a", "b")),
        ("[0, 1.50]", ("0", "1.50")),
        ("[no, yes, 2020-13-45, 1:30, ~x]", ("no", "yes", "2020-13-45", "1:30", "~x")),
        ("['---', \"\\u2620\"]", ("---", "\u2620")),
    ],
)
def test_names_stay_the_text_that_was_written(read, names: str, expected: tuple[str, ...]):
    assert read(PLACES + f"names: {names}\n").names == expected


@pytest.mark.parametrize("mark", ["\ufeff", ""])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(read, mark: str, encoding: str):
    text = (mark if encoding == "utf-8" else "") + PLACES + "names: [чаша]\n"
    assert read(text.replace("\n", "\r\n").encode(encoding)).names == ("чаша",)


def test_entries_keep_their_text_and_line(read):
    data = read("path: E:\\my sets\\one\nnames: [a]\ntrain:\n - a b\n - c\nval: d.txt  # why\ntest:\n")
    assert data.path is not None
    assert data.path.text == "E:\\my sets\\one"
    assert [(entry.text, entry.line) for entry in data.splits[Split.TRAIN]] == [("a b", 4), ("c", 5)]
    assert data.splits[Split.VAL][0].text == "d.txt"
    assert data.splits[Split.TEST] == ()
    assert data.notes == ()


REFUSED = {
    "no val": ("train: a\nnames: [x]\n", r"data\.yaml: `val` is missing", "not in train"),
    "no val but a test": ("train: a\ntest: t\nnames: [x]\n", "`val` is missing", "`test` is not used in its place"),
    "valid for val": ("train: a\nvalid: b\nnames: [x]\n", "`val` is missing", "did you mean `val` by `valid` (line 2)"),
    "empty train": ("train:\nval: b\nnames: [x]\n", "yaml:1: `train` is empty", "train: images/train"),
    "no names": (PLACES + "nc: 3\n", "`names` is missing", "names: [first, second]"),
    "misspelt names": (PLACES + "name: [a]\n", "`names` is missing", "by `name` (line 3)"),
    "null names": (PLACES + "names:\n", "yaml:3: `names` is empty", ""),
    "unindented names": (PLACES + "names:\n0: a\n1: b\n", "the lines `0: ...` under it", "two spaces"),
    "empty name": (PLACES + "names: [a, '']\n", "yaml:3: a class name is empty", ""),
    "nested name": (PLACES + "names: [a, [b]]\n", "yaml:3: a class name is empty or a list", ""),
    "names numbered from 1": (PLACES + "names: {1: a, 2: b}\n", "`names` has no class 0", "numbered from 1?"),
    "a gap in names": (PLACES + "names:\n  0: a\n  2: b\n", "yaml:4: `names` has no class 1", "0 to 1"),
    "a class with two names": (PLACES + "names:\n  0: a\n  0: b\n", "yaml:5: class 0 has two names", "keep one"),
    "names by word": (PLACES + "names:\n  a: 0\n", "yaml:4: 'a' under `names` is not a class number", "`0: name`"),
    "nc differs": ("nc: 80\n" + PLACES + "names: [a, b, c]\n", "yaml:1: `nc` is 80 but 3 names are given", "nc: 3"),
    "nc is no number": ("nc: many\n" + PLACES + "names: [a]\n", "`nc` is many but 1 name is given", "nc: 1"),
    "two values for a key": ("path: a\npath: b\n" + PLACES + "names: [a]\n", "lines 1 and 2, with two values", "keep"),
    "tab": (PLACES + "names:\n\t0: a\n", "yaml:4: a tab at the start of the line", "spaces"),
    "broken": (PLACES + "names: [a, b\n", "is not YAML", ""),
    "a list": ("- a\n- b\n", "yaml:1: is not a data.yaml", "write train"),
    "empty": ("", "yaml:1: is not a data.yaml", "write train"),
    "two documents": (PLACES + "---\nnames: [a]\n", "is not YAML", ""),
    "a map as train": ("train: {a: b}\nval: c\nnames: [x]\n", "yaml:1: `train` should be a folder", ""),
    "paths": ("path: [a, b]\n" + PLACES + "names: [x]\n", "`path` should be one folder", ""),
    "deep": ("[" * 5000, "nested too deeply|is not YAML", ""),
    "not utf-8": (
        PLACES.encode() + "names: [护]\n".encode("gbk"),
        "yaml:3: this file is not UTF-8",
        "save it as UTF-8",
    ),
    "binary": (b"\x00\x01\x02", "is not YAML", ""),
}


@pytest.mark.parametrize(("text", "message", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_with_the_place_and_the_way_out(read, text, message: str, hint: str):
    with pytest.raises(DatasetError, match=message) as caught:
        read(text)
    assert hint in caught.value.hint
    assert caught.value.hint


NOTED = {
    "the same key twice": ("path: a\npath: a\n" + PLACES + "names: [a]\n", "`path` is given twice, on lines 1 and 2"),
    "one text for names": (PLACES + "nc: 1\nnames: box\n", "one class, 'box'"),
    "a name twice": (PLACES + "names: [a, a]\n", "'a' more than once"),
    "download": (PLACES + "names: [a]\ndownload: https://example.com/x.zip\n", "nothing is fetched or run"),
    "unknown keys": (PLACES + "names: [a]\ntest_xml: x\ntrain_params: {epochs: 5}\n", "`test_xml`, `train_params`"),
}


@pytest.mark.parametrize(("text", "says"), NOTED.values(), ids=NOTED)
def test_what_is_odd_but_harmless_is_noted_with_its_line(read, text: str, says: str):
    (note,) = read(text).notes
    assert says in note.text
    assert note.line is not None


def test_a_tool_s_own_block_is_ignored_without_a_word(read):
    assert read(PLACES + "names: [a]\nroboflow:\n  license: MIT\n").notes == ()


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(DatasetError, match=r"none\.yaml: No such file"):
        read_data_file(tmp_path / "none.yaml")


@pytest.mark.parametrize("names", [["a"], ["no", "0", "---", "a: b", " x ", "\U0001f680 чаша", 'it\'s "so"', "\x7f"]])
def test_the_text_that_is_written_reads_back_the_same(read, names: list[str]):
    data = read(data_file_text(names, [Split.TRAIN, Split.VAL, Split.TEST]))
    assert data.names == tuple(names)
    assert [data.splits[split][0].text for split in Split] == ["images/train", "images/val", "images/test"]
    assert data.notes == ()
