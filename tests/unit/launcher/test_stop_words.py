"""Which of a machine's four stops are armed, which not and why."""

from __future__ import annotations

from run_cases import RUN_ID, later, lease

from launcher.stops import show_stops, stops_of
from remote.protocol import AgentStatus, Phase

LEASE = lease(instance_id="i-1", cloud_stop_asked=True, cloud_stop_at=later(3660))


def heard(phase=Phase.TRAINING, lease_id=f"{RUN_ID}-1"):
    return AgentStatus(RUN_ID, lease_id, phase, later(1).timestamp(), 1.0, 7)


def shown(made, status, **more):
    return show_stops(stops_of(made, status, later(100), **more), made.deadline)


def test_all_four_are_counted_and_named_with_their_time():
    assert shown(LEASE, heard(), driven=True) == (
        "4 of 4 stops armed: launcher, agent, machine timer, cloud schedule; off by 2026-12-01 10:00:00 UTC"
    )


def test_one_that_is_not_armed_is_named_with_its_reason():
    text = shown(lease(instance_id="i-1", cloud_stop_asked=True), heard(), driven=False, cloud_said="no such role")
    assert text.startswith("2 of 4 stops armed: agent, machine timer; off by")
    assert text.endswith("; NOT armed: launcher (nobody drives the run), cloud schedule (no such role)")


def test_an_agent_counts_only_while_it_lives_and_is_of_this_machine():
    assert "NOT armed: agent (it has ended)" in shown(LEASE, heard(Phase.ENDED), driven=True)
    assert "NOT armed: agent (not heard of yet)" in shown(LEASE, heard(lease_id="another"), driven=True)
    assert "NOT armed: agent (not heard of yet)" in shown(LEASE, None, driven=True)


def test_before_there_is_a_machine_only_the_launcher_ends_it():
    text = shown(lease(), None, driven=True)
    assert text.startswith("1 of 4 stops armed: launcher;")
    assert "machine timer (no machine yet), cloud schedule (not asked yet)" in text


def test_an_agent_that_was_silent_for_long_is_not_counted_on():
    silent = show_stops(stops_of(LEASE, heard(), later(3601), driven=True), LEASE.deadline)
    assert "NOT armed: agent (not heard for 1 h 00 min)" in silent
