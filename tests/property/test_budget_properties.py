"""Whatever the prices, sizes and budgets: the cap holds at a lease's deadline, and the agent never allows more."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pricing_cases import FULL_RATES, RATES, T4_SMALL, WORKLOAD, plan
from run_cases import ESTIMATE, NOW, SAMPLES, checkpoint, entry, fold, later, launch, opened

from launcher.clouds import AWS, CloudFacts
from launcher.errors import Exhausted
from launcher.events import (
    ArtifactsSynced,
    CheckpointSynced,
    DataStaged,
    InstanceCreated,
    InstanceReady,
    LeaseClosed,
    Selection,
    Settled,
    TrainingExited,
)
from launcher.limits import budget_spec, close_entry, lease_deadline, owed_usd, storage_lines
from launcher.run import Run, advance
from pricing.cost import BillingRule, PriceChange, Rates
from pricing.extras import Traffic, planned_sizes
from pricing.ledger import EndedBy
from pricing.offers import CapacityType, Offer, Policy
from remote.agent.budget import ends_at
from remote.agent.budget import owed_usd as agents_sum

USD_PER_HOUR = st.integers(1, 400_000).map(lambda n: Decimal(n).scaleb(-4))
BYTES = st.integers(0, 10**12)
TRAFFIC = st.builds(Traffic, BYTES, BYTES, BYTES, st.integers(0, 10**5))
REGIONS = st.sampled_from((None, "us-east-1", "eu-west-1"))
ALL_RATES = st.builds(
    lambda rates, granularity, minimum: Rates(rates.rates, {"aws": BillingRule(granularity, minimum)}),
    st.sampled_from((RATES, FULL_RATES)),
    st.sampled_from((1, 1, 60, 3600)),
    st.sampled_from((0, 60, 600)),
)
FACTS = st.sampled_from((AWS, replace(AWS, deadline_grain_seconds=1, power_off_seconds=5)))


@st.composite
def selections(draw: st.DrawFn) -> Selection:
    kind = draw(st.sampled_from(CapacityType))
    chosen = Offer(T4_SMALL, "us-east-1", "", kind, draw(USD_PER_HOUR), "2026-11-15", "test table")
    seconds = draw(st.integers(600, 10**6))
    return Selection(chosen, replace(ESTIMATE, seconds_high=seconds, traffic=draw(TRAFFIC)))


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A run before its next launch, after some machines."""
    first = opened(
        budget_usd=draw(st.integers(1, 10**6)) / Decimal(100),
        storage_region=draw(REGIONS),
        data_url=draw(st.sampled_from((None, "s3://bucket/data.tar"))),
        workload=replace(WORKLOAD, data_bytes=draw(BYTES), tasks=draw(st.integers(1, 9))),
        selection=draw(selections()),
    )
    entries = tuple(entry(number, draw(st.integers(1, 10**4))) for number in range(draw(st.integers(0, 3))))
    return replace(fold([first]), entries=entries)


def on_a_machine(run: Run, deadline: datetime, started_at: datetime, prices: tuple[PriceChange, ...] = ()) -> Run:
    """The run with a machine that was just logged into."""
    asked = launch(7, selection=run.selection, deadline=deadline, requested_at=NOW, prices=prices)
    asked = replace(asked, at=NOW, data_url="s3://bucket/data.tar", data_bytes=run.opened.workload.data_bytes)
    for event in (asked, SAMPLES[InstanceCreated], replace(SAMPLES[InstanceReady], running_since=started_at)):
        run = advance(run, event)
    return run


def settled(run: Run, started_at: datetime, ended_at: datetime, rates: Rates) -> Run:
    """The run at its end, with everything in the bucket that its last sync was expected to leave there."""
    sizes = planned_sizes(run.opened.workload, keeps_data=False)
    stored = replace(checkpoint(9), size=sizes.checkpoint_bytes)
    events = (
        SAMPLES[DataStaged],
        CheckpointSynced(at=ended_at, checkpoint=stored),
        SAMPLES[TrainingExited],
        ArtifactsSynced(at=ended_at, files=3, bytes=sizes.result_bytes),
    )
    for event in events:
        run = advance(run, event)
    closed = close_entry(run, run.lease, started_at, ended_at, EndedBy.US, rates)
    run = advance(run, LeaseClosed(at=ended_at, entry=closed))
    return advance(run, replace(SAMPLES[Settled], at=ended_at, storage=storage_lines(run, rates)))


