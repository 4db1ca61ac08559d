"""The table of transitions and the fold of each event."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from run_cases import ELSEWHERE, OFFER, SAMPLES, STRAIGHT, checkpoint, entry, fold, later, launch, opened, run_in

from launcher.events import (
    ArtifactsSynced,
    Cancelled,
    CapacityRefused,
    CheckpointSynced,
    DeadlineBasis,
    InstanceCreated,
    InstanceReady,
    LeaseClosed,
    Outcome,
    Preempted,
    Replanned,
    RunOpened,
    Settled,
    StepFailed,
    TrainingExited,
)
from launcher.run import STOPS_A_LEASE, TRANSITIONS, IllegalTransition, State, advance

ALL = [(state, kind) for state in State for kind in SAMPLES if kind is not RunOpened]
LEGAL = sorted(TRANSITIONS, key=str)
ILLEGAL = sorted(set(ALL) - set(TRANSITIONS), key=str)
NEEDS_NO_LEASE = (Replanned, Settled)


def closed(run):
    """The run with its lease closed, where the event needs that."""
    return replace(run, lease=None)


def start(state, kind):
    run = run_in(state)
    return closed(run) if kind in NEEDS_NO_LEASE and run.lease is not None else run


def test_every_event_has_a_row_or_is_the_first_record():
    assert {kind for _, kind in TRANSITIONS} | {RunOpened} == set(SAMPLES)


@pytest.mark.parametrize(("state", "kind"), LEGAL, ids=lambda v: getattr(v, "__name__", str(v)))
def test_every_row_of_the_table_is_legal_and_leads_where_it_says(state, kind):
    run = start(state, kind)
    moved = advance(run, SAMPLES[kind])
    assert moved.state is TRANSITIONS[state, kind]
    assert moved.opened == run.opened


@pytest.mark.parametrize(("state", "kind"), ILLEGAL, ids=lambda v: getattr(v, "__name__", str(v)))
def test_every_other_pair_is_refused_and_changes_nothing(state, kind):
    run = start(state, kind)
    before = repr(run)
    with pytest.raises(IllegalTransition, match=f"{kind.__name__} cannot happen to a run that is {state}"):
        advance(run, SAMPLES[kind])
    assert repr(run) == before


def test_every_way_out_of_a_lease_leads_through_stopping():
    paid = {State.PROVISIONING, State.STAGING, State.TRAINING, State.SYNCING}
    for (state, kind), target in TRANSITIONS.items():
        if state in paid:
            assert target in paid | {State.STOPPING}, (state, kind)
    assert {state for (state, _), target in TRANSITIONS.items() if target is State.SETTLED} == {State.STOPPING}
    assert {state for (state, _), target in TRANSITIONS.items() if target is State.PLANNED and state is not target} == {
        State.STOPPING,
        State.SETTLED,
    }


@pytest.mark.parametrize("state", [State.PROVISIONING, State.STAGING, State.TRAINING, State.SYNCING])
@pytest.mark.parametrize("kind", STOPS_A_LEASE)
def test_whatever_stops_a_lease_is_legal_while_one_is_open_and_is_kept_as_the_cause(state, kind):
    moved = advance(run_in(state), SAMPLES[kind])
    assert (moved.state, moved.cause) == (State.STOPPING, SAMPLES[kind])
    assert moved.lease is not None


@pytest.mark.parametrize("kind", NEEDS_NO_LEASE)
def test_a_run_neither_goes_on_nor_settles_with_an_open_lease(kind):
    run = run_in(State.STOPPING)
    assert run.lease is not None
    with pytest.raises(IllegalTransition, match="must be closed first"):
        advance(run, SAMPLES[kind])


def test_a_second_lease_cannot_be_opened_while_one_is():
    run = replace(run_in(State.PLANNED), lease=launch(1).lease)
    with pytest.raises(IllegalTransition, match="still open"):
        advance(run, launch(2))


def test_a_lease_cannot_be_closed_twice():
    run = closed(run_in(State.STOPPING))
    with pytest.raises(IllegalTransition, match="no open lease"):
        advance(run, SAMPLES[LeaseClosed])


def test_the_first_record_opens_a_planned_run_with_its_limits():
    run = fold([opened(budget_usd=Decimal(7), ends_by=later(1000))])
    assert (run.state, run.attempt, run.lease, run.outcome) == (State.PLANNED, 0, None, None)
    assert (run.budget_usd, run.ends_by, run.selection.offer) == (Decimal(7), later(1000), OFFER)
    assert run.spent_usd == 0


def test_a_launch_opens_a_lease_counts_and_remembers_where_the_data_is():
    event = replace(launch(deadline_basis=DeadlineBasis.USER), data_sha256="ab", data_files=7)
    run = advance(fold([opened()]), event)
    assert (run.lease, run.attempt, run.deadline_basis) == (event.lease, 1, DeadlineBasis.USER)
    assert (run.data_url, run.data_sha256, run.data_files) == ("s3://bucket/data.tar", "ab", 7)


def test_what_is_learned_of_a_machine_goes_into_its_lease():
    run = run_in(State.STAGING)
    ready = SAMPLES[InstanceReady]
    assert run.lease.instance_id == SAMPLES[InstanceCreated].instance_id
    assert (run.lease.address, run.lease.host_key) == (ready.address, ready.host_key)
    assert run.lease.running_since == ready.running_since


def test_the_newest_checkpoint_of_each_task_is_kept():
    run = run_in(State.TRAINING)
    for epoch, task in ((1, "a"), (1, "b"), (2, "a")):
        run = advance(run, CheckpointSynced(at=later(300), checkpoint=checkpoint(epoch, task)))
    assert {(c.task, c.epoch) for c in run.checkpoints} == {("a", 2), ("b", 1)}


def test_the_end_of_training_is_the_cause_and_keeps_the_trainers_code():
    event = TrainingExited(at=later(400), reason="trainer-failed", exit_code=-9, message="killed")
    run = advance(run_in(State.TRAINING), event)
    run = advance(run, ArtifactsSynced(at=later(410), files=2))
    assert (run.cause, run.exit_code, run.artifacts, run.state) == (event, -9, 2, State.STOPPING)


def test_a_preemption_cools_the_offer_and_is_counted_a_refusal_only_cools():
    preempted = advance(run_in(State.TRAINING), SAMPLES[Preempted])
    refused = advance(run_in(State.PROVISIONING), SAMPLES[CapacityRefused])
    assert (preempted.preemptions, refused.preemptions) == (1, 0)
    assert [(r.offer_key, r.reason) for r in preempted.refusals] == [(OFFER.key, "taken back")]
    assert [(r.offer_key, r.reason) for r in refused.refusals] == [(OFFER.key, "none left")]


def test_a_closed_lease_is_summed_and_one_without_a_machine_costs_nothing():
    run = advance(run_in(State.STOPPING), LeaseClosed(at=later(500), entry=entry()))
    assert (run.lease, run.entries, run.spent_usd) == (None, (entry(),), entry().usd)
    run = advance(run_in(State.STOPPING), LeaseClosed(at=later(500), entry=None))
    assert (run.lease, run.entries, run.spent_usd) == (None, (), 0)


def test_a_replanned_run_takes_the_new_offer_and_forgets_its_cause_at_the_next_launch():
    history = [*STRAIGHT[:5], SAMPLES[Preempted], SAMPLES[LeaseClosed], SAMPLES[Replanned]]
    run = fold(history)
    assert (run.state, run.selection) == (State.PLANNED, ELSEWHERE)
    again = advance(run, launch(2))
    assert (again.attempt, again.cause) == (2, None)


def test_a_settled_run_says_why_when_and_with_which_code():
    run = advance(closed(run_in(State.STOPPING)), replace(SAMPLES[Settled], outcome=Outcome.FAILED, exit_code=2))
    assert (run.outcome, run.exit_code, run.settled_at) == (Outcome.FAILED, 2, later(502))


def test_a_reopened_run_keeps_its_ledger_and_checkpoints_and_gets_new_limits():
    history = [*STRAIGHT[:5], SAMPLES[CheckpointSynced], SAMPLES[Cancelled], SAMPLES[LeaseClosed]]
    history += [replace(SAMPLES[Settled], outcome=Outcome.CANCELLED, message="stopped")]
    settled = fold(history)
    run = advance(settled, next(e for k, e in SAMPLES.items() if k.__name__ == "Reopened"))
    assert (run.state, run.outcome, run.message, run.settled_at) == (State.PLANNED, None, "", None)
    assert (run.budget_usd, run.selection) == (Decimal(9), ELSEWHERE)
    assert (run.entries, run.checkpoints, run.attempt) == (settled.entries, settled.checkpoints, 1)


def test_a_task_whose_checkpoint_is_lost_begins_again():
    history = [*STRAIGHT[:5], SAMPLES[CheckpointSynced], SAMPLES[Cancelled], SAMPLES[LeaseClosed]]
    settled = fold([*history, replace(SAMPLES[Settled], outcome=Outcome.CANCELLED)])
    (kept,) = settled.checkpoints
    reopened = next(event for kind, event in SAMPLES.items() if kind.__name__ == "Reopened")
    assert advance(settled, replace(reopened, lost=("another",))).checkpoints == (kept,)
    assert advance(settled, replace(reopened, lost=(kept.task,))).checkpoints == ()


def test_a_failure_before_any_launch_settles_without_a_lease():
    run = advance(fold([opened()]), SAMPLES[StepFailed])
    assert (run.state, run.lease, run.cause) == (State.STOPPING, None, SAMPLES[StepFailed])
