"""What every `CloudTimer` does: the fake of the functional tests, and EventBridge schedules of the embedded cloud.

The machines here have no other stop that could end them in time.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from cloud_rigs import REGION

from launcher.providers.interface import EndCause, InstanceRef, InstanceState, RefusedError, UnreachableError

SLACK = timedelta(seconds=15)
"""From the call that ends a machine to its end."""


@pytest.fixture
def ref(rig):
    machine = rig.provider.launch(rig.request())
    rig.reachable(machine)
    return machine


@pytest.fixture
def lease(rig):
    return rig.request().lease_id


def lives(rig, ref):
    return rig.provider.describe(ref).state is InstanceState.RUNNING


def test_a_stop_has_a_name_that_people_understand(rig):
    assert len(rig.timer.name.split()) > 1


def test_a_machine_is_ended_by_the_cloud_alone_after_the_deadline_and_in_time(rig, ref, lease):
    deadline = rig.now() + rig.ahead
    until = rig.timer.arm(ref, lease, deadline)
    assert until >= deadline
    assert lives(rig, ref)
    status = rig.gone(ref)
    assert status.ended_by is EndCause.USER
    assert deadline <= status.ended_at <= until + SLACK


def test_a_stop_that_is_taken_back_does_not_come(rig, ref, lease):
    until = rig.timer.arm(ref, lease, rig.now() + rig.ahead)
    rig.timer.disarm(lease, REGION)
    rig.pass_by(until + timedelta(seconds=0.5))
    assert lives(rig, ref)


def test_twice_armed_is_once(rig, ref, lease):
    deadline = rig.now() + rig.ahead
    first = rig.timer.arm(ref, lease, deadline)
    assert rig.timer.arm(ref, lease, deadline) == first
    rig.timer.disarm(lease, REGION)
    rig.pass_by(first + timedelta(seconds=0.5))
    assert lives(rig, ref)


def test_another_deadline_takes_the_place_of_the_first(rig, ref, lease):
    far = rig.now() + timedelta(days=1)
    assert rig.timer.arm(ref, lease, far) >= far
    deadline = rig.now() + rig.ahead
    until = rig.timer.arm(ref, lease, deadline)
    assert deadline <= rig.gone(ref).ended_at <= until + SLACK


def test_another_machine_of_the_lease_takes_the_place_of_the_first(rig, ref, lease):
    other = rig.provider.launch(rig.request(lease=2))
    deadline = rig.now() + rig.ahead
    rig.timer.arm(other, lease, deadline)
    rig.timer.arm(ref, lease, deadline)
    rig.gone(ref)
    assert rig.provider.describe(other).state is not InstanceState.GONE


def test_each_lease_has_a_stop_of_its_own(rig, ref, lease):
    other = rig.provider.launch(rig.request(lease=2))
    deadline = rig.now() + rig.ahead
    rig.timer.arm(ref, lease, deadline)
    rig.timer.arm(other, f"{rig.run_id}-2", deadline)
    rig.timer.disarm(lease, REGION)
    rig.gone(other)
    assert lives(rig, ref)


def test_what_was_never_armed_or_has_come_can_be_taken_back(rig, ref, lease):
    rig.timer.disarm(lease, REGION)
    rig.timer.arm(ref, lease, rig.now() + rig.ahead)
    rig.gone(ref)
    rig.timer.disarm(lease, REGION)
    rig.timer.disarm(lease, REGION)


def test_a_stop_for_a_machine_that_is_gone_by_then_harms_nobody(rig, lease):
    until = rig.timer.arm(InstanceRef(REGION, "i-0123456789abcdef0"), lease, rig.now() + rig.ahead)
    rig.pass_by(until + timedelta(seconds=0.5))
    rig.timer.disarm(lease, REGION)


def test_a_stop_that_is_not_permitted_is_a_refusal_with_a_hint_and_the_machine_goes_on(rig, ref, lease):
    deadline = rig.now() + rig.ahead
    with pytest.raises(RefusedError) as error:
        rig.barred_timer.arm(ref, lease, deadline)
    assert error.value.hint
    rig.pass_by(deadline + timedelta(seconds=1.5))
    assert lives(rig, ref)


@pytest.mark.parametrize(
    ("code", "effect"),
    [("ThrottlingException", False), ("RESET", False), ("RESET", True)],
    ids=["too-soon", "nothing-done", "answer-lost"],
)
def test_an_arming_without_an_answer_can_be_repeated_and_makes_one_stop(rig, ref, lease, code, effect):
    deadline = rig.now() + 1.5 * rig.ahead
    rig.fail_next_arm(code, effect=effect)
    with pytest.raises(UnreachableError):
        rig.timer.arm(ref, lease, deadline)
    assert rig.timer.arm(ref, lease, deadline) >= deadline
    rig.timer.disarm(lease, REGION)
    rig.pass_by(deadline + timedelta(seconds=1.5))
    assert lives(rig, ref)
