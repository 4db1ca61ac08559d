"""What holds for every plan, whatever the offers."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.cost import (
    LONGEST_SECONDS,
    BillingRule,
    PriceChange,
    Rates,
    affordable_seconds,
    billed_seconds,
    cost_lines,
    price_pieces,
    total,
)
from pricing.ledger import LeaseInterval, ledger_entry, totals
from pricing.offers import CapacityType, Offer, Policy
from pricing.planner import NoOfferFits, Plan
from pricing.risk import ZERO_HAZARD, Hazard
from tests.fakes.pricing_cases import (
    A10_SLICE,
    A100,
    FULL_RATES,
    NOW,
    RATES,
    T4_FOUR,
    T4_METAL,
    T4_SMALL,
    V100,
    offer,
    plan,
)

INSTANCES = (T4_SMALL, T4_FOUR, T4_METAL, V100, A10_SLICE, A100)
PRICES = st.integers(0, 400_000).map(lambda tenths: Decimal(tenths).scaleb(-4))
HAZARDS = st.one_of(st.just(ZERO_HAZARD), st.floats(0, 3).map(lambda rate: Hazard(rate / 2, rate, rate * 1.5)))


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    capacity_type = draw(st.sampled_from(CapacityType))
    made = offer(
        str(draw(PRICES)),
        instance=draw(st.sampled_from(INSTANCES)),
        region=draw(st.sampled_from(("us-east-1", "eu-west-1", "ap-south-1"))),
        capacity_type=capacity_type,
    )
    return replace(made, hazard=draw(HAZARDS) if capacity_type is CapacityType.SPOT else ZERO_HAZARD)


OFFER_LISTS = st.lists(offers(), min_size=1, max_size=12)
POLICIES = st.builds(
    Policy,
    budget_usd=st.none() | st.integers(1, 500).map(lambda cents: Decimal(cents) / 100),
    max_hours=st.none() | st.floats(0.01, 5),
    max_gpus_per_task=st.sampled_from((1, 4, 8)),
    idle_gpus_allowed=st.booleans(),
    checkpoints_restorable=st.booleans(),
    confidence=st.floats(0.5, 0.99),
    storage_region=st.sampled_from((None, "us-east-1", "eu-west-1")),
    keeps_data=st.booleans(),
    resumes=st.booleans(),
)


def planned(made: list[Offer], policy: Policy) -> Plan | None:
    try:
        return plan(made, policy, rates=FULL_RATES)
    except NoOfferFits:
        return None


@given(OFFER_LISTS, POLICIES, st.randoms(use_true_random=False))
def test_the_plan_ignores_the_order_of_offers(made, policy, random):
    shuffled = made.copy()
    random.shuffle(shuffled)
    first, second = planned(made, policy), planned(shuffled, policy)
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert [(option.usd, option.offer.key) for option in first.ranked] == [
            (option.usd, option.offer.key) for option in second.ranked
        ]
        assert [(rejection.offer.key, rejection.reason) for rejection in first.rejections] == [
            (rejection.offer.key, rejection.reason) for rejection in second.rejections
        ]


@given(OFFER_LISTS, offers(), POLICIES)
def test_a_new_offer_never_raises_the_best_cost(made, another, policy):
    before, after = planned(made, policy), planned([*made, another], policy)
    if before is not None:
        assert after is not None
        assert after.chosen.usd <= before.chosen.usd


@given(OFFER_LISTS, POLICIES)
def test_every_offer_is_ranked_or_rejected_exactly_once(made, policy):
    ranked: list[Offer] = []
    try:
        result = plan(made, policy, rates=FULL_RATES)
        ranked, rejections = [option.offer for option in result.ranked], result.rejections
    except NoOfferFits as error:
        rejections = error.rejections
    found = [*ranked, *(rejection.offer for rejection in rejections)]
    assert sorted(map(id, found)) == sorted(map(id, made))


@given(OFFER_LISTS, POLICIES)
def test_options_are_ordered_and_inside_budget_and_deadline(made, policy):
    result = planned(made, policy)
    if result is None:
        return
    costs = [option.usd for option in result.ranked]
    assert costs == sorted(costs)
    for option in result.ranked:
        assert option.seconds_low <= option.seconds <= option.seconds_high
        assert policy.budget_usd is None or option.usd_sure <= policy.budget_usd
        assert policy.max_hours is None or option.timing.sure.seconds <= policy.max_hours * 3600 + 1


@given(OFFER_LISTS, POLICIES)
def test_doubling_all_prices_doubles_the_cost_and_keeps_the_order(made, policy):
    policy = replace(policy, budget_usd=None)
    twice = Rates({key: replace(rate, usd=rate.usd * 2) for key, rate in FULL_RATES.rates.items()}, FULL_RATES.rules)
    dear = [replace(each, usd_per_hour=each.usd_per_hour * 2) for each in made]
    before = planned(made, policy)
    if before is None:
        return
    after = plan(dear, policy, rates=twice)
    assert [option.offer.key for option in after.ranked] == [option.offer.key for option in before.ranked]
    for old, new in zip(before.ranked, after.ranked, strict=True):
        assert new.usd == pytest.approx(2 * old.usd, rel=Decimal("1e-24"))


@given(OFFER_LISTS)
def test_zero_hazard_gives_exactly_the_uninterrupted_cost(made):
    calm = [replace(each, hazard=ZERO_HAZARD) for each in made]
    result = planned(calm, Policy())
    if result is None:
        return
    for option in result.ranked:
        machine = cost_lines(option.offer, -(-option.phases.total // 1), 100, FULL_RATES)
        assert option.lines[: len(machine)] == machine
        beside = {line.what for line in option.lines[len(machine) :]}
        assert beside <= {"objects kept 30 days", "write requests", "read requests", "download of the results"}


@given(OFFER_LISTS, POLICIES)
def test_the_terms_of_a_cost_add_up_to_it_exactly(made, policy):
    result = planned(made, policy)
    for option in result.ranked if result is not None else ():
        assert option.usd == total(option.lines)
        assert option.usd_low <= option.usd <= option.usd_high


@given(OFFER_LISTS, POLICIES)
def test_a_bucket_in_another_region_costs_its_traffic_and_is_warned_of(made, policy):
    """Reads across regions went from nothing to a thousand dollars a month without a word."""
    policy = replace(policy, budget_usd=None)
    here, there = planned(made, replace(policy, storage_region=None)), planned(made, policy)
    if here is None or there is None:
        return
    free = {id(option.offer): option for option in here.ranked}
    for option in there.ranked:
        away = policy.storage_region not in (None, option.offer.region)
        assert bool(option.transfers) == (away and option.offer.provider == "aws"), "the one cloud with a rate here"
        assert option.usd - free[id(option.offer)].usd == pytest.approx(total(option.transfers), abs=Decimal("1e-20"))
        warned = any(f"the bucket is in {policy.storage_region}" in note for note in option.notes)
        assert warned == bool(option.transfers)


@given(OFFER_LISTS)
def test_a_hazard_never_makes_a_run_cheaper(made):
    wild, calm = planned(made, Policy()), planned([replace(each, hazard=ZERO_HAZARD) for each in made], Policy())
    if wild is not None:
        assert calm is not None
        assert calm.chosen.usd <= wild.chosen.usd


RULES = st.builds(BillingRule, st.integers(1, 4000), st.integers(0, 4000))


@given(
    PRICES.filter(lambda usd: usd > 0), st.integers(0, 10**7).map(lambda n: Decimal(n) / 1000), st.integers(1, 9), RULES
)
def test_affordable_seconds_is_the_inverse_of_the_cost(price, usd, disk_gib, rule):
    chosen = offer(str(price))
    rates = Rates(RATES.rates, {"aws": rule})

    def cost(seconds: int) -> Decimal:
        return total(cost_lines(chosen, seconds, disk_gib, rates))

    seconds = affordable_seconds(usd, cost)
    assert cost(seconds) <= usd
    assert seconds == LONGEST_SECONDS or cost(seconds + 1) > usd


CHANGES = st.lists(
    st.tuples(st.integers(-(10**3), 10**5), PRICES.filter(lambda usd: usd > 0)).map(
        lambda pair: PriceChange(NOW + timedelta(milliseconds=100 * pair[0]), pair[1])
    ),
    max_size=6,
)


@given(PRICES.filter(lambda usd: usd > 0), CHANGES, st.floats(0, 10**4), RULES)
def test_the_pieces_of_a_price_timeline_are_the_billed_seconds(price, changes, seconds, rule):
    billed = billed_seconds(rule, seconds)
    pieces = price_pieces(offer(str(price)), seconds, billed, NOW, changes)
    assert sum(piece.seconds for piece in pieces) == billed
    assert all(piece.seconds > 0 for piece in pieces) or billed == 0
    prices = {price, *(change.usd_per_hour for change in changes)}
    assert {piece.usd_per_hour for piece in pieces} <= prices


@given(PRICES.filter(lambda usd: usd > 0), CHANGES, st.integers(0, 10**4), RULES)
def test_a_price_that_does_not_change_costs_the_same_along_its_timeline(price, changes, seconds, rule):
    chosen, rates = offer(str(price)), Rates(RATES.rates, {"aws": rule})
    same = [replace(change, usd_per_hour=price) for change in changes]
    lines = cost_lines(chosen, seconds, 10, rates, started_at=NOW, prices=same)
    assert total(lines) == pytest.approx(total(cost_lines(chosen, seconds, 10, rates)), rel=Decimal("1e-24"))


@given(RULES, st.integers(0, 10**6), st.integers(0, 10**4))
def test_billing_is_monotone_covers_the_time_and_wastes_less_than_a_step(rule, seconds, more):
    billed = billed_seconds(rule, seconds)
    assert billed <= billed_seconds(rule, seconds + more)
    assert billed >= seconds
    assert billed - seconds < max(rule.granularity_seconds, rule.minimum_seconds + 1)


@given(st.lists(st.integers(1, 10**6), max_size=8), PRICES.filter(lambda usd: usd > 0))
def test_the_ledger_total_is_the_sum_over_leases(lengths, price):
    made = [
        ledger_entry(
            offer(str(price)),
            LeaseInterval(f"lease-{number}", "run", NOW, NOW.fromtimestamp(NOW.timestamp() + length, NOW.tzinfo)),
            50,
            RATES,
        )
        for number, length in enumerate(lengths)
    ]
    sums = totals(made)
    assert sums.usd == sum((entry.usd for entry in made), Decimal(0))
    assert sums.leases == len(lengths)
    assert sums.billed_seconds == sum(entry.billed_seconds for entry in made)
