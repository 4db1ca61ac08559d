"""One rule a test: what a label row means and what is done about a bad one."""

from array import array

import pytest

from remote.dataset.labels import RowKind, parse_labels, read_labels
from remote.dataset.values import DatasetError, Object


def kinds(text: str, classes: int = 3) -> list[RowKind]:
    return [finding.kind for finding in parse_labels(text, classes).findings]


def test_a_box_row_is_taken_as_it_is():
    assert parse_labels("2 0.5 0.4 0.2 0.1\n", 3).objects == (Object(2, 0.5, 0.4, 0.2, 0.1),)


def test_a_polygon_row_becomes_the_box_around_its_points():
    labels = parse_labels("1 0.2 0.3 0.6 0.3 0.4 0.7", 3)
    assert labels.objects[0] == Object(1, 0.4, 0.5, pytest.approx(0.4), pytest.approx(0.4))
    assert kinds("1 0.2 0.3 0.6 0.3 0.4 0.7") == [RowKind.POLYGON]


def test_an_empty_text_has_no_objects_and_no_findings():
    assert parse_labels("", 3) == parse_labels(" \r\n\n", 3)
    assert not parse_labels("", 3).findings
    assert parse_labels("", 3).refusal is None


def test_line_numbers_count_empty_lines_and_all_line_ends():
    assert [f.line for f in parse_labels("0 0.5 0.5 0.1 0.1\r\n\r\nx\ry\n", 1).findings] == [3, 4]


@pytest.mark.parametrize(
    ("row", "kind", "says"),
    [
        (
            "0 0.9 0.8 0.5 0.1 0.6",
            RowKind.MALFORMED,
            "6 columns are neither a box nor a polygon; is one of them a score",
        ),
        ("0 0.9 0.8", RowKind.MALFORMED, "3 columns"),
        ("0 0.1 0.1 0.2 0.2 0.3 0.3 0.4", RowKind.MALFORMED, "8 columns"),
        ("cat 0.5 0.5 0.1 0.1", RowKind.MALFORMED, "not a number in 'cat 0.5"),
        ("0 nan 0.5 0.1 0.1", RowKind.MALFORMED, "nan or infinite"),
        ("0 0.5 0.5 inf 0.1", RowKind.MALFORMED, "nan or infinite"),
        ("0 547.6 84.5 132.1 151.", RowKind.MALFORMED, "in pixels?"),
        ("0.5 0.5 0.5 0.1 0.1", RowKind.MALFORMED, "class 0.5 is not a whole number"),
        ("0 0.5 0.5 -0.1 0.1", RowKind.MALFORMED, "negative width or height"),
        ("0 0,5 0,5 0,1 0,1", RowKind.MALFORMED, "decimal commas"),
        ("3 0.5 0.5 0.1 0.1", RowKind.CLASS_RANGE, "class 3, allowed 0-2"),
        ("-1 0.5 0.5 0.1 0.1", RowKind.CLASS_RANGE, "class -1, allowed 0-2"),
        ("0 0.5 0.5 0.0 0.0", RowKind.NO_AREA, "width 0 and height 0"),
        ("0 0.1 0.1 0.3 0.1 0.2 0.1", RowKind.NO_AREA, "height 0"),
        ("0 1.5 0.5 0.1 0.1", RowKind.OUTSIDE, "outside the picture"),
    ],
)
def test_a_bad_row_is_dropped_with_its_reason_and_costs_no_other(row: str, kind: RowKind, says: str):
    labels = parse_labels(f"0 0.5 0.5 0.25 0.25\n{row}\n1 0.5 0.5 0.25 0.25\n", 3)
    assert len(labels.objects) == 2
    finding = next(finding for finding in labels.findings if finding.kind is kind)
    assert finding.line == 2
    assert says in finding.text
    assert labels.refusal is None


def test_a_file_with_nothing_but_malformed_rows_is_refused_by_its_first():
    refusal = parse_labels("\n0 300 200 50 60\nx\n", 1).refusal
    assert refusal is not None
    assert refusal.line == 2


def test_a_file_with_nothing_but_an_empty_box_is_a_background_picture():
    assert parse_labels("0 0.5 0.5 0 0", 1).refusal is None


def test_a_box_that_leaves_the_picture_is_cut_at_the_border():
    (found,) = parse_labels("0 0.98 0.6 0.28 0.34", 1).objects
    assert (found.cx - found.w / 2, found.cx + found.w / 2) == (pytest.approx(0.84), pytest.approx(1.0))
    assert (found.cy, found.h) == (pytest.approx(0.6), pytest.approx(0.34))
    assert kinds("0 0.98 0.6 0.28 0.34") == [RowKind.CLIPPED]


def test_a_box_whose_centre_is_outside_is_cut_and_told_about():
    (found,) = parse_labels("0 -0.042141 0.5 0.12 0.3", 1).objects
    assert found.cx + found.w / 2 == pytest.approx(0.017859)
    assert kinds("0 -0.042141 0.5 0.12 0.3") == [RowKind.CENTRE_OUTSIDE]


def test_a_rounding_error_at_the_border_is_cut_without_a_word():
    assert kinds("0 0.9 0.5 0.2000002 0.1") == []


def test_commas_are_read_as_spaces_with_a_finding():
    assert len(parse_labels("0,0.5,0.5,0.1,0.1\n0, 0.2, 0.2, 0.1, 0.1", 1).objects) == 2
    assert kinds("0,0.5,0.5,0.1,0.1") == [RowKind.COMMAS]


def test_a_repeated_row_counts_once():
    assert len(parse_labels("0 0.5 0.5 0.1 0.1\n0 0.50 0.5 0.1 0.1", 1).objects) == 1
    assert kinds("0 0.5 0.5 0.1 0.1\n0 0.50 0.5 0.1 0.1") == [RowKind.DUPLICATE]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_byte_order_mark_does_not_hide_the_first_row(tmp_path, encoding: str):
    path = tmp_path / "a.txt"
    path.write_bytes("0 0.5 0.5 0.1 0.1\n".encode(encoding))
    assert len(read_labels(path, 1).objects) == 1


def test_a_binary_file_is_refused_and_an_unreadable_one_is_an_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\xd8\x80\x00")
    assert read_labels(path, 1).refusal.text == "is not a text file"
    with pytest.raises(DatasetError, match=r"b\.txt: No such file"):
        read_labels(tmp_path / "b.txt", 1)


def test_the_points_of_a_polygon_are_kept_within_the_picture():
    (polygon, box) = parse_labels("0 0.25 0.5 0.75 0.5 0.5 1.25\n0 0.5 0.5 0.1 0.1\n", 1).objects
    assert array("f", polygon.outline).tolist() == [0.25, 0.5, 0.75, 0.5, 0.5, 1.0]
    assert box.outline == b""
