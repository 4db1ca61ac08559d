"""COCO: what a JSON file says of its pictures, what is left out of it, and what is refused."""

import json
from pathlib import Path

import pytest

from remote.dataset.annotated import Annotated, PixelBox
from remote.dataset.coco import parse_coco
from remote.dataset.values import DatasetError

FILE = Path("train.json")
CATEGORIES = [{"id": 7, "name": "dog"}, {"id": 2, "name": "cat"}]
IMAGES = [{"id": 1, "file_name": "a.jpg", "width": 24, "height": 16}]


def box(**changes: object) -> dict[str, object]:
    return {"id": 5, "image_id": 1, "category_id": 2, "bbox": [4, 2, 8.5, 6], "iscrowd": 0, **changes}


def coco(*annotations: object, images: object = IMAGES, categories: object = CATEGORIES) -> bytes:
    return json.dumps({"images": images, "categories": categories, "annotations": annotations}).encode()


def test_a_box_has_its_class_by_name_and_its_corners_in_pixels():
    said = parse_coco(coco(box()), FILE)
    assert said.pictures == (Annotated("a.jpg", (24, 16), (PixelBox("cat", 4, 2, 12.5, 8),)),)
    assert said.notes == ()


def test_classes_are_in_the_order_of_their_ids_whatever_is_used():
    assert parse_coco(coco(box(category_id=7)), FILE).names == ("cat", "dog")


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (box(category_id=3), "annotation 5 dropped: category 3 is not in `categories`"),
        (box(category_id=None), "category None is not"),
        (box(category_id=[1]), "is not in `categories`"),
        (box(bbox=[4, 2, 0, 6]), "box of 'cat' without area: width 0 and height 6"),
        (box(bbox=[4, 2, 8, -6]), "without area"),
        (box(bbox=[]), "its bbox is not four numbers: []"),
        (box(bbox=None), "not four numbers: None"),
        (box(bbox=[4, 2, float("nan"), 6]), "not four numbers"),
        (box(bbox=[4, 2, 10**400, 6]), "not four numbers"),
        (box(bbox=[4, 2, "8", 6]), "not four numbers"),
        (box(iscrowd=1), "1 regions of crowds, left out"),
        (box(image_id=9), "1 annotations of pictures that are not in `images`"),
        (box(image_id=[1]), "1 annotations of pictures that are not in `images`"),
    ],
)
def test_a_bad_annotation_is_left_out_with_its_reason_and_costs_no_other(annotation: dict[str, object], says: str):
    said = parse_coco(coco(annotation, box(category_id=7)), FILE)
    assert [thing.name for thing in said.pictures[0].boxes] == ["dog"]
    (note,) = said.notes
    assert says in note.text
    assert note.file == FILE


def test_what_cannot_be_told_apart_is_counted_once():
    assert parse_coco(coco(box(iscrowd=1), box(iscrowd=1)), FILE).notes[0].text == "2 regions of crowds, left out"


@pytest.mark.parametrize(
    "image", [{"id": 2}, {"file_name": "b.jpg"}, {"id": 2, "file_name": ""}, {"id": 1, "file_name": "b"}]
)
def test_a_picture_without_a_name_or_an_id_of_its_own_is_left_out(image: dict[str, object]):
    said = parse_coco(coco(images=[*IMAGES, image]), FILE)
    assert [picture.picture for picture in said.pictures] == ["a.jpg"]
    assert len(said.notes) == 1


def test_half_a_character_is_no_trouble_later():
    said = parse_coco(
        coco(images=[{"id": 1, "file_name": "a\ud800.jpg"}], categories=[{"id": 1, "name": "\udc00"}]), FILE
    )
    assert (said.names, said.pictures[0].picture) == (("?",), "a?.jpg")


@pytest.mark.parametrize("width", [0, None, "24", 10**400])
def test_a_size_that_says_nothing_is_none(width: object):
    assert parse_coco(coco(images=[{**IMAGES[0], "width": width}]), FILE).pictures[0].size is None


ANIMAL = {"id": 0, "name": "animal", "supercategory": "none"}
CAT = {"id": 1, "name": "cat", "supercategory": "animal"}


@pytest.mark.parametrize(
    ("annotation", "categories", "names"),
    [
        (box(category_id=1), [ANIMAL, CAT], ("cat",)),
        (box(category_id=0), [ANIMAL, CAT], ("animal", "cat")),
        (box(category_id=1), [{**ANIMAL, "supercategory": "animal"}, CAT], ("cat",)),
        (box(category_id=1), [{"id": 0, "name": "person", "supercategory": "person"}, CAT], ("person", "cat")),
    ],
    ids=["only above", "used", "above itself too", "its own"],
)
def test_a_category_that_is_only_above_others_is_no_class(annotation, categories, names):
    said = parse_coco(coco(annotation, categories=categories), FILE)
    assert said.names == names
    assert [note.text for note in said.notes if "supercategory" in note.text] == (
        ["category 'animal' left out: it is only a supercategory, and no box uses it"] if names == ("cat",) else []
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "is not JSON"),
        (b"\xff\xfe\xfd", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "is no COCO file"),
        (b"{}", "no list called categories"),
        (coco(images={}), "no list called images"),
        (coco(categories=[*CATEGORIES, {"id": 2, "name": "cow"}]), "category 2 has two names, 'cat' and 'cow'"),
    ],
)
def test_what_is_no_coco_file_is_refused_in_words(content: bytes, says: str):
    with pytest.raises(DatasetError, match=r"^train\.json: ") as caught:
        parse_coco(content, FILE)
    assert says in str(caught.value)
    assert caught.value.hint
