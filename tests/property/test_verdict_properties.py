"""Whatever an account holds: nothing of a run that may live is removed, and nothing before its time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import assume, given
from hypothesis import strategies as st
from sweep_cases import OTHER, RUN, hours, thing

from launcher.providers.sweep import ENDING, Kind
from launcher.sweep.verdicts import AHEAD_AT_MOST, ALIVE_WITHIN, GRACE, Heartbeat, judge_all, started_at

NOW = hours(0)
MOMENTS = st.integers(-10_000, 3_000).map(lambda minutes: NOW + timedelta(minutes=minutes))
MAYBE = st.none() | MOMENTS
THINGS = st.builds(
    lambda kind, run, deadline, number, more: thing(kind, run, deadline=deadline, number=number, **more),
    st.sampled_from(Kind),
    st.sampled_from([RUN, OTHER, None, "prod-db"]),
    MAYBE,
    st.integers(1, 3),
    st.fixed_dictionaries(
        {}, optional={"made_at": MAYBE, "state": st.sampled_from(["running", ENDING]), "output": st.none()}
    ),
)
BEATS = st.builds(
    Heartbeat,
    heard_at=MAYBE,
    by=st.just("agent"),
    let_go_at=MAYBE,
    unreadable=st.sampled_from(["", "", "no access"]),
    driven_by=st.sampled_from(["", "", "process 1"]),
)
ACCOUNTS = st.lists(THINGS, max_size=8)
SIGNS = st.dictionaries(st.sampled_from([RUN, OTHER]), BEATS)
OWN_DEADLINE = frozenset({Kind.INSTANCE, Kind.VOLUME, Kind.INTERFACE, Kind.SPOT_REQUEST})


@given(ACCOUNTS, SIGNS)
def test_what_is_removed_is_past_its_time_and_of_a_run_that_is_known_not_to_live(account, signs):
    for judged in judge_all(account, signs, NOW):
        found = judged.found
        assert judged.verdict.reason
        if not judged.is_orphan:
            continue
        assert found.kind is not Kind.BUCKET
        assert found.run_id in {RUN, OTHER}
        assert found.deadline is None or found.deadline + GRACE <= NOW
        beat = signs.get(found.run_id)
        if found.kind in OWN_DEADLINE:
            assert found.deadline is not None
            assert beat is not None
        if beat is not None:
            assert not beat.driven_by
            assert not beat.unreadable
            assert beat.heard_at is None or not -AHEAD_AT_MOST <= NOW - beat.heard_at <= ALIVE_WITHIN


@given(ACCOUNTS, SIGNS, st.randoms(use_true_random=False))
def test_the_order_of_what_is_found_changes_no_verdict(account, signs, random):
    shuffled = list(account)
    random.shuffle(shuffled)
    before = {(judged.found, judged.verdict) for judged in judge_all(account, signs, NOW)}
    assert before == {(judged.found, judged.verdict) for judged in judge_all(shuffled, signs, NOW)}


@given(ACCOUNTS, SIGNS, st.integers(0, 10_000))
def test_an_orphan_stays_one_as_long_as_nothing_is_heard(account, signs, minutes):
    """A removal that is interrupted can be gone on with at any later time."""
    assume(all(beat.heard_at is None or beat.heard_at <= NOW for beat in signs.values()))
    now = {judged.found for judged in judge_all(account, signs, NOW) if judged.is_orphan}
    later = {judged.found for judged in judge_all(account, signs, NOW + timedelta(minutes=minutes)) if judged.is_orphan}
    assert now <= later


@given(ACCOUNTS, SIGNS, BEATS)
def test_another_runs_life_and_things_change_nothing(account, signs, beat):
    mine = {judged.found: judged.verdict for judged in judge_all(account, signs, NOW) if judged.found.run_id == RUN}
    without = [found for found in account if found.run_id == RUN]
    alone = judge_all(without, {**signs, OTHER: beat}, NOW)
    assert mine == {judged.found: judged.verdict for judged in alone}


@given(ACCOUNTS, SIGNS)
def test_what_was_there_before_never_makes_an_orphan_of_what_has_a_deadline(account, signs):
    """The memory of what is gone can only add later deadlines, but to what has none at all."""
    dated = [found for found in account if found.deadline is not None]
    before = {judged.found for judged in judge_all(dated, signs, NOW) if judged.is_orphan}
    gone = [replace(found, deadline=found.deadline and found.deadline - timedelta(hours=1)) for found in account]
    after = {judged.found for judged in judge_all(dated, signs, NOW, gone=gone) if judged.is_orphan}
    assert after <= before


@given(MOMENTS)
def test_the_run_id_that_the_launcher_writes_is_read_back(moment):
    begun = moment.replace(second=0, microsecond=0)
    assert started_at(f"{begun:%Y%m%dT%H%M%S}-ab12-a-job-2") == begun
