"""Pascal VOC: what an XML file says of its picture, what is left out of it, and what is refused."""

from pathlib import Path

import pytest

from remote.dataset.annotated import Annotated, PixelBox
from remote.dataset.values import DatasetError
from remote.dataset.voc import parse_voc

FILE = Path("a.xml")
BOUNDS = "<bndbox><xmin>4</xmin><ymin>2</ymin><xmax>12.5</xmax><ymax>8</ymax></bndbox>"


def voc(*objects: str, more: str = "<size><width>24</width><height>16</height></size>") -> bytes:
    boxes = "".join(f"\n<object>{thing}</object>" for thing in objects)
    return f"<annotation><filename>a.jpg</filename>{more}{boxes}</annotation>".encode()


def test_a_box_has_its_class_by_name_and_its_corners_as_written():
    found, notes = parse_voc(voc(f"<name> cat </name>{BOUNDS}"), FILE)
    assert found == Annotated("a.jpg", (24, 16), (PixelBox("cat", 4, 2, 12.5, 8, line=2),))
    assert notes == ()


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (BOUNDS, "it has no name"),
        ("<name>cat</name>", "'cat' has no bndbox"),
        ("<name>cat</name><part><name>ear</name>" + BOUNDS + "</part>", "'cat' has no bndbox"),
        ("<name>cat</name>" + BOUNDS.replace("12.5", "wide"), "needs xmin, ymin, xmax, ymax as numbers"),
        ("<name>cat</name>" + BOUNDS.replace("12.5", "1e400"), "as numbers"),
        ("<name>cat</name>" + BOUNDS.replace("12.5", "nan"), "as numbers"),
        ("<name>cat</name>" + BOUNDS.replace("12.5", "4"), "box of 'cat' without area: 4 to 4, 2 to 8"),
        ("<name>cat</name>" + BOUNDS.replace("12.5", "3"), "without area"),
    ],
)
def test_a_bad_object_is_dropped_with_its_line_and_costs_no_other(thing: str, says: str):
    found, notes = parse_voc(voc(f"<name>dog</name>{BOUNDS}", thing), FILE)
    assert [box.name for box in found.boxes] == ["dog"]
    assert [(note.file, note.line) for note in notes] == [(FILE, 3)]
    assert says in notes[0].text


@pytest.mark.parametrize(
    "size", ["", "<size><width>0</width><height>0</height></size>", "<size><width>x</width></size>"]
)
def test_a_size_that_says_nothing_is_none(size: str):
    assert parse_voc(voc(more=size), FILE)[0].size is None


ENTITY = b'<!DOCTYPE annotation [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><annotation>&b;</annotation>'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (ENTITY, "declares a document type"),
        (ENTITY.decode().encode("utf-16"), "declares a document type"),
        (b'<!DOCTYPE annotation SYSTEM "file:///etc/passwd"><annotation/>', "declares a document type"),
        (b"<annotation><object></annotation>", "is not XML"),
        (b"", "is not XML"),
        (b'<?xml version="1.0" encoding="gb2312"?><annotation/>', "is not XML"),
        (b"<html><body/></html>", "begins with <html>"),
        (b"<annotation>" + b" " * (16 << 20) + b"</annotation>", "too many"),
    ],
    ids=["entities", "entities in UTF-16", "external", "torn", "empty", "encoding", "other", "large"],
)
def test_what_is_no_annotation_is_refused_in_words(content: bytes, says: str):
    with pytest.raises(DatasetError, match=r"^a\.xml: ") as caught:
        parse_voc(content, FILE)
    assert says in str(caught.value)
    assert caught.value.hint
