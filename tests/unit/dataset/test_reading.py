"""Opening a data set: where things are looked for, what is left out with a note, what is refused."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from remote.dataset import (
    DatasetError,
    NoteKind,
    PictureCheck,
    brief,
    label_path,
    open_dataset,
    summary,
)
from tests.fakes.data_sets import BOX, YAML, write_picture, write_split

MakeSet = Callable[..., Path]


def texts(dataset, kind: NoteKind) -> list[str]:
    return [note.text for note in dataset.notes if note.kind is kind]


def test_the_standard_layout_opens_by_folder_and_by_file(make_set: MakeSet):
    root = make_set()
    for path in (root, root / "data.yaml"):
        dataset = open_dataset(path)
        assert [sample.image.name for sample in dataset.train] == ["a.png", "b.png"]
        assert dataset.val[0].label == root / "labels/val/v.txt"
        assert dataset.val[0].size == (24, 16)
        assert (dataset.names, dataset.test, dataset.notes) == (("first", "second"), (), ())


def test_an_unpacked_archive_opens_by_the_folder_around_the_set(make_set: MakeSet):
    assert open_dataset(make_set().parent).root.name == "set"


def test_a_split_is_a_folder_a_list_of_folders_or_a_list_of_pictures(make_set: MakeSet):
    root = make_set(yaml="train: [images/train, images/more]\nval: val.txt\nnames: [a]\n")
    write_split(root, "more", {"c": BOX})
    (root / "val.txt").write_text("./images/val/v.png\r\n\r\n")
    dataset = open_dataset(root)
    assert [sample.image.name for sample in dataset.train] == ["a.png", "b.png", "c.png"]
    assert dataset.val[0].objects
    assert texts(dataset, NoteKind.COUNT) == [f"train: 2 in {root}/images/train, 1 in {root}/images/more"]


@pytest.mark.parametrize("line", ["images/val/v.png", "{root}/images/val/v.png", "D:\\old place\\images\\val\\v.png"])
def test_a_list_may_start_its_paths_anywhere(make_set: MakeSet, line: str):
    root = make_set(yaml="train: images/train\nval: lists/val.txt\nnames: [a]\n")
    (root / "lists").mkdir()
    (root / "lists/val.txt").write_text("\ufeff" + line.format(root=root) + "\n", encoding="utf-8")
    assert len(open_dataset(root).val) == 1


def test_a_few_pictures_missing_from_a_list_are_noted_and_many_are_an_error(make_set: MakeSet):
    root = make_set(train={f"p{number}": BOX for number in range(19)}, yaml=YAML.replace("images/train", "train.txt"))
    lines = [f"images/train/p{number}.png" for number in range(19)]
    (root / "train.txt").write_text("\n".join(["images/train/gone.png", *lines]))
    (note,) = open_dataset(root).skipped
    assert str(note) == f"{root}/train.txt:1: no such picture: images/train/gone.png"
    (root / "train.txt").write_text("\n".join(["gone1.png", "gone2.png", "gone3.png", *lines]))
    with pytest.raises(DatasetError, match=r"train\.txt:1: no such picture: gone1\.png \(3 of 22 lines"):
        open_dataset(root)


@pytest.mark.parametrize(
    ("picture", "label"),
    [
        ("/d/images/train/a.jpg", "/d/labels/train/a.txt"),
        ("/d/train/images/a.b.jpg", "/d/train/labels/a.b.txt"),
        ("/images/d/images/images_1.jpg", "/images/d/labels/images_1.txt"),
        ("/d/Images/a.JPG", "/d/Labels/a.txt"),
        ("/d/train/a.jpg", "/d/train/a.txt"),
    ],
)
def test_only_the_last_folder_named_images_becomes_labels(picture: str, label: str):
    assert label_path(Path(picture)) == Path(label)


def test_labels_beside_the_pictures_are_used_where_the_rule_finds_none(make_set: MakeSet):
    root = make_set(train={"a": None, "b": None})
    (root / "images/train/a.txt").write_text(BOX)
    dataset = open_dataset(root)
    assert [len(sample.objects) for sample in dataset.train] == [1, 0]
    assert "those beside the pictures are used" in texts(dataset, NoteKind.PLACE)[0]


def test_pictures_are_found_in_folders_within_folders_and_hidden_files_are_not(make_set: MakeSet):
    root = make_set()
    write_picture(root / "images/train/deep/er/x.PNG")
    (root / "images/train/._a.png").write_bytes(b"x")
    (root / "images/train/notes.txt").write_text("x")
    write_picture(root / "images/train/.trash/y.png")
    (root / "images/train/phone.heic").write_bytes(b"x")
    dataset = open_dataset(root)
    assert [sample.image.name for sample in dataset.train] == ["a.png", "b.png", "x.PNG"]
    assert texts(dataset, NoteKind.COUNT) == ["files of kinds that are not read, left out: 1 .heic"]


def test_a_broken_picture_is_left_out_with_its_reason_unless_only_names_are_checked(make_set: MakeSet):
    root = make_set()
    (root / "images/train/a.png").write_bytes(b"")
    dataset = open_dataset(root)
    assert [str(note) for note in dataset.skipped] == [f"{root}/images/train/a.png: is empty (0 bytes)"]
    assert len(dataset.train) == 1
    assert len(open_dataset(root, PictureCheck.NAMES).train) == 2
    assert open_dataset(root, PictureCheck.NAMES).train[0].size is None


def test_damage_in_the_middle_of_a_picture_is_seen_by_the_check_of_pixels(make_set: MakeSet):
    root = make_set()
    path = root / "images/train/a.png"
    Image.effect_noise((64, 64), 90).save(path)
    data = bytearray(path.read_bytes())
    data[300:340] = bytes(40)
    path.write_bytes(data)
    assert not open_dataset(root).skipped
    assert "damaged" in open_dataset(root, PictureCheck.PIXELS).skipped[0].text


def test_findings_in_labels_are_told_once_for_the_set_or_row_by_row(make_set: MakeSet):
    polygon = "1 0.2 0.3 0.6 0.3 0.4 0.7\n"
    dataset = open_dataset(make_set(train={"a": BOX + polygon + "0 nan 0 0 0\n", "b": polygon + BOX + BOX}))
    assert texts(dataset, NoteKind.COUNT) == ["2 polygon rows turned into boxes", "1 duplicate row removed"]
    (row,) = (note for note in dataset.notes if note.kind is NoteKind.ROW)
    assert (row.file.name, row.line, row.text) == ("a.txt", 3, "row dropped: a number is nan or infinite")


def test_one_label_file_in_pixels_among_many_costs_its_picture_and_no_more(make_set: MakeSet):
    labels = {f"p{number:02}": BOX for number in range(20)}
    dataset = open_dataset(make_set(train={**labels, "p07": "0 300 200 50 40\n"}))
    assert len(dataset.train) == 19
    (note,) = dataset.skipped
    assert note.file.name == "p07.png"
    assert "line 1: coordinates are in pixels?" in note.text


def test_a_set_in_pixels_is_refused_with_file_line_and_the_right_form(make_set: MakeSet):
    with pytest.raises(DatasetError, match=r"a\.txt:2: coordinates are in pixels\? a row is .* \(2 of 3 label files"):
        open_dataset(make_set(train={"a": "\n0 300 200 50 40\n", "b": "0 30 20 50 40\n"}))


def test_a_class_out_of_range_is_an_error_with_the_allowed_range(make_set: MakeSet):
    with pytest.raises(DatasetError, match=r"b\.txt:2: class 2, allowed 0-1$") as caught:
        open_dataset(make_set(train={"a": BOX, "b": BOX + "2 0.5 0.5 0.1 0.1\n"}))
    assert "numbered from 1?" not in caught.value.hint


def test_labels_that_are_numbered_from_one_are_recognised(make_set: MakeSet):
    labels = {"a": "1 0.5 0.5 0.1 0.1\n2 0.2 0.2 0.1 0.1\n", "b": "2 0.5 0.5 0.1 0.1\n"}
    with pytest.raises(DatasetError, match=r"class 2, allowed 0-1 \(2 rows in 2 files") as caught:
        open_dataset(make_set(train=labels, val={"v": "1 0.5 0.5 0.2 0.2\n"}))
    assert "numbered from 1?" in caught.value.hint


def test_pictures_without_labels_are_background_and_a_split_without_any_is_an_error(make_set: MakeSet):
    root = make_set(train={"a": BOX, "b": "", "c": None})
    counted = summary(open_dataset(root)).splits[0]
    assert (counted.pictures, counted.background, counted.unlabelled) == (3, 2, 1)
    (root / "labels/val/v.txt").write_text("")
    with pytest.raises(
        DatasetError, match=r"no labels for any of the 1 pictures of `val`; the label files hold no obj"
    ):
        open_dataset(root)
    (root / "labels/val/v.txt").unlink()
    with pytest.raises(DatasetError, match=r"yaml:2: no labels for any .* `val`; looked in .*/labels/val"):
        open_dataset(root)


def test_a_split_without_pictures_is_an_error(make_set: MakeSet):
    root = make_set()
    (root / "images/val/v.png").unlink()
    with pytest.raises(DatasetError, match=r"data\.yaml:2: no pictures in .*/images/val \(`val`\)"):
        open_dataset(root)
    write_picture(root / "images/val/v.png").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"no usable picture in `val`: .*v\.png: is empty"):
        open_dataset(root)


def test_a_missing_path_is_named(tmp_path: Path):
    with pytest.raises(DatasetError, match="none: no such folder or file"):
        open_dataset(tmp_path / "none")
    with pytest.raises(DatasetError, match=r"no data\.yaml"):
        open_dataset(tmp_path)
    (tmp_path / "a.zip").touch()
    with pytest.raises(DatasetError, match=r"a\.zip: is not a data\.yaml"):
        open_dataset(tmp_path / "a.zip")


def test_train_and_val_that_share_pictures_are_warned_about(make_set: MakeSet):
    root = make_set(yaml=YAML.replace("images/val", "images/train"))
    assert texts(open_dataset(root), NoteKind.OVERLAP)[0].startswith("train and val are the same pictures")
    (root / "data.yaml").write_text(YAML.replace("images/val", "[images/val, images/train]"))
    assert texts(open_dataset(root), NoteKind.OVERLAP)[0].startswith("2 of 3 pictures of val are also in train")


def test_copies_of_train_pictures_in_val_are_warned_about(make_set: MakeSet):
    root = make_set()
    (root / "images/val/v.png").write_bytes((root / "images/train/b.png").read_bytes())
    assert texts(open_dataset(root), NoteKind.OVERLAP) == [
        "1 of 1 pictures of val are copies of pictures of train (v.png is b.png)"
    ]


def test_label_files_without_a_picture_are_told_once(make_set: MakeSet):
    root = make_set()
    for name in ("lost", "more", "classes"):
        (root / f"labels/train/{name}.txt").write_text(BOX)
    assert texts(open_dataset(root), NoteKind.COUNT) == ["label files without a picture, ignored: lost.txt and 1 more"]


def test_pictures_that_share_a_label_file_are_both_used_and_told_about(make_set: MakeSet):
    root = make_set()
    Image.open(root / "images/train/a.png").save(root / "images/train/a.jpg")
    dataset = open_dataset(root)
    assert [len(sample.objects) for sample in dataset.train] == [1, 1, 1]
    assert texts(dataset, NoteKind.COUNT) == ["a.jpg and a.png share this label file"]


def test_the_summary_says_what_is_used_and_skipped(make_set: MakeSet):
    root = make_set(train={"a": BOX + "1 0.2 0.2 0.1 0.1\n", "b": "", "c": BOX})
    (root / "images/train/c.png").write_bytes(b"")
    assert summary(open_dataset(root)).lines() == [
        "train: 2 pictures, 1 of them background, 2 objects (first 1, second 1)",
        "val: 1 pictures, 1 objects (first 1, second 0)",
        "pictures of 24x16",
        "1 skipped: c.png",
    ]


def test_many_notes_of_a_kind_are_cut_short(make_set: MakeSet):
    dataset = open_dataset(make_set(train={"a": BOX + "0 0.5 0.5 0 0\n" * 9}))
    lines = brief(dataset.notes, per_kind=2)
    assert len(lines) == 3
    assert lines[-1] == "... and 7 more of this kind (row)"


@pytest.mark.parametrize(
    ("given", "layout", "noted"),
    [
        ("train: ../train/images\nval: ../val/images", "train/images", True),
        ("path: elsewhere\ntrain: train/images\nval: val/images", "train/images", True),
        ("path: E:\\Data Sets\\one\ntrain: train\\images\nval: val\\images", "train/images", True),
        ("path: /no/such/place\ntrain: train/images\nval: val/images", "train/images", True),
        ("path: ./Parking-1\ntrain: ../train/images\nval: ../val/images", "train/images", True),
        ("train: D:/old/set/images/train\nval: D:\\old\\set\\images\\val", "set/images/train", True),
        ("train: .\\images\\train\\\nval: ./images/val/", "images/train", False),
        ("path: .\ntrain: images/train\nval: images/val", "images/train", False),
        ("path: sub\ntrain: images/train\nval: images/val", "sub/images/train", False),
    ],
)
def test_places_are_found_where_they_were_meant(tmp_path: Path, given: str, layout: str, noted: bool):
    for split in ("train", "val"):
        picture = write_picture(tmp_path / layout.replace("train", split) / f"{split}.png")
        label_path(picture).parent.mkdir(parents=True, exist_ok=True)
        label_path(picture).write_text(BOX)
    (tmp_path / "data.yaml").write_text(given + "\nnames: [a]\n")
    dataset = open_dataset(tmp_path)
    assert (len(dataset.train), len(dataset.val)) == (1, 1)
    notes = texts(dataset, NoteKind.PLACE)
    assert len(notes) == (2 if noted else 0)
    assert all(str(tmp_path) in note and "is not there" in note for note in notes)


def test_a_place_that_is_nowhere_lists_all_that_was_tried_and_the_key(tmp_path: Path):
    (tmp_path / "data.yaml").write_text("path: E:\\one\ntrain: train/images\nval: v\nnames: [a]\n")
    with pytest.raises(
        DatasetError, match=r"yaml:2: no such folder for `train: train/images` under `path: E:"
    ) as caught:
        open_dataset(tmp_path)
    assert f"tried {tmp_path}/train/images" in str(caught.value)
    assert "change `path`" in caught.value.hint


def test_an_absolute_place_that_is_missing_suggests_what_lies_beside(tmp_path: Path):
    (tmp_path / "data.yaml").write_text("train: /mydata/images/train\nval: v\nnames: [a]\n")
    with pytest.raises(DatasetError, match="tried /mydata/images/train"):
        open_dataset(tmp_path)
    (tmp_path / "mydata/images/train").mkdir(parents=True)
    with pytest.raises(DatasetError) as caught:
        open_dataset(tmp_path)
    assert "drop the first slash, write `train: mydata/images/train`" in caught.value.hint


def test_a_pipe_among_the_pictures_is_left_out_with_a_note(make_set: MakeSet):
    root = make_set()
    os.mkfifo(root / "images/train/pipe.png")
    dataset = open_dataset(root)
    assert [sample.image.name for sample in dataset.train] == ["a.png", "b.png"]
    assert [note.file for note in dataset.skipped] == [root / "images/train/pipe.png"]
    assert "is a pipe" in dataset.skipped[0].text


@pytest.mark.parametrize("place", ["labels/train/a.txt", "data.yaml", "train.txt"])
def test_a_pipe_in_the_place_of_a_text_is_refused_and_not_waited_for(make_set: MakeSet, place: str):
    root = make_set(yaml=YAML.replace("images/train", "train.txt") if place == "train.txt" else YAML)
    (root / place).unlink(missing_ok=True)
    os.mkfifo(root / place)
    with pytest.raises(DatasetError, match="is a pipe"):
        open_dataset(root / "data.yaml")
