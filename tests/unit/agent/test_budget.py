"""What is owed over time, and until when training may go on for it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.agent.budget import ends_at, flaw, owed_usd
from remote.protocol import Budget, PricePoint

START = 1_000_000.0
HOUR = 3600.0

amounts = st.floats(0, 500)
prices = st.lists(st.tuples(st.floats(0, 1e5), st.sampled_from([0.0, 0.1, 0.53, 3.6, 98.3])), min_size=1, max_size=6)


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    since, points = START, []
    for gap, usd_per_hour in draw(prices):
        since += gap
        points.append(PricePoint(since, usd_per_hour))
    return Budget(draw(amounts), draw(amounts), points, draw(st.floats(0, 900)))


def budget(cap: float, *prices: tuple[float, float], fixed: float = 0.0, stop: float = 0.0) -> Budget:
    """Prices as (hours from the start, USD an hour)."""
    return Budget(cap, fixed, [PricePoint(START + hours * HOUR, usd) for hours, usd in prices], stop)


def test_one_price_is_owed_by_the_hour_until_the_end_of_billing() -> None:
    one = budget(10, (0, 2), fixed=1.5, stop=360)
    assert owed_usd(one, START) == pytest.approx(1.5 + 0.2)
    assert owed_usd(one, START + HOUR) == pytest.approx(1.5 + 2.2)


def test_before_the_first_price_only_the_fixed_part_is_owed() -> None:
    assert owed_usd(budget(10, (1, 2), fixed=1.5), START) == 1.5


def test_a_price_holds_until_the_next_one() -> None:
    one = budget(10, (0, 1), (1, 3), (2, 0.5))
    hours = [0, 0.5, 1, 1.5, 2, 4]
    assert [owed_usd(one, START + hour * HOUR) for hour in hours] == pytest.approx([0, 0.5, 1, 2.5, 4, 5])


def test_a_price_that_is_yet_to_come_counts_once_billing_reaches_it() -> None:
    one = budget(10, (0, 1), (1, 4), stop=HOUR / 2)
    assert owed_usd(one, START + HOUR) == pytest.approx(1 + 2)


@pytest.mark.parametrize(
    ("one", "hours"),
    [
        (budget(10, (0, 2)), 5),
        (budget(10, (0, 2), fixed=4), 3),
        (budget(10, (0, 2), stop=HOUR / 2), 4.5),
        (budget(10, (0, 1), (5, 10)), 5.5),
        (budget(5, (0, 1), (5, 0)), math.inf),
        (budget(5, (0, 1), (5, 0), (8, 1)), 8),
        (budget(5, (0, 1), (4, 0), (8, 1)), 9),
        (budget(1, (0, 0)), math.inf),
        (budget(1, (0, 1), fixed=1.01), -math.inf),
        (budget(1, (0, 1), fixed=1), 0),
    ],
)
def test_the_last_moment_for_a_stop(one: Budget, hours: float) -> None:
    assert ends_at(one) == pytest.approx(START + hours * HOUR)


@given(budgets(), st.floats(0, 1e6))
def test_a_stop_until_the_end_keeps_the_cap_and_a_later_one_does_not(one: Budget, early: float) -> None:
    end = ends_at(one)
    if math.isfinite(end):
        assert owed_usd(one, end) <= one.cap_usd + 1e-6
        assert owed_usd(one, end - early) <= one.cap_usd + 1e-6
        assert owed_usd(one, end + early) >= one.cap_usd - 1e-6
    elif end > 0:
        assert owed_usd(one, START + early) <= one.cap_usd + 1e-6
    else:
        assert one.fixed_usd > one.cap_usd


@given(budgets(), st.floats(0, 1e6), st.floats(0, 1e6))
def test_what_is_owed_never_falls(one: Budget, before: float, more: float) -> None:
    assert owed_usd(one, START + before) <= owed_usd(one, START + before + more)


@given(budgets())
def test_dearer_prices_never_end_later(one: Budget) -> None:
    dearer = replace(one, points=[PricePoint(p.since, p.usd_per_hour * 2) for p in one.points])
    assert ends_at(dearer) <= ends_at(one)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (budget(1, (0, 1)), None),
        (Budget(1, 0, [], 0), "no prices"),
        (budget(math.nan, (0, 1)), "not finite"),
        (budget(1, (0, math.inf)), "not finite"),
        (budget(1, (0, -1)), "negative"),
        (budget(1, (1, 1), (0, 2)), "order of time"),
    ],
)
def test_what_would_be_no_limit_is_told(one: Budget, said: str | None) -> None:
    found = flaw(one)
    assert (found is None) if said is None else (said in str(found))
