"""What a sweep may remove: one rule a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sweep_cases import OTHER, RUN, hours, thing

from launcher.providers.sweep import ENDING, Kind
from launcher.sweep.verdicts import ALIVE_WITHIN, GRACE, LONGEST, Action, Heartbeat, judge_all, started_at

NOW = hours(0)
PAST = hours(-2)
SILENT = Heartbeat()
"""The storage was read, and has no sign of the run."""
OF_A_MACHINE = [Kind.INSTANCE, Kind.VOLUME, Kind.INTERFACE, Kind.SPOT_REQUEST]
OF_A_RUN = [Kind.KEY_PAIR, Kind.SECURITY_GROUP, Kind.SCHEDULE, Kind.LAUNCH_TEMPLATE, Kind.UPLOAD]


def verdict(found, beat=SILENT, *others, now=NOW, grace=GRACE):
    """Of one thing, with others around it. `beat` None: nobody knows where to look."""
    beats = {} if beat is None else {str(found.run_id): beat}
    return judge_all([found, *others], beats, now, grace)[0].verdict


@pytest.mark.parametrize("kind", OF_A_MACHINE)
def test_what_is_past_its_deadline_and_silent_is_removed(kind):
    found = verdict(thing(kind, deadline=PAST))
    assert (found.action, found.reason) == (
        Action.REMOVE,
        "its deadline was 2 h 00 min ago, nothing was ever heard of its run",
    )


@pytest.mark.parametrize("kind", [*OF_A_MACHINE, *OF_A_RUN])
def test_nothing_is_removed_before_its_deadline(kind):
    found = verdict(thing(kind, deadline=NOW + timedelta(seconds=1)))
    assert found.action is Action.KEEP
    assert "its deadline is in 1 s" in found.reason


def test_after_its_deadline_a_thing_has_a_grace_time():
    """C38: a sweep removed machines whose boot was slower than its grace time."""
    machine = thing(Kind.INSTANCE, deadline=NOW - GRACE + timedelta(seconds=60))
    early = verdict(machine)
    assert (early.action, early.reason) == (
        Action.KEEP,
        "past its deadline, but the other stops get 1 min 00 s more",
    )
    assert verdict(machine, now=NOW + timedelta(seconds=60)).action is Action.REMOVE


@pytest.mark.parametrize(
    ("beat", "reason"),
    [
        (Heartbeat(heard_at=hours(0), by="agent"), "run lives: agent heard 0 s ago"),
        (Heartbeat(heard_at=NOW - ALIVE_WITHIN, by="agent"), "run lives: agent heard 15 min 00 s ago"),
        (Heartbeat(heard_at=hours(1), by="agent"), "run lives: agent heard 0 s ago"),
        (Heartbeat(NOW, "launcher a/1", let_go_at=NOW), "run lives: launcher a/1 heard 0 s ago"),
        (Heartbeat(unreadable="no access"), "counts as alive: its heartbeat cannot be read (no access)"),
        (
            Heartbeat(heard_at=hours(-9), by="agent", unreadable="half of it"),
            "counts as alive: its heartbeat cannot be read (half of it)",
        ),
        (Heartbeat(driven_by="process 7 on this machine"), "run lives: driven by process 7 on this machine"),
    ],
    ids=["now", "last-moment", "clock-ahead", "let-go-by-another", "unreadable", "partly-unreadable", "driven-here"],
)
@pytest.mark.parametrize("kind", [*OF_A_MACHINE, *OF_A_RUN])
def test_what_belongs_to_a_run_that_lives_is_kept_whatever_its_deadline(kind, beat, reason):
    found = verdict(thing(kind, deadline=PAST), beat)
    assert (found.action, found.reason) == (Action.KEEP, reason)


@pytest.mark.parametrize(
    ("beat", "reason"),
    [
        (
            Heartbeat(heard_at=NOW - ALIVE_WITHIN - timedelta(seconds=1), by="agent"),
            "its deadline was 2 h 00 min ago, agent last heard 15 min 01 s ago",
        ),
        (
            Heartbeat(heard_at=hours(-3), by="agent", let_go_at=hours(-1)),
            "its deadline was 2 h 00 min ago, its launcher let it go 1 h 00 min ago",
        ),
        (
            Heartbeat(heard_at=datetime(2199, 1, 1, tzinfo=UTC), by="agent"),
            "its deadline was 2 h 00 min ago, its last heartbeat claims to be of 2199-01-01, which proves nothing",
        ),
    ],
    ids=["silent-for-long", "let-go", "far-ahead"],
)
def test_a_run_that_was_not_heard_for_long_does_not_live(beat, reason):
    found = verdict(thing(Kind.INSTANCE, deadline=PAST), beat)
    assert (found.action, found.reason) == (Action.REMOVE, reason)


@pytest.mark.parametrize("kind", OF_A_MACHINE)
def test_where_nobody_knows_the_place_of_the_heartbeat_the_run_counts_as_alive(kind):
    long_after = started_at(RUN) + 2 * LONGEST
    found = verdict(thing(kind, deadline=PAST, output=None), None, now=long_after)
    assert found.action is Action.KEEP
    assert "nothing says where its heartbeat is (name the place with --output)" in found.reason


@pytest.mark.parametrize("kind", OF_A_MACHINE)
def test_a_machine_or_disk_without_a_deadline_is_never_removed(kind):
    """Not even where its run has other deadlines: which of them is its own is not known."""
    found = verdict(thing(kind, deadline=None), SILENT, thing(Kind.INSTANCE, deadline=hours(-99), number=2))
    assert found.action is Action.KEEP
    assert "has no deadline that can be read" in found.reason


@pytest.mark.parametrize(
    "run", [None, "", "prod-db", "2026-12-01", "20269901T040000-ab12-job", "20261201T040000-ab12-"]
)
@pytest.mark.parametrize("kind", [*OF_A_MACHINE, *OF_A_RUN])
def test_what_names_no_run_that_can_be_read_is_never_removed(kind, run):
    found = judge_all([thing(kind, run, deadline=PAST)], {str(run): SILENT}, NOW)[0].verdict
    assert found.action is Action.KEEP
    assert "by hand" in found.reason


@pytest.mark.parametrize("kind", OF_A_RUN)
def test_what_a_run_shares_follows_the_newest_deadline_of_the_run(kind):
    """A second lease uses the same key pair and group: their own tag is that of the first."""
    shared = thing(kind, deadline=PAST)
    assert verdict(shared, SILENT, thing(Kind.INSTANCE, deadline=hours(1), number=2)).action is Action.KEEP
    assert verdict(shared, SILENT, thing(Kind.INSTANCE, OTHER, deadline=hours(1))).action is Action.REMOVE
    untagged = thing(kind, deadline=None)
    assert verdict(untagged, SILENT, thing(Kind.VOLUME, deadline=PAST)).action is Action.REMOVE
    assert verdict(untagged, SILENT, thing(Kind.VOLUME, deadline=hours(1))).action is Action.KEEP


def test_a_deadline_counts_after_the_machine_that_had_it_is_gone():
    gone = thing(Kind.INSTANCE, deadline=PAST)
    assert judge_all([thing(Kind.KEY_PAIR)], {RUN: SILENT}, NOW, gone=[gone])[0].is_orphan
    late = thing(Kind.INSTANCE, deadline=hours(1))
    assert not judge_all([thing(Kind.KEY_PAIR)], {RUN: SILENT}, NOW, gone=[late])[0].is_orphan


@pytest.mark.parametrize("kind", OF_A_RUN)
@pytest.mark.parametrize(
    ("beat", "action"),
    [
        (Heartbeat(heard_at=hours(-1), by="agent"), Action.REMOVE),
        (Heartbeat(let_go_at=hours(-1)), Action.REMOVE),
        (Heartbeat(heard_at=NOW - GRACE, by="agent"), Action.KEEP),
        (SILENT, Action.KEEP),
        (None, Action.KEEP),
    ],
    ids=["silent-since", "let-go", "silent-for-the-grace", "never-heard", "no-place"],
)
def test_without_any_deadline_what_a_run_shares_follows_its_heartbeat(kind, beat, action):
    assert verdict(thing(kind), beat).action is action


@pytest.mark.parametrize("kind", OF_A_RUN)
@pytest.mark.parametrize("beat", [SILENT, None], ids=["never-heard", "no-place"])
def test_what_a_run_shares_outlives_no_run_by_much(kind, beat):
    begun = started_at(RUN)
    found = verdict(thing(kind), beat, now=begun + LONGEST + GRACE + timedelta(seconds=1))
    assert found.action is Action.REMOVE
    assert "longer than any run may last" in found.reason
    assert verdict(thing(kind), beat, now=begun + LONGEST + GRACE).action is Action.KEEP


def test_an_unreadable_heartbeat_counts_as_alive_for_ever():
    old = thing(Kind.KEY_PAIR)
    assert verdict(old, Heartbeat(unreadable="no access"), now=hours(24 * 365)).action is Action.KEEP


def test_an_upload_that_was_begun_just_now_is_kept():
    """Whoever uploads is alive, whatever the tags say."""
    upload = thing(Kind.UPLOAD, made_at=NOW - timedelta(minutes=5))
    found = verdict(upload, SILENT, thing(Kind.INSTANCE, deadline=PAST))
    assert (found.action, found.reason) == (Action.KEEP, "begun only 5 min 00 s ago")
    assert verdict(upload, SILENT, thing(Kind.INSTANCE, deadline=PAST), now=hours(1)).action is Action.REMOVE


def test_a_bucket_is_never_removed():
    """C39: the bucket of a job stayed, and may not go without being asked for: it holds the results."""
    found = verdict(thing(Kind.BUCKET, deadline=hours(-9999)))
    assert (found.action, found.reason) == (Action.KEEP, "never deleted: it holds your results")


def test_what_is_ending_already_is_left_to_end():
    assert verdict(thing(Kind.INSTANCE, deadline=PAST, state=ENDING)).reason == "is ending already"


@pytest.mark.parametrize(
    ("run", "begun"),
    [(RUN, hours(-5)), ("20261201T040000-ab12-a-b-1", hours(-5)), ("x20261201T040000-ab12-job", None), ("", None)],
)
def test_a_run_id_says_when_its_run_began(run, begun):
    assert started_at(run) == begun
