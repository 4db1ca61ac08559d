"""`gpucost data` as it is typed: what a set holds, what is wrong with it, and an exit code."""

from __future__ import annotations

import json
import zipfile

import pytest
from cli_messages import one_message
from data_sets import BOX, YAML, make_set, write_picture


def pack(root, archive):
    """The files of a set in a zip, below its own name."""
    with zipfile.ZipFile(archive, "w") as out:
        for path in sorted(root.rglob("*")):
            out.write(path, path.relative_to(root.parent))
    return archive.name


@pytest.mark.parametrize("form", ["set", "set/data.yaml", "set.zip"])
def test_a_set_that_can_be_trained_on_is_told_in_numbers(gpucost, tmp_path, form):
    pack(make_set(tmp_path / "set"), tmp_path / "set.zip")
    code, out, err = gpucost("data", "check", form)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "train: 2 pictures, 2 objects (first 2, second 0)",
        "val: 1 pictures, 1 objects (first 1, second 0)",
        "pictures of 24x16",
    ]


def test_what_is_left_out_is_told_with_its_reason_and_stops_nothing(gpucost, tmp_path):
    root = make_set(tmp_path / "set", {"a": BOX + "0 2.5 0.5 0.1 0.1\n", "b": BOX})
    (root / "images/train/b.png").write_bytes(b"")
    code, out, _ = gpucost("data", "check", "set")
    assert code == 0
    assert "1 skipped: b.png" in out
    assert "note: set/images/train/b.png: is empty (0 bytes)" in out
    assert "note: set/labels/train/a.txt:2: row dropped: coordinates are in pixels?" in out


def damage(picture):
    """Change bytes in the middle of a picture: its header and its end stay whole."""
    content = bytearray(picture.read_bytes())
    middle = content.index(b"IDAT") + 8
    content[middle : middle + 4] = b"\xff\xff\xff\xff"
    picture.write_bytes(bytes(content))


@pytest.mark.parametrize(("flags", "skipped"), [((), 1), (("--quick",), 0)], ids=["whole", "quick"])
def test_damage_in_the_middle_of_a_picture_is_found_unless_only_headers_are_read(gpucost, tmp_path, flags, skipped):
    damage(make_set(tmp_path / "set") / "images/train/b.png")
    code, out, _ = gpucost("data", "check", "set", *flags)
    assert code == 0
    assert ("1 skipped: b.png" in out) == bool(skipped)


def test_pictures_of_train_that_come_again_in_val_are_told(gpucost, tmp_path):
    root = make_set(tmp_path / "set")
    (root / "images/val/v.png").write_bytes((root / "images/train/a.png").read_bytes())
    code, out, _ = gpucost("data", "check", "set")
    assert code == 0
    assert "1 of 1 pictures of val are copies of pictures of train (v.png is a.png)" in out


def test_the_document_has_every_number_and_every_note(gpucost, tmp_path):
    make_set(tmp_path / "set", {"a": BOX + BOX, "b": None})
    code, out, _ = gpucost("data", "check", "set", "--json")
    told = json.loads(out)
    train = {"split": "train", "pictures": 2, "background": 1, "unlabelled": 1, "objects": [1, 0]}
    assert (code, told["schema"], told["kind"], told["names"]) == (0, 1, "data", ["first", "second"])
    assert told["splits"][0] == train
    assert (told["smallest"], told["largest"]) == ([24, 16], [24, 16])
    assert told["notes"] == [
        {"kind": "count", "text": "1 duplicate row removed", "file": "set/labels/train/a.txt", "line": 2}
    ]


def test_what_is_wrong_in_an_archive_is_named_by_its_place_in_the_archive(gpucost, tmp_path):
    pack(make_set(tmp_path / "set", {"a": BOX, "b": "7 0.5 0.5 0.1 0.1"}), tmp_path / "set.zip")
    code, out, err = gpucost("data", "check", "set.zip")
    message, hint = one_message(err)
    assert (code, out) == (2, "")
    assert message == "set.zip/set/labels/train/b.txt:1: class 7, allowed 0-1"
    assert hint


def test_notes_on_an_archive_name_places_in_the_archive(gpucost, tmp_path):
    pack(make_set(tmp_path / "set", {"a": BOX, "b": BOX + BOX}), tmp_path / "set.zip")
    assert "note: set.zip/set/labels/train/b.txt:2: 1 duplicate row removed" in gpucost("data", "check", "set.zip")[1]


def test_the_text_of_a_note_names_places_in_the_archive_too(gpucost, tmp_path):
    yaml = YAML.replace("images/train", "[images/train, images/val]")
    pack(make_set(tmp_path / "set", yaml=yaml), tmp_path / "set.zip")
    out = gpucost("data", "check", "set.zip")[1]
    assert "train: 2 in set.zip/set/images/train, 1 in set.zip/set/images/val" in out


def test_an_error_is_a_document_too(gpucost):
    code, out, err = gpucost("data", "check", "nowhere", "--json")
    told = json.loads(out)
    assert (code, told["kind"], told["message"]) == (2, "error", "there is no data at nowhere")
    assert one_message(err)[1] == told["hint"]


def voc(root):
    """Pascal VOC with a picture each for train and val."""
    for split, name in (("train", "a"), ("val", "v")):
        write_picture(root / "JPEGImages" / f"{name}.png")
        bounds = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
        text = f"<annotation><object><name>cat</name>{bounds}</object><object/></annotation>"
        for path, content in ((f"Annotations/{name}.xml", text), (f"ImageSets/Main/{split}.txt", name)):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)
    return root


@pytest.mark.parametrize("source", ["voc", "voc.zip"])
def test_another_layout_is_taken_over_and_can_then_be_trained_on(gpucost, tmp_path, source):
    pack(voc(tmp_path / "voc"), tmp_path / "voc.zip")
    code, _, err = gpucost("data", "check", source)
    assert code == 2
    assert (
        one_message(err)[1] == f"this is Pascal VOC: `gpucost data import {source} NEW_FOLDER` makes a data set of it"
    )
    code, out, err = gpucost("data", "import", source, "new")
    assert (code, err) == (0, "")
    inner = "voc" if source == "voc" else "voc.zip/voc"
    assert out.splitlines() == [
        "Pascal VOC, taken over to new",
        "train: 1 pictures, 1 objects (cat 1)",
        "val: 1 pictures, 1 objects (cat 1)",
        f"note: {inner}/Annotations/a.xml:1: object dropped: it has no name",
        f"note: {inner}/Annotations/v.xml:1: object dropped: it has no name",
    ]
    assert gpucost("data", "check", "new")[0] == 0


def test_what_was_taken_over_is_a_document(gpucost, tmp_path):
    voc(tmp_path / "voc")
    code, out, _ = gpucost("data", "import", "voc", "new", "--json")
    told = json.loads(out)
    assert (code, told["kind"], told["layout"], told["folder"], told["names"]) == (
        0,
        "import",
        "Pascal VOC",
        "new",
        ["cat"],
    )
    assert [note["line"] for note in told["notes"]] == [1, 1]


def test_what_cannot_be_taken_over_is_one_error_with_a_way_out(gpucost, tmp_path):
    make_set(tmp_path / "set")
    code, out, err = gpucost("data", "import", "set", "new")
    message, hint = one_message(err)
    assert (code, out) == (2, "")
    assert message == "set: neither Pascal VOC nor COCO is in it, nor two folders down"
    assert "Annotations" in hint
    assert not (tmp_path / "new").exists()
