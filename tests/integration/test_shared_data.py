"""Data of real users: each file of the shared folder has the outcome that its index gives.

Skipped where the shared folder is not beside the checkout.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import ImageChops, ImageStat

from launcher.staging_archive import pack
from remote.dataset import (
    Dataset,
    DatasetError,
    NoteKind,
    PictureCheck,
    Split,
    extract,
    import_dataset,
    label_path,
    load_image,
    open_dataset,
    summary,
)
from remote.dataset.labels import RowKind, read_labels
from tests.fakes.cli_messages import one_message
from tests.fakes.data_sets import BOX, YAML, make_set, write_picture

SHARED = (Path(__file__).parents[2] / "../shared/data").resolve()
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the shared data sets in {SHARED}")


# --- whole sets


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("sets")

    def unpack(name: str) -> Path:
        if not (root / name).exists():
            extract(SHARED / name / f"{name}.tar", root / name)
        return root / name

    return unpack


@pytest.mark.parametrize(
    ("name", "pictures", "objects"),
    [
        ("bccd", (205, 87, 72), ((2381, 214, 209), (967, 87, 83), (805, 71, 69))),
        ("rubik", (208, 20, 10), ((208,), (20,), (10,))),
    ],
)
def test_a_real_set_has_the_pictures_and_boxes_of_its_readme(unpacked, tmp_path: Path, name: str, pictures, objects):
    dataset = open_dataset(unpacked(name))
    counted = summary(dataset)
    assert tuple(split.pictures for split in counted.splits) == pictures
    assert tuple(split.objects for split in counted.splits) == objects
    assert dataset.notes == ()
    packed = pack(dataset, tmp_path / "set.tar")
    extract(packed.path, tmp_path / "again")
    assert summary(open_dataset(tmp_path / "again")) == counted


NOT_PICTURES = {"error_page.jpg", "image-006.jpeg", "one_pixel.png", "truncated.jpg", "zero_byte.jpg"}


@pytest.mark.parametrize("check", [PictureCheck.HEADERS, PictureCheck.PIXELS])
def test_odd_pictures_are_used_or_left_out_by_name(unpacked, check: PictureCheck):
    dataset = open_dataset(unpacked("image-oddities"), check)
    assert {note.file.name for note in dataset.skipped} == NOT_PICTURES
    assert len(dataset.skipped) == len(NOT_PICTURES)
    assert len(dataset.train) == 24
    assert [sample.image.name for sample in dataset.train if not sample.objects] == ["no_label_file.jpg"]
    told = " ".join(note.text for note in dataset.notes if note.kind is NoteKind.COUNT)
    assert "label_without_picture.txt" in told
    assert "twin.jpg and twin.png share" in told


def test_odd_pictures_load_upright_in_three_channels_and_of_the_size_that_was_told(unpacked):
    for sample in open_dataset(unpacked("image-oddities")).train:
        image = load_image(sample.image)
        assert image.mode == "RGB"
        assert image.size == sample.size
        deviation = sum(ImageStat.Stat(image).stddev)
        assert deviation > 20, f"{sample.image.name} is flat: {deviation}"


def test_the_same_cell_picture_in_other_clothes_looks_the_same(unpacked):
    """Nearly all are BCCD pictures: the bright and pink ground must be there in each, whatever the file's form."""
    for sample in open_dataset(unpacked("image-oddities")).train:
        if sample.image.name == "raccoon-150.jpg":
            continue
        red, green, blue = ImageStat.Stat(load_image(sample.image)).mean
        assert 120 < green < 225, sample.image.name
        gray = sample.image.name in ("gray16.png", "gray_alpha.png")
        assert (red == green == blue) if gray else (red > green), sample.image.name


@pytest.mark.parametrize("name", ["exif_orientation_6.jpg", "exif_orientation_3.jpg", "plain_02.jpg"])
def test_boxes_line_up_on_the_upright_picture(unpacked, name: str):
    """White cells are dark purple: the box of one is far less green than the picture around it."""
    dataset = open_dataset(unpacked("image-oddities"))
    (sample,) = (sample for sample in dataset.train if sample.image.name == name)
    image = load_image(sample.image)
    cell = next(thing for thing in sample.objects if dataset.names[thing.cls] == "WBC")
    corners = (cell.cx - cell.w / 4, cell.cy - cell.h / 4, cell.cx + cell.w / 4, cell.cy + cell.h / 4)
    box = tuple(round(value * side) for value, side in zip(corners, image.size * 2, strict=True))
    inside, around = ImageStat.Stat(image.crop(box)).mean[1], ImageStat.Stat(image).mean[1]
    assert inside < around - 15


