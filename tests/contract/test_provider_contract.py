"""What every `ComputeProvider` does: the fake of the functional tests, and the AWS adapter on the embedded cloud."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cloud_rigs import PATIENCE, REGION, FakeRig
from launcher_world import DEMAND_EAST

from launcher.providers.interface import (
    AskedBefore,
    CapacityError,
    CredentialsError,
    EndCause,
    InstanceRef,
    InstanceState,
    QuotaError,
    RefusedError,
    UnreachableError,
)


def test_a_launched_machine_comes_up_with_an_address_and_the_host_key_of_its_console(rig):
    before = rig.now()
    ref = rig.provider.launch(rig.request())
    first = rig.provider.describe(ref)
    assert first.state in {InstanceState.PENDING, InstanceState.RUNNING}
    status = rig.reachable(ref)
    assert (status.ref, status.state, status.lease_id) == (ref, InstanceState.RUNNING, f"{rig.run_id}-1")
    assert status.host_key.startswith("ssh-ed25519 ")
    assert len(status.host_key.split()) == 2
    assert abs((status.launched_at - before).total_seconds()) < PATIENCE
    assert (status.ended_at, status.ended_by) == (None, EndCause.UNKNOWN)


def test_the_same_token_makes_one_machine(rig):
    request = rig.request()
    assert rig.provider.launch(request) == rig.provider.launch(request)
    assert len(rig.provider.find(rig.run_id, REGION)) == 1


def test_the_same_token_for_something_else_is_refused(rig):
    request = rig.request()
    rig.provider.launch(request)
    with pytest.raises(AskedBefore, match="IdempotentParameterMismatch"):
        rig.provider.launch(replace(request, disk_gib=200))
    assert len(rig.provider.find(rig.run_id, REGION)) == 1


def test_two_leases_of_a_run_are_two_machines_told_apart(rig):
    first, second = rig.provider.launch(rig.request(lease=1)), rig.provider.launch(rig.request(lease=2))
    found = {status.ref: status.lease_id for status in rig.provider.find(rig.run_id, REGION)}
    assert found == {first: f"{rig.run_id}-1", second: f"{rig.run_id}-2"}


def test_other_runs_and_other_regions_are_not_found(rig):
    rig.provider.launch(rig.request())
    assert rig.provider.find(f"{rig.run_id}-other", REGION) == []
    assert rig.provider.find(rig.run_id, "us-west-2") == []


def test_a_machine_that_is_ended_is_gone_and_says_by_whom_and_when(rig):
    ref = rig.provider.launch(rig.request())
    launched = rig.reachable(ref).launched_at
    rig.provider.terminate(ref)
    assert rig.provider.describe(ref).state in {InstanceState.STOPPING, InstanceState.GONE}
    status = rig.gone(ref)
    assert status.ended_by is EndCause.USER
    assert status.ended_at is not None
    assert launched <= status.ended_at <= rig.now()
    assert status.reason
    assert (status.address, status.lease_id) == (None, f"{rig.run_id}-1")


def test_a_machine_can_be_ended_before_it_is_up_and_twice(rig):
    ref = rig.provider.launch(rig.request(DEMAND_EAST))
    rig.provider.terminate(ref)
    rig.provider.terminate(ref)
    rig.gone(ref)
    rig.provider.terminate(ref)
    assert rig.gone(ref).state is InstanceState.GONE


def test_a_machine_that_nobody_knows_is_gone_and_can_be_ended(rig):
    ref = InstanceRef(REGION, "i-0123456789abcdef0")
    status = rig.provider.describe(ref)
    assert (status.state, status.lease_id, status.launched_at) == (InstanceState.GONE, None, None)
    rig.provider.terminate(ref)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", CapacityError),
        ("VcpuLimitExceeded", QuotaError),
        ("MaxSpotInstanceCountExceeded", QuotaError),
    ],
)
def test_no_capacity_and_no_quota_are_told_apart_and_from_a_refusal(rig, code, kind):
    rig.fail_next_launch(code)
    with pytest.raises(CapacityError, match=code) as error:
        rig.provider.launch(rig.request())
    assert isinstance(error.value, QuotaError) == (kind is QuotaError)
    assert rig.provider.find(rig.run_id, REGION) == []
    rig.provider.launch(rig.request(DEMAND_EAST, lease=2))


def test_a_missing_permission_is_a_refusal_with_a_hint(rig):
    rig.fail_next_launch("UnauthorizedOperation")
    with pytest.raises(RefusedError, match="UnauthorizedOperation") as error:
        rig.provider.launch(rig.request())
    assert error.value.hint


def test_credentials_that_ended_are_told_from_a_missing_permission(rig):
    rig.fail_next_launch("ExpiredToken")
    with pytest.raises(CredentialsError, match="ExpiredToken") as error:
        rig.provider.launch(rig.request())
    assert error.value.hint
    rig.fail_next_launch("UnauthorizedOperation")
    with pytest.raises(RefusedError) as error:
        rig.provider.launch(rig.request())
    assert not isinstance(error.value, CredentialsError)


@pytest.mark.parametrize("code", ["InternalError", "RESET"])
@pytest.mark.parametrize("effect", [False, True], ids=["nothing-done", "answer-lost"])
def test_a_launch_without_an_answer_can_be_repeated_and_makes_one_machine(rig, code, effect):
    request = rig.request()
    rig.fail_next_launch(code, effect=effect)
    with pytest.raises(UnreachableError):
        rig.provider.launch(request)
    assert len(rig.provider.find(rig.run_id, REGION)) == int(effect)
    ref = rig.provider.launch(request)
    assert [status.ref for status in rig.provider.find(rig.run_id, REGION)] == [ref]


def test_a_machine_ends_itself_at_the_deadline_of_its_user_data(rig):
    ref = rig.provider.launch(rig.request(lives=60 if isinstance(rig, FakeRig) else 3))
    status = rig.gone(ref)
    assert status.ended_by is EndCause.INSIDE
    assert status.launched_at is not None


def test_a_spot_machine_that_is_taken_back_says_so(rig):
    ref = rig.provider.launch(rig.request())
    rig.reachable(ref)
    rig.interrupt(ref)
    status = rig.gone(ref)
    assert status.ended_by is EndCause.PROVIDER
    assert "Spot" in status.reason
    assert status.ended_at is None or status.launched_at <= status.ended_at <= rig.now()


def test_a_machine_that_is_lost_is_the_providers_doing(rig):
    ref = rig.provider.launch(rig.request(DEMAND_EAST))
    rig.reachable(ref)
    rig.lose(ref)
    assert rig.gone(ref).ended_by is EndCause.PROVIDER


def test_a_machine_that_is_gone_is_still_found_with_its_lease(rig):
    """The ledger is written from what the provider says after the end."""
    ref = rig.provider.launch(rig.request())
    rig.provider.terminate(ref)
    rig.gone(ref)
    (status,) = rig.provider.find(rig.run_id, REGION)
    assert (status.state, status.lease_id) == (InstanceState.GONE, f"{rig.run_id}-1")
    assert status.launched_at is not None


def test_nothing_beside_the_machine_is_left_after_the_clean_up(rig):
    ref = rig.provider.launch(rig.request())
    assert rig.leftovers()
    rig.provider.terminate(ref)
    rig.gone(ref)
    rig.provider.clean_up(rig.run_id, REGION)
    assert rig.leftovers() == []
    rig.provider.clean_up(rig.run_id, REGION)


def test_the_keys_of_all_launchers_of_a_run_go_and_the_group_when_nothing_needs_it(rig):
    first = rig.provider.launch(rig.request(lease=1))
    other = rig.provider.launch(rig.request(lease=2, launcher="another laptop"))
    assert len(rig.leftovers()) == 3, "one group, and a key for each launcher"
    rig.provider.terminate(first)
    rig.gone(first)
    rig.provider.clean_up(rig.run_id, REGION)
    assert len(rig.leftovers()) == 1, "a machine still needs the group"
    rig.provider.terminate(other)
    rig.gone(other)
    rig.provider.clean_up(rig.run_id, REGION)
    assert rig.leftovers() == []


def test_the_clean_up_of_one_run_leaves_the_others_alone(rig):
    rig.provider.launch(rig.request())
    before = rig.leftovers()
    rig.provider.clean_up(f"{rig.run_id}-other", REGION)
    assert rig.leftovers() == before