@given(runs(), ALL_RATES, FACTS, st.floats(0, 500))
@settings(max_examples=300, deadline=None)
def test_a_machine_that_ends_at_its_deadline_leaves_the_budget_whole(run, rates, facts: CloudFacts, boot):
    try:
        deadline, _ = lease_deadline(run, run.selection, 100, NOW, rates, facts)
    except Exhausted:
        return
    started_at = NOW + timedelta(seconds=boot)
    ended_at = max(started_at, deadline) + timedelta(seconds=facts.power_off_seconds)
    assume(started_at < deadline)
    live = on_a_machine(run, deadline, started_at)
    assert owed_usd(live, deadline, rates, stop_seconds=facts.power_off_seconds) <= run.budget_usd
    assert settled(live, started_at, ended_at, rates).spent_usd <= run.budget_usd


CHANGES = st.lists(st.tuples(st.floats(-600, 5000), USD_PER_HOUR), max_size=4)


@given(runs(), ALL_RATES, CHANGES, st.lists(st.floats(0, 10**5), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_the_agents_sum_is_the_exact_one_but_for_a_billing_step_and_never_less(run, rates, changes, moments):
    prices = tuple(PriceChange(later(seconds), usd) for seconds, usd in changes)
    live = on_a_machine(run, later(10**6), later(0), prices)
    spec = budget_spec(live, live.lease, rates, AWS, later(0))
    rule = rates.rule("aws")
    newest = max((seconds for seconds, _ in changes), default=0.0)
    for moment in moments:
        now = later(max(newest, 0.0) + moment)
        exact = owed_usd(live, now, rates, stop_seconds=spec.stop_seconds)
        said = agents_sum(spec, now.timestamp())
        step = max(point.usd_per_hour for point in spec.points) * rule.granularity_seconds / 3600
        assert exact <= said <= float(exact) + step + 1e-6


@given(runs(), ALL_RATES, CHANGES)
@settings(max_examples=300, deadline=None)
def test_when_the_agent_says_that_the_budget_ends_the_budget_still_holds(run, rates, changes):
    prices = tuple(PriceChange(later(seconds), usd) for seconds, usd in changes)
    live = on_a_machine(run, later(10**6), later(0), prices)
    spec = budget_spec(live, live.lease, rates, AWS, later(0))
    end = ends_at(spec)
    newest = max((seconds for seconds, _ in changes), default=0.0)
    assume(later(max(newest, 0)).timestamp() <= end < later(10**9).timestamp())
    moment = datetime.fromtimestamp(end, NOW.tzinfo)
    assert owed_usd(live, moment, rates, stop_seconds=spec.stop_seconds) <= live.budget_usd


@given(runs(), ALL_RATES, st.floats(0, 5000), CHANGES)
@settings(max_examples=300, deadline=None)
def test_whatever_a_spot_price_does_below_on_demand_the_budget_holds_at_the_end_that_the_agent_knows(
    run, rates, told, changes
):
    offer, later_on = run.selection.offer, sorted(told + abs(seconds) for seconds, _ in changes)
    most = max([offer.usd_per_hour, *(usd for _, usd in changes)])
    offer = replace(offer, capacity_type=CapacityType.SPOT, on_demand_usd_per_hour=most)
    live = on_a_machine(replace(run, selection=replace(run.selection, offer=offer)), later(10**6), later(0))
    end = ends_at(budget_spec(live, live.lease, rates, AWS, later(told)))
    assume(later(told).timestamp() <= end < later(10**9).timestamp())
    unheard = tuple(PriceChange(later(at), usd) for at, (_, usd) in zip(later_on, changes, strict=True))
    live = replace(live, lease=replace(live.lease, prices=unheard))
    moment = datetime.fromtimestamp(end, NOW.tzinfo)
    assert owed_usd(live, moment, rates, stop_seconds=AWS.power_off_seconds) <= live.budget_usd


@given(
    st.lists(selections(), min_size=1, max_size=3),
    st.sampled_from((None, "us-east-1", "eu-west-1")),
    st.booleans(),
    st.integers(1, 10**11),
)
@settings(max_examples=100, deadline=None)
def test_a_run_that_goes_as_planned_costs_what_was_estimated(chosen, region, uploads, data_bytes):
    offers = [replace(each.offer, capacity_type=CapacityType.ON_DEMAND) for each in chosen]
    policy = Policy(storage_region=region, keeps_data=uploads)
    option = plan(offers, policy, replace(WORKLOAD, data_bytes=data_bytes), rates=FULL_RATES).chosen
    estimate = replace(ESTIMATE, usd=option.usd, traffic=option.traffic)
    run = fold(
        [
            opened(
                workload=replace(WORKLOAD, data_bytes=data_bytes),
                data_url=None if uploads else "s3://bucket/data.tar",
                storage_region=region,
                selection=Selection(option.offer, estimate),
            )
        ]
    )
    live = on_a_machine(run, later(10**6), later(0))
    done = settled(live, later(0), later(option.seconds), FULL_RATES)
    assert done.spent_usd == pytest.approx(option.usd, rel=Decimal("1e-20"))