def test_twins_are_the_same_picture(unpacked):
    folder = unpacked("image-oddities") / "image-oddities" / "images" / "train"
    twins = ImageChops.difference(load_image(folder / "twin.jpg"), load_image(folder / "twin.png"))
    assert max(ImageStat.Stat(twins).mean) < 6


# --- label files


@dataclass(frozen=True)
class Rows:
    """What a label file should give."""

    classes: int
    objects: int
    findings: tuple[tuple[int, RowKind], ...] = ()
    says: str = ""
    refused: bool = False


POLYGON, BAD = RowKind.POLYGON, RowKind.MALFORMED
LABELS = {
    "01-boxes-and-polygons": Rows(5, 6, ((5, POLYGON), (6, POLYGON))),
    "02-polygon-only": Rows(2, 1, ((1, POLYGON),)),
    "03-six-columns-score-second": Rows(5, 0, ((1, BAD), (2, BAD), (3, BAD)), "6 columns are neither", refused=True),
    "04-empty-file": Rows(5, 0),
    "05-windows-line-ends": Rows(1, 5),
    "06-zero-size-box": Rows(3, 5, ((4, RowKind.NO_AREA),), "width 0 and height 0"),
    "07-box-leaves-picture": Rows(1, 1, ((1, RowKind.CLIPPED),)),
    "08-commas": Rows(4, 2, ((1, RowKind.COMMAS), (2, RowKind.COMMAS)), "commas between the numbers"),
    "09-class-equals-nc": Rows(20, 1, ((1, RowKind.CLASS_RANGE),), "class 20, allowed 0-19"),
    "10-negative-centre": Rows(1, 2, ((1, RowKind.CENTRE_OUTSIDE),)),
    "11-pixels-not-fractions": Rows(1, 0, ((1, BAD), (2, BAD)), "coordinates are in pixels?", refused=True),
    "12-same-row-twice": Rows(3, 2, ((3, RowKind.DUPLICATE),)),
    "13-nan": Rows(1, 1, ((1, BAD),), "nan"),
}


def test_every_label_file_of_the_index_has_its_outcome_here():
    assert {path.stem for path in (SHARED / "wild-labels").glob("*.txt")} == set(LABELS)


@pytest.mark.parametrize("name", LABELS)
def test_a_label_file_of_a_real_user_has_the_outcome_of_the_index(name: str):
    expected, found = LABELS[name], read_labels(SHARED / "wild-labels" / f"{name}.txt", LABELS[name].classes)
    assert len(found.objects) == expected.objects
    assert tuple((finding.line, finding.kind) for finding in found.findings) == expected.findings
    assert expected.says in " ".join(finding.text for finding in found.findings)
    assert (found.refusal is not None) is expected.refused


@pytest.mark.parametrize(
    ("name", "row", "corners"),
    [
        ("01-boxes-and-polygons", 4, (0.786984, 0.004968, 0.997293, 0.460010)),
        ("01-boxes-and-polygons", 5, (0.855722, 0.495777, 1.0, 1.0)),
        ("02-polygon-only", 0, (0.30, 0.482143, 0.483333, 0.654762)),
        ("07-box-leaves-picture", 0, (0.84, 0.43, 1.0, 0.77)),
        ("10-negative-centre", 0, (0.0, 0.35, 0.017859, 0.65)),
    ],
)
def test_a_box_of_a_real_user_is_where_the_index_says(name: str, row: int, corners: tuple[float, ...]):
    box = read_labels(SHARED / "wild-labels" / f"{name}.txt", 5).objects[row]
    found = (box.cx - box.w / 2, box.cy - box.h / 2, box.cx + box.w / 2, box.cy + box.h / 2)
    assert found == pytest.approx(corners, abs=1e-6)


# --- data.yaml


