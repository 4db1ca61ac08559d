"""Money, durations and sizes as people write them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.units import parse_duration, parse_size_gib, parse_usd, show_duration, show_gib, show_usd


@pytest.mark.parametrize(
    ("text", "usd"),
    [
        ("50", "50"),
        (50, "50"),
        (12.5, "12.5"),
        ("$50", "50"),
        ("$ 12.50", "12.50"),
        ("12.50 USD", "12.50"),
        ("12usd", "12"),
        (" 0.001 ", "0.001"),
    ],
)
def test_money_is_read_exactly(text, usd):
    assert parse_usd(text) == Decimal(usd)


@pytest.mark.parametrize("text", ["", "0", "-5", "five", "nan", "inf", "$", "1e9", "5 EUR", "1,000", None, True])
def test_what_is_no_budget_is_refused_with_the_text(text):
    with pytest.raises(ValueError, match=r"(?s).*") as error:
        parse_usd(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12h", 43200),
        ("90m", 5400),
        ("90min", 5400),
        ("1h30m", 5400),
        ("1 h 30 m", 5400),
        ("45s", 45),
        ("2d", 172800),
        ("1.5h", 5400),
        ("12H", 43200),
        ("1d12h30m10s", 131410),
    ],
)
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "12", 12, "0h", "h", "1x", "1h30", "-1h", "h1", "61d", "1e3h", "1h,30m"])
def test_what_is_no_duration_is_refused_and_a_bare_number_has_no_unit_to_guess(text):
    with pytest.raises(ValueError, match="duration") as error:
        parse_duration(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("100GiB", 100),
        ("100", 100),
        (100, 100),
        ("100GB", 94),
        ("100 gb", 94),
        ("0.5TB", 466),
        ("1TiB", 1024),
        ("512MiB", 1),
        ("1.2G", 2),
        ("64TiB", 65536),
    ],
)
def test_sizes_are_read_in_whole_gib_rounded_up(text, gib):
    assert parse_size_gib(text) == gib


@pytest.mark.parametrize("text", ["", "0", "-1", "100KB", "big", "65TiB", "1e3", "GiB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="size") as error:
        parse_size_gib(text)
    assert repr(text) in str(error.value)


@given(st.integers(1, 5_000_000))
def test_a_duration_in_seconds_comes_back(seconds):
    assert parse_duration(f"{seconds}s") == seconds
    assert parse_duration(f"{float(seconds)}s") == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (9.4, "9 s"),
        (59.6, "1 min 00 s"),
        (250, "4 min 10 s"),
        (3599.6, "1 h 00 min"),
        (11_100, "3 h 05 min"),
        (200_000, "55 h 33 min"),
        (-3, "0 s"),
    ],
)
def test_durations_are_shown_in_the_unit_that_fits(seconds, text):
    assert show_duration(seconds) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        ("12.346", "$12.35"),
        ("1234.5", "$1,234.50"),
        ("0.0231", "$0.0231"),
        ("0", "$0.0000"),
        ("0.0001", "$0.0001"),
        ("0.00003", "<$0.0001"),
        ("0.99999", "$1.0000"),
        ("1", "$1.00"),
        ("-0.5", "$-0.5000"),
    ],
)
def test_money_below_a_dollar_is_shown_to_the_hundredth_of_a_cent(usd, text):
    assert show_usd(Decimal(usd)) == text


@pytest.mark.parametrize(
    ("size", "text"), [(5, "5 B"), (2048, "2.0 KiB"), (3 * 2**20, "3.0 MiB"), (5 * 2**30, "5.0 GiB")]
)
def test_sizes_are_shown_in_the_unit_that_fits(size, text):
    assert show_gib(size) == text
