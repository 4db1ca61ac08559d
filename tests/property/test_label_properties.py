"""Whatever a label file holds, the answer is finite boxes inside the picture and findings with lines."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from remote.dataset.labels import parse_labels

NUMBERS = st.one_of(
    st.floats(-0.5, 1.5),
    st.floats(),
    st.integers(-3, 900),
    st.sampled_from(["nan", "1e-320", "x", ",", "0,5", "1e400"]),
)
ROWS = st.lists(NUMBERS, min_size=0, max_size=9).map(lambda row: " ".join(map(str, row)))
TEXTS = st.one_of(st.text(), st.lists(ROWS, max_size=6).map("\n".join))


def assert_sound(text: str, classes: int) -> None:
    labels = parse_labels(text, classes)
    for thing in labels.objects:
        assert 0 <= thing.cls < classes
        assert all(map(math.isfinite, (thing.cx, thing.cy, thing.w, thing.h)))
        assert thing.w > 0
        assert thing.h > 0
        for centre, side in ((thing.cx, thing.w), (thing.cy, thing.h)):
            assert -1e-9 <= centre - side / 2 <= centre + side / 2 <= 1 + 1e-9
    lines = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert all(1 <= finding.line <= lines for finding in labels.findings)


@settings(deadline=None)
@given(TEXTS, st.integers(1, 90))
def test_every_text_gives_finite_boxes_inside_the_picture(text: str, classes: int):
    assert_sound(text, classes)


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(0.05, 0.95)] * 2, *[st.floats(0.01, 0.1)] * 2), max_size=20, unique=True))
def test_good_rows_come_back_unchanged_and_in_order(boxes):
    text = "\n".join(f"0 {cx!r} {cy!r} {w!r} {h!r}" for cx, cy, w, h in boxes)
    found = [(thing.cx, thing.cy, thing.w, thing.h) for thing in parse_labels(text, 1).objects]
    assert found == boxes
    assert not parse_labels(text, 1).findings