@dataclass(frozen=True)
class Case:
    """A data.yaml, the folders laid out around it, and what must come of it."""

    train: tuple[str, ...] = ()
    """Folders of pictures, beside the yaml."""
    val: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    """List files, beside the yaml, each with the pictures of the folder of the same name."""
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """In the notes, in any order; and there are no other notes."""
    error: tuple[str, ...] = ()
    """All in the message and hint; the set is refused."""
    home: str = "home"
    """Where the yaml lies."""
    label: str = BOX


def used(*splits: str) -> tuple[str, ...]:
    return tuple(f"`{split}: " for split in splits)


CASES = {
    "01-roboflow-up-one": Case(
        ("train/images",), ("valid/images", "test/images"), names=("rubik",), notes=used("train", "val", "test")
    ),
    "02-windows-path-with-spaces": Case(
        ("train/images",), ("valid/images", "test/images"),
        names=("z100", "z30", "z40", "z50", "z60", "z70", "z80", "z90"),
        notes=("`train: train/images` under `path: E:\\Development\\Machine Vision", "`val: ", "`test: "),
    ),
    "02-windows-path-with-spaces nowhere": Case(error=("E:\\Development\\Machine Vision", "change `path`", "yaml:2:")),
    "03-crlf-windows-txt-lists": Case(
        ("train",), ("val", "test"), ("train.txt", "val.txt", "test.txt"), ("masking", "unmasked"),
        notes=used("train", "val", "test"),
    ),
    "03-crlf-windows-txt-lists nowhere": Case(error=("no such file", "D:/Download/mask/train.txt")),
    "04-mixed-slashes-train-is-val": Case(
        ("images",), names=("insulator",), notes=(*used("train", "val"), "train and val are the same pictures")
    ),
    "05-chinese-names-extra-sections": Case(
        ("images/train",), ("images/val",), names=("人", "猫", "狗", "山", "树"), home="dataset",
        notes=(*used("train", "val"), "unknown keys ignored: `categories`, `train_params`"),
    ),
    "06-chinese-names-list": Case(
        ("images/train2017",), names=("翘头剪", "直剪", "止血钳", "组织钳"), notes=("train and val are the same",)
    ),
    "07-gbk-encoded": Case(
        ("VOCdevkit/images/train",), ("VOCdevkit/images/val",), error=("this file is not UTF-8", "save it as UTF-8")
    ),
    "08-names-are-numbers": Case(error=("/kaggle/working/kaggle_dfire_train1.txt", "no such file")),
    "09-names-are-digit-strings": Case(
        ("train/images",), ("valid/images", "test/images"), names=("0", "1", "2"), notes=used("train", "val", "test")
    ),
    "10-space-before-colon-and-in-path": Case(error=("/content/drive/My Drive/Colab Notebooks", "change `train`")),
    "11-no-nc-txt-lists": Case(
        ("train",), ("val", "test"), ("train.txt", "val.txt", "test.txt"), ("face", "smoke", "phone", "drink"),
        notes=used("train", "val", "test"),
    ),
    "12-root-anchored-and-null-test": Case(
        ("mydata/images/train",), ("mydata/images/test",),
        error=("tried /mydata/images/train", "drop the first slash", "`train: mydata/images/train`"),
    ),
    "13-path-and-dotdot": Case(
        ("train/images",), ("valid/images", "test/images"), names=("CarIn", "GateClosed", "GateOpened"),
        notes=used("train", "val", "test"),
    ),
    "13-path-and-dotdot nowhere": Case(error=("tried ", "Parking-Space-1/../train/images", "home/train/images")),
    "14-list-of-folders": Case(
        ("images/folder1", "images/folder2"), ("images/folder3", "images/folder4"), names=("class1",),
        notes=("`train: images/folder1", "`train: images/folder2", "`val: images/folder3", "`val: images/folder4",
               "train: 1 in ", "val: 1 in "),
    ),
    "14-list-of-folders one missing": Case(
        ("images/folder1",), ("images/folder3", "images/folder4"), error=("yaml:4:", "no such folder", "images/folder2")
    ),
    "15-leftover-download-and-extra-key": Case(
        ("train",), ("val", "test"), ("train.txt", "val.txt", "test.txt"), ("mask", "nomaks"),
        notes=(*used("train", "val", "test"), "`download` is ignored", "unknown keys ignored: `test_xml`"),
    ),
    "15-leftover-download-and-extra-key nowhere": Case(error=("`train: D:/YOLOV5/data/mydata", "no such file")),
    "16-twenty-classes-flow-list": Case(
        ("train/images",), ("valid/images",), names=tuple(f"Class {number}" for number in range(1, 21))
    ),
    "16-twenty-classes-flow-list from one": Case(
        ("train/images",), ("valid/images",), label="1 0.5 0.5 0.1 0.1\n20 0.5 0.5 0.2 0.2\n",
        error=(".txt:2: class 20, allowed 0-19", "numbered from 1?"),
    ),
    "17-unindented-map-is-null": Case(error=("`names` is empty; the lines `0: ...` under it", "not indented")),
    "18-duplicate-key": Case(
        ("../datasets/coco/train",), ("../datasets/coco/val", "../datasets/coco/test"),
        ("../datasets/coco/train2017.txt", "../datasets/coco/val2017.txt", "../datasets/coco/test-dev2017.txt"),
        ("person", "bicycle", "car"), notes=("`path` is given twice, on lines 1 and 2",),
    ),
    "19-windows-path-no-nc": Case(
        ("images/train",), ("images/valid", "images/test"), names=("empty", "occupied"),
        notes=used("train", "val", "test"),
    ),
    "20-dashes-as-a-name": Case(
        ("bread/dataset/bread_simple/images/train",),
        ("bread/dataset/bread_simple/images/val", "bread/dataset/bread_simple/images/test"),
        names=("---", "bo", "piz", "sora"),
    ),
    "21-byte-order-mark": Case(("images/train",), ("images/val",), names=("Botella", "Botellas")),
    "22-tab-indented": Case(error=("yaml:8:", "tab")),
    "23-nc-differs-from-names": Case(("data/helmet/images",), error=("`nc` is 80 but 3 names are given",)),
    "24-val-missing": Case(
        ("mydata/images/train",), ("mydata/images/test",),
        error=("`val` is missing", "`val: images/val`", "`test` is not used"),
    ),
    "25-names-one-string": Case(
        ("train",), ("val",), names=("box",), notes=(*used("train", "val"), "read as one class, 'box'")
    ),
}  # fmt: skip


