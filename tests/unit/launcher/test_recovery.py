"""What follows once a lease is closed: the whole table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_cases import OFFER, checkpoint, entry, later, run_in

from launcher.errors import ExitCode
from launcher.events import (
    Cancelled,
    CapacityRefused,
    DeadlineBasis,
    Outcome,
    Preempted,
    Refusal,
    StepFailed,
    TrainingExited,
)
from launcher.recovery import COOL_DOWN, EXIT_CODES, MAX_MACHINES, MAX_REFUSALS, cooled, epochs_done, verdict
from launcher.run import State
from pricing.offers import CapacityType
from remote.protocol import Reason


def ended(reason, message="words"):
    return TrainingExited(at=later(400), reason=reason.value, exit_code=None, message=message)


def after(cause, **changes):
    return verdict(replace(run_in(State.STOPPING), lease=None, cause=cause, **changes))


AT = later(400)


@pytest.mark.parametrize(
    ("cause", "outcome", "message"),
    [
        (Cancelled(at=AT, message="interrupted (SIGINT)"), Outcome.CANCELLED, "interrupted (SIGINT)"),
        (StepFailed(at=AT, message="no", hint="", outcome=Outcome.REFUSED), Outcome.REFUSED, "no"),
        (StepFailed(at=AT, message="no", hint="", outcome=Outcome.BUDGET), Outcome.BUDGET, "no"),
        (StepFailed(at=AT, message="no", hint="", outcome=Outcome.FAILED), Outcome.FAILED, "no"),
        (Preempted(at=AT, message="taken"), None, "taken"),
        (CapacityRefused(at=AT, message="none left"), None, "none left"),
        (ended(Reason.COMPLETED), Outcome.DONE, ""),
        (ended(Reason.PREEMPTED), None, "words"),
        (ended(Reason.PREEMPTED, ""), None, "preempted"),
        (ended(Reason.CANCELLED), Outcome.CANCELLED, "words"),
        (ended(Reason.CANCELLED, ""), Outcome.CANCELLED, "stopped"),
        (ended(Reason.TRAINER_FAILED), Outcome.FAILED, "words"),
        (ended(Reason.STAGING_FAILED), Outcome.FAILED, "words"),
        (ended(Reason.SYNC_FAILED, ""), Outcome.FAILED, "sync-failed"),
        (ended(Reason.STALLED, ""), Outcome.FAILED, "stalled"),
        (None, Outcome.FAILED, "the run was stopped without a cause"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_the_cause_of_a_stop_decides_what_follows(cause, outcome, message):
    assert (after(cause).outcome, after(cause).message) == (outcome, message)


@pytest.mark.parametrize(
    ("basis", "outcome", "words"),
    [
        (DeadlineBasis.BUDGET, Outcome.BUDGET, "budget"),
        (DeadlineBasis.USER, Outcome.DEADLINE, "deadline"),
        (DeadlineBasis.ESTIMATE, Outcome.DEADLINE, "twice what its plan expected"),
        (None, Outcome.BUDGET, "budget"),
    ],
)
def test_a_machine_at_its_deadline_ended_for_what_set_the_deadline(basis, outcome, words):
    found = after(ended(Reason.DEADLINE), deadline_basis=basis)
    assert found.outcome is outcome
    assert words in found.message


def test_every_reason_of_the_agent_has_a_verdict():
    for reason in Reason:
        assert after(ended(reason)).message is not None


def test_after_the_last_machine_nothing_else_is_tried():
    taken = Preempted(at=AT, message="taken")
    machines = tuple(entry(number) for number in range(1, MAX_MACHINES + 1))
    assert after(taken, attempt=MAX_MACHINES - 1, entries=machines[1:]).outcome is None
    found = after(taken, attempt=MAX_MACHINES, entries=machines)
    assert found.outcome is Outcome.FAILED
    assert f"{MAX_MACHINES} machines were tried" in found.message


def test_refusals_cost_nothing_and_have_a_longer_patience():
    refused = CapacityRefused(at=AT, message="none left")
    assert after(refused, attempt=MAX_REFUSALS - 1).outcome is None
    assert after(refused, attempt=MAX_REFUSALS).outcome is Outcome.REFUSED
    assert after(refused, attempt=MAX_REFUSALS, entries=(entry(1),)).outcome is None, "one of them was a machine"


def test_a_plan_that_was_too_quick_gets_more_time_where_the_user_set_a_limit():
    late = ended(Reason.DEADLINE)
    slow = {"deadline_basis": DeadlineBasis.ESTIMATE, "checkpoints": (checkpoint(1),)}
    assert after(late, **slow).outcome is None
    assert after(late, **slow, budget_usd=None, ends_by=later(9000)).outcome is None
    assert after(late, **slow, budget_usd=None).outcome is Outcome.DEADLINE, "nothing would hold it"
    assert after(late, **{**slow, "checkpoints": ()}).outcome is Outcome.DEADLINE, "it has nothing to show"
    assert after(late, **{**slow, "deadline_basis": DeadlineBasis.USER}).outcome is Outcome.DEADLINE


def test_every_outcome_has_its_documented_exit_code():
    assert {outcome: int(code) for outcome, code in EXIT_CODES.items()} == {
        Outcome.DONE: 0,
        Outcome.BUDGET: 4,
        Outcome.DEADLINE: 4,
        Outcome.REFUSED: 5,
        Outcome.FAILED: 6,
        Outcome.CANCELLED: 130,
    }
    assert set(EXIT_CODES) == set(Outcome)
    assert {code.value for code in ExitCode} == {0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 130}


def test_a_refused_offer_is_cooled_down_for_a_while():
    refusals = (Refusal(OFFER.key, later(0), "none left"),)
    assert cooled(refusals, [OFFER], later(10)) == {OFFER.key}
    assert cooled(refusals, [OFFER], later(COOL_DOWN.total_seconds() - 1)) == {OFFER.key}
    assert cooled(refusals, [OFFER], later(COOL_DOWN.total_seconds())) == frozenset()


def test_a_used_up_quota_cools_its_whole_family_in_that_region_and_market():
    other_zone = replace(OFFER, zone="use1-az2")
    other_size = replace(OFFER, instance=replace(OFFER.instance, name="g4dn.2xlarge"))
    on_demand = replace(OFFER, capacity_type=CapacityType.ON_DEMAND)
    other_region = replace(OFFER, region="us-west-2", zone="usw2-az1")
    other_family = replace(OFFER, instance=replace(OFFER.instance, name="p3.2xlarge"))
    everything = [OFFER, other_zone, other_size, on_demand, other_region, other_family]
    quota = (Refusal(OFFER.key, later(0), "VcpuLimitExceeded", quota=True),)
    assert cooled(quota, everything, later(10)) == {OFFER.key, other_zone.key, other_size.key}
    place = (Refusal(OFFER.key, later(0), "InsufficientInstanceCapacity"),)
    assert cooled(place, everything, later(10)) == {OFFER.key}


def test_only_what_every_task_has_in_the_storage_counts_as_done():
    run = replace(run_in(State.TRAINING), checkpoints=(checkpoint(4, "a"), checkpoint(7, "b")))
    assert epochs_done(run, ("a", "b")) == 4
    assert epochs_done(run, ("a", "b", "c")) == 0
    assert epochs_done(run, ("b",)) == 7
    assert epochs_done(run, ()) == 0
