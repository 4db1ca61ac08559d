"""Taking over Pascal VOC and COCO: where splits come from, where pictures are found, and what is not taken over."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from remote.dataset import DatasetError, Split, import_dataset, open_dataset
from remote.dataset.values import Object
from tests.fakes.data_sets import write_picture

Annotate = Callable[..., None]


def xml(name: str = "cat", size: tuple[int, int] = (24, 16), corners: tuple[float, ...] = (6, 4, 18, 12)) -> str:
    bounds = "".join(
        f"<{key}>{value}</{key}>" for key, value in zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True)
    )
    thing = f"<object><name>{name}</name><bndbox>{bounds}</bndbox></object>"
    return f"<annotation><size><width>{size[0]}</width><height>{size[1]}</height></size>{thing}</annotation>"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """Pictures a, b in train, v in val; one cat each."""
    root = tmp_path / "voc"
    for name in ("a", "b", "v"):
        write_picture(root / "JPEGImages" / f"{name}.png")
        write(root / "Annotations" / f"{name}.xml", xml())
    write(root / "ImageSets/Main/train.txt", "a\nb\n")
    write(root / "ImageSets/Main/val.txt", "v\r\n")
    write(root / "ImageSets/Main/cat_train.txt", "a  1\nb -1\n")
    return root


def coco(root: Path, file: str, *pictures: str, names: tuple[str, ...] = ("cat",), written: str = "{}") -> None:
    """A JSON file with one box of the first name in each picture."""
    images = [
        {"id": number, "file_name": written.format(Path(picture).name), "width": 24, "height": 16}
        for number, picture in enumerate(pictures)
    ]
    boxes = [{"id": n, "image_id": n, "category_id": 0, "bbox": [6, 4, 12, 8]} for n, _ in enumerate(pictures)]
    categories = [{"id": number, "name": name} for number, name in enumerate(names)]
    write(root / file, json.dumps({"images": images, "annotations": boxes, "categories": categories}))
    for picture in pictures:
        write_picture(root / picture)


def texts(made) -> list[str]:
    return [note.text for note in made.notes]


def test_voc_becomes_a_set_that_opens_without_a_note(voc: Path, tmp_path: Path):
    made = import_dataset(voc, tmp_path / "new")
    dataset = open_dataset(tmp_path / "new")
    assert (dataset.names, dataset.notes, made.notes) == (("cat",), (), ())
    assert [sample.image.name for sample in dataset.train] == ["a.png", "b.png"]
    assert dataset.val[0].objects == (Object(0, 0.5, 0.5, 0.5, 0.5),)
    assert [(split.split, split.pictures, split.objects) for split in made.summary.splits] == [
        (Split.TRAIN, 2, (2,)),
        (Split.VAL, 1, (1,)),
    ]


def test_pictures_are_linked_where_that_can_be(voc: Path, tmp_path: Path):
    import_dataset(voc, tmp_path / "new")
    assert (tmp_path / "new/images/train/a.png").samefile(voc / "JPEGImages/a.png")


def test_pictures_are_copied_to_another_file_system(voc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError("another file system")

    monkeypatch.setattr("os.link", refuse)
    import_dataset(voc, tmp_path / "new")
    copy, picture = tmp_path / "new/images/train/a.png", voc / "JPEGImages/a.png"
    assert copy.read_bytes() == picture.read_bytes()
    assert not copy.samefile(picture)


def test_voc_classes_are_in_the_order_of_their_names(voc: Path, tmp_path: Path):
    write(voc / "Annotations/a.xml", xml("dog"))
    write(voc / "Annotations/v.xml", xml("ant"))
    assert import_dataset(voc, tmp_path / "new").summary.names == ("ant", "cat", "dog")


def test_without_lists_everything_is_for_training_and_that_is_said(voc: Path, tmp_path: Path):
    for file in (voc / "ImageSets/Main").iterdir():
        file.unlink()
    made = import_dataset(voc, tmp_path / "new")
    assert made.summary.splits[0].pictures == 3
    assert "all of them are in `train`" in texts(made)[0]
    assert "there is no `val`" in texts(made)[1]
    with pytest.raises(DatasetError, match="`val` is missing"):
        open_dataset(tmp_path / "new")


def test_trainval_stands_in_for_train_without_the_pictures_of_val(voc: Path, tmp_path: Path):
    (voc / "ImageSets/Main/train.txt").rename(voc / "ImageSets/Main/trainval.txt")
    write(voc / "ImageSets/Main/trainval.txt", "a\nb\nv\n")
    assert [split.pictures for split in import_dataset(voc, tmp_path / "new").summary.splits] == [2, 1]


def test_what_is_not_taken_over_is_told_by_name(voc: Path, tmp_path: Path):
    write(voc / "ImageSets/Main/train.txt", "a\nb\nno_picture\nno_xml\nturned\nbad\nbroken\noutside\n")
    for name in ("no_xml", "turned", "bad", "outside"):
        write_picture(voc / "JPEGImages" / f"{name}.png")
    write(voc / "JPEGImages/broken.png", "")
    for name in ("no_picture", "broken", "unlisted"):
        write(voc / "Annotations" / f"{name}.xml", xml())
    write(voc / "Annotations/turned.xml", xml(size=(16, 24)))
    write(voc / "Annotations/bad.xml", "<annotation>")
    write(voc / "Annotations/outside.xml", xml(corners=(30, 4, 40, 12)))
    made = import_dataset(voc, tmp_path / "new")
    said = "\n".join(str(note) for note in made.notes)
    assert f"{voc}/JPEGImages/no_picture: there is no such picture, which no_picture.xml describes" in said
    assert "no_xml.xml: No such file" in said
    assert "is for a picture of 16x24, the file has 24x16: labelled before it was turned?" in said
    assert "bad.xml: is not XML" in said
    assert f"{voc}/JPEGImages/broken.png: is empty (0 bytes)" in said
    assert "outside.xml:1: box of 'cat' dropped: outside of its picture outside.png" in said
    assert "Annotations/unlisted.xml: annotation files of pictures that are in no list, left out: 1" in said
    assert len(made.summary.skipped) == 5
    assert (made.summary.splits[0].pictures, made.summary.splits[0].background) == (3, 1)


@pytest.mark.parametrize("corners", [(-6, 4, 12, 12), (12, 4, 40, 12)])
def test_a_box_that_leaves_its_picture_is_cut_and_counted(voc: Path, tmp_path: Path, corners: tuple[float, ...]):
    write(voc / "Annotations/v.xml", xml(corners=corners))
    made = import_dataset(voc, tmp_path / "new")
    assert texts(made) == ["boxes that leave their picture, cut at the border: 1"]
    assert open_dataset(tmp_path / "new").val[0].objects[0].w == 0.5


def test_boxes_of_a_picture_that_was_scaled_after_it_was_labelled_are_scaled_too(voc: Path, tmp_path: Path):
    write(voc / "Annotations/v.xml", xml(size=(240, 160), corners=(60, 40, 180, 120)))
    import_dataset(voc, tmp_path / "new")
    assert open_dataset(tmp_path / "new").val[0].objects == (Object(0, 0.5, 0.5, 0.5, 0.5),)


def test_xml_beside_the_pictures_of_each_split_is_read(tmp_path: Path):
    for split in ("train", "valid"):
        write_picture(tmp_path / "set" / split / f"{split}.png")
        write(tmp_path / "set" / split / f"{split}.xml", xml())
    made = import_dataset(tmp_path / "set", tmp_path / "new")
    assert [(split.split, split.pictures) for split in made.summary.splits] == [(Split.TRAIN, 1), (Split.VAL, 1)]


@pytest.mark.parametrize(
    ("files", "places"),
    [
        (("annotations/instances_train2017.json", "annotations/instances_val2017.json"), ("train2017", "val2017")),
        (("annotations/instances_train.json", "annotations/instances_val.json"), ("images/train", "images/val")),
        (("annotations/train.json", "annotations/val.json"), ("train", "val")),
        (("train/_annotations.coco.json", "valid/_annotations.coco.json"), ("train", "valid")),
        (("train_annotations.json", "validation_annotations.json"), ("images", "images")),
    ],
    ids=["COCO's own", "below images", "plain names", "an export", "all together"],
)
def test_coco_is_found_with_its_pictures_by_the_names_of_its_files(tmp_path: Path, files, places):
    for number, (file, place) in enumerate(zip(files, places, strict=True)):
        coco(tmp_path / "set", file, f"{place}/p{number}.png", f"{place}/second{number}.png")
    made = import_dataset(tmp_path / "set", tmp_path / "new")
    dataset = open_dataset(tmp_path / "new")
    assert (made.notes, dataset.notes) == ((), ())
    assert [sample.image.name for sample in (*dataset.train, *dataset.val)] == [
        "p0.png",
        "second0.png",
        "p1.png",
        "second1.png",
    ]
    assert {thing for sample in dataset.train for thing in sample.objects} == {Object(0, 0.5, 0.5, 0.5, 0.5)}


def test_captions_and_stuff_beside_the_boxes_are_not_read(tmp_path: Path):
    coco(tmp_path / "set", "annotations/instances_train2017.json", "train2017/a.png")
    for name in ("captions_train2017", "annotations_of_stuff_train2017"):
        write(tmp_path / f"set/annotations/{name}.json", "{}")
    assert import_dataset(tmp_path / "set", tmp_path / "new").summary.pictures == 1


def test_classes_that_only_val_has_come_after_those_of_train(tmp_path: Path):
    coco(tmp_path / "set", "train/_annotations.coco.json", "train/a.png", names=("dog", "cat"))
    coco(tmp_path / "set", "valid/_annotations.coco.json", "valid/v.png", names=("ant", "cat"))
    made = import_dataset(tmp_path / "set", tmp_path / "new")
    assert made.summary.names == ("dog", "cat", "ant")
    assert open_dataset(tmp_path / "new").val[0].objects[0].cls == 2


@pytest.mark.parametrize("written", ["/home/me/{}", "../../{}", "C:\\me\\{}", "old/folder/{}"])
def test_a_path_of_another_machine_leads_to_the_picture_beside_and_never_elsewhere(tmp_path: Path, written: str):
    write_picture(tmp_path / "a.png", shade=1)
    coco(tmp_path / "set/data", "train/_annotations.coco.json", "train/a.png", written=written)
    import_dataset(tmp_path / "set", tmp_path / "new")
    assert (tmp_path / "new/images/train/a.png").samefile(tmp_path / "set/data/train/a.png")


@pytest.mark.parametrize("written", ["x" * 5000, "a\0b", "..", "/", "images"])
def test_a_name_that_can_be_no_file_is_a_missing_picture(tmp_path: Path, written: str):
    coco(tmp_path / "set", "train_annotations.json", "images/a.png")
    coco(tmp_path / "set", "val_annotations.json", "images/v.png", written=written)
    made = import_dataset(tmp_path / "set", tmp_path / "new")
    assert made.summary.pictures == 1
    assert len(made.summary.skipped) == 1


def test_two_pictures_of_one_name_are_one_and_a_note(tmp_path: Path):
    coco(tmp_path / "set", "train_annotations.json", "images/a.png", "images/a.jpg")
    made = import_dataset(tmp_path / "set", tmp_path / "new")
    assert made.summary.pictures == 1
    assert [str(note) for note in made.summary.skipped] == [
        f"{tmp_path}/set/images/a.jpg: left out: another picture of this split has its name"
    ]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda voc: (voc / "Annotations").rename(voc / "elsewhere"), "neither Pascal VOC nor COCO is in it"),
        (lambda voc: (voc / "JPEGImages").rename(voc / "elsewhere"), "no usable box in it; the first remark: "),
        (lambda voc: (voc / "ImageSets/Main/val.txt").write_bytes(b"\xff\xfe"), "val.txt: cannot be read"),
        (lambda voc: coco(voc, "train/_annotations.coco.json", "train/a.png"), "several data sets: "),
        (lambda voc: (voc.parent / "new").mkdir() or write(voc.parent / "new/mine", ""), "is already there"),
        (lambda voc: write(voc.parent / "new", ""), "is already there"),
    ],
    ids=["no form", "no pictures", "list", "two forms", "taken folder", "taken file"],
)
def test_what_cannot_be_taken_over_is_an_error_that_leaves_nothing(voc: Path, tmp_path: Path, spoil, says: str):
    spoil(voc)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(DatasetError) as caught:
        import_dataset(voc, tmp_path / "new")
    assert says in str(caught.value)
    assert caught.value.hint
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_several_files_for_one_split_are_named(tmp_path: Path):
    for name in ("one", "two"):
        coco(tmp_path / "set", f"annotations/{name}_coco_train.json", f"images/{name}.png")
    with pytest.raises(DatasetError, match=r"several files for `train`: annotations/one_coco.*annotations/two_coco"):
        import_dataset(tmp_path / "set", tmp_path / "new")


def test_a_set_in_another_layout_is_sent_to_its_import(voc: Path):
    with pytest.raises(DatasetError, match=r"no data\.yaml in it") as caught:
        open_dataset(voc)
    assert caught.value.hint == f"this is Pascal VOC: `gpucost data import {voc} NEW_FOLDER` makes a data set of it"