def lay_out(tmp_path: Path, name: str, case: Case) -> Path:
    """The yaml with the bytes of the user, and pictures where the case wants them."""
    home = tmp_path / case.home
    home.mkdir()
    shutil.copyfile(SHARED / "wild-yaml" / f"{name.split()[0]}.yaml", home / "data.yaml")
    for number, folder in enumerate((*case.train, *case.val)):
        picture = write_picture(home / folder / f"p{number}.png", shade=20 * number)
        label_path(picture).parent.mkdir(parents=True, exist_ok=True)
        label_path(picture).write_text(case.label)
    for number, file in enumerate(case.lists):
        folder = (*case.train, *case.val)[number]
        (home / file).write_text(f"D:\\some\\where\\{Path(folder).name}\\p{number}.png\r\n", encoding="utf-8")
    return home


def test_every_data_yaml_of_the_index_has_its_outcome_here():
    assert {path.stem for path in (SHARED / "wild-yaml").glob("*.yaml")} == {name.split()[0] for name in CASES}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.error])
def test_a_data_yaml_of_a_real_user_opens_as_its_user_expects(tmp_path: Path, name: str):
    case = CASES[name]
    dataset: Dataset = open_dataset(lay_out(tmp_path, name, case))
    assert dataset.names == case.names
    assert len(dataset.train) == len(case.train)
    notes = [note.text for note in dataset.notes]
    unexplained = [text for text in notes if not any(says in text for says in case.notes)]
    assert not unexplained
    assert not [says for says in case.notes if not any(says in text for text in notes)]
    assert all(note.file is not None and note.line is not None for note in dataset.notes)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.error])
def test_a_data_yaml_of_a_real_user_is_refused_with_the_way_out(tmp_path: Path, name: str):
    with pytest.raises(DatasetError) as caught:
        open_dataset(lay_out(tmp_path, name, CASES[name]))
    message = f"{caught.value} {caught.value.hint}"
    assert not [says for says in CASES[name].error if says not in message]
    assert caught.value.hint
    assert "data.yaml" in message


@pytest.mark.parametrize("name", CASES)
def test_the_command_answers_for_each_data_yaml_as_its_training_would(gpucost, tmp_path: Path, name: str):
    case, home = CASES[name], lay_out(tmp_path, name, CASES[name])
    code, out, err = gpucost("data", "check", str(home))
    if case.error:
        message, hint = one_message(err)
        assert (code, out) == (2, "")
        assert not [says for says in case.error if says not in f"{message} {hint}"]
    else:
        assert (code, err) == (0, "")
        assert f"train: {len(case.train)} pictures" in out
        assert not [says for says in case.notes if says not in out]


@pytest.mark.parametrize("name", [name for name, rows in LABELS.items() if not rows.refused])
def test_the_command_tells_what_it_found_in_the_rows_of_real_users(gpucost, tmp_path: Path, name: str):
    rows = LABELS[name]
    text = (SHARED / "wild-labels" / f"{name}.txt").read_text(encoding="utf-8")
    names = ", ".join(f"c{number}" for number in range(rows.classes))
    root = make_set(
        tmp_path / "set",
        {"a": text, "b": BOX},
        yaml=YAML.replace("2", str(rows.classes), 1).replace("first, second", names),
    )
    code, out, err = gpucost("data", "check", str(root))
    refused = [line for line, kind in rows.findings if kind is RowKind.CLASS_RANGE]
    assert code == (2 if refused else 0)
    assert refused or "train: 2 pictures" in out
    assert all(f"a.txt:{line}: " in out + err for line, _ in rows.findings[:1])


def test_the_command_decodes_the_pictures_and_names_what_it_cannot_use(gpucost):
    code, out, _ = gpucost("data", "check", str(SHARED / "image-oddities" / "image-oddities.tar"))
    assert code == 0
    assert "train: 24 pictures, 1 of them background (1 without a label file)" in out
    assert f"5 skipped: {', '.join(sorted(NOT_PICTURES))}" in out
    assert "image-oddities.tar/image-oddities/images/train/zero_byte.jpg: is empty (0 bytes)" in out


# --- other layouts


def test_the_voc_sample_has_the_boxes_of_its_readme(tmp_path: Path):
    made = import_dataset(SHARED / "import-samples" / "voc-bccd", tmp_path / "new")
    assert made.summary.names == ("Platelets", "RBC", "WBC")
    assert [(split.pictures, split.objects) for split in made.summary.splits] == [
        (3, (3, 37, 3)),
        (4, (3, 64, 4)),
        (1, (1, 17, 1)),
    ]
    assert [(note.file.name, "without area" in note.text) for note in made.notes] == [
        ("BloodImage_00343.xml", True),
        ("BloodImage_00338.xml", True),
    ]
    dataset = open_dataset(tmp_path / "new", PictureCheck.PIXELS)
    assert (dataset.notes, summary(dataset).splits) == ((), made.summary.splits)


def test_boxes_that_were_taken_over_are_those_of_the_yolo_form_of_the_same_set(unpacked, tmp_path: Path):
    import_dataset(SHARED / "import-samples" / "voc-bccd", tmp_path / "new")
    new, old = open_dataset(tmp_path / "new"), open_dataset(unpacked("bccd"))
    known = {sample.image.stem: sample for split in Split for sample in old.split(split)}
    for sample in (*new.train, *new.val, *new.test):
        expected = sorted((old.names[o.cls], o.cx, o.cy, o.w, o.h) for o in known[sample.image.stem].objects)
        found = sorted((new.names[o.cls], o.cx, o.cy, o.w, o.h) for o in sample.objects)
        assert [row[0] for row in found] == [row[0] for row in expected]
        assert [row[1:] for row in found] == [pytest.approx(row[1:], abs=2 / 480) for row in expected]


def test_the_coco_sample_has_the_boxes_of_its_readme_and_its_missing_pictures_are_named(tmp_path: Path):
    made = import_dataset(SHARED / "import-samples" / "coco-rabbit", tmp_path / "new")
    (train,) = made.summary.splits
    assert (made.summary.names, train.pictures, train.objects) == (("rabbit",), 8, (9,))
    assert {note.file.name.split("_")[0] for note in made.summary.skipped} == {"689cffdc2faa0532", "847c3377747b3075"}
    told = [note.text for note in made.notes if note not in made.summary.skipped]
    assert len(told) == 2
    assert "there is no `val`" in told[0]
    assert "category 'z' left out" in told[1]
