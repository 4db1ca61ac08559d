"""What every `ComputeProvider` does: the fake of the functional tests, and the AWS adapter on the embedded cloud.

There an instance really boots and really dies, so its waits are on real time.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fake_compute import FakeProvider
from launcher_clock import FakeClock
from launcher_world import DEMAND_EAST, SPOT_EAST

from launcher.providers.interface import (
    CapacityError,
    ComputeProvider,
    EndCause,
    InstanceRef,
    InstanceState,
    InstanceStatus,
    LaunchRequest,
    RefusedError,
    UnreachableError,
)
from launcher.ssh import make_key_pair
from launcher.templating import user_data
from pricing.offers import Offer

REGION = "us-east-1"
PATIENCE = 30.0


class Rig:
    """A provider with the means to move its cloud."""

    provider: ComputeProvider

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_id = f"contract-{uuid.uuid4().hex[:8]}"

    def now(self) -> datetime:
        """The cloud's time."""
        return datetime.now(UTC)

    def wait(self) -> None:
        """Let a little time pass."""
        time.sleep(0.1)

    def request(
        self, offer: Offer = SPOT_EAST, lease: int = 1, lives: float = 3600, **changes: object
    ) -> LaunchRequest:
        """A launch of this test's run."""
        return LaunchRequest(
            run_id=self.run_id,
            lease_id=f"{self.run_id}-{lease}",
            token=f"{self.run_id}-{lease}-token",
            offer=offer,
            disk_gib=100,
            user_data=user_data(self.now() + timedelta(seconds=lives)),
            deadline=self.now() + timedelta(seconds=lives),
            ssh_public_key=make_key_pair(self.folder / "key"),
            tags={"gpucost-name": "contract"},
        )

    def until(self, ref: InstanceRef, wanted: Callable[[InstanceStatus], bool]) -> InstanceStatus:
        """What the provider says once `wanted` holds."""
        limit = time.monotonic() + PATIENCE
        while not wanted(status := self.provider.describe(ref)):
            assert time.monotonic() < limit, f"still {status}"
            self.wait()
        return status

    def gone(self, ref: InstanceRef) -> InstanceStatus:
        """Its last status."""
        return self.until(ref, lambda status: status.state is InstanceState.GONE)

    def reachable(self, ref: InstanceRef) -> InstanceStatus:
        """Its status once somebody could log in."""
        return self.until(ref, lambda status: status.address is not None and status.host_key is not None)

    def fail_next_launch(self, code: str, *, effect: bool = False) -> None:
        """The next launch is answered with this code of EC2's; with `effect` it is carried out all the same."""
        raise NotImplementedError

    def interrupt(self, ref: InstanceRef) -> None:
        """The provider takes the machine back."""
        raise NotImplementedError

    def lose(self, ref: InstanceRef) -> None:
        """The machine's host fails."""
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        """Key pairs and security groups of this test's run."""
        raise NotImplementedError


class FakeRig(Rig):
    """The fake and its clock."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock = FakeClock()
        self.cloud = FakeProvider(self.clock)
        self.provider = self.cloud

    def now(self) -> datetime:
        return self.clock.now()

    def wait(self) -> None:
        self.clock.sleep(5)

    def fail_next_launch(self, code: str, *, effect: bool = False) -> None:
        errors = {
            "InsufficientInstanceCapacity": CapacityError(code),
            "VcpuLimitExceeded": CapacityError(code),
            "UnauthorizedOperation": RefusedError(code, hint="grant it"),
            "InternalError": UnreachableError(code),
            "RESET": UnreachableError("connection reset"),
        }
        self.cloud.fail("launch", errors[code], effect=effect)

    def interrupt(self, ref: InstanceRef) -> None:
        self.cloud.preempt(self._machine(ref), notice_seconds=1)

    def lose(self, ref: InstanceRef) -> None:
        self.cloud.lose(self._machine(ref))

    def leftovers(self) -> list[str]:
        return [run_id for _, run_id in self.cloud.resources if run_id == self.run_id]

    def _machine(self, ref: InstanceRef):
        return next(machine for machine in self.cloud.machines if machine.ref == ref)


class AwsRig(Rig):
    """The AWS adapter, and the embedded cloud behind it."""

    def __init__(self, folder: Path, embedded) -> None:
        from launcher.clouds import sandbox_facts
        from launcher.providers.aws.account import AwsAccount
        from launcher.providers.aws.compute import AwsCompute

        super().__init__(folder)
        self.home, info = embedded.home, embedded.info
        self.account = AwsAccount(
            endpoint_url=info.ec2_endpoint,
            s3_endpoint_url=info.s3_endpoint,
            access_key=info.access_key,
            secret_key=info.secret_key,
        )
        self.provider = AwsCompute(
            self.account,
            image_parameter=sandbox_facts(info.ssh_port).image_parameter,
            instance_profile=info.instance_profile,
            subnet=None,
            ssh_cidr=lambda: "127.0.0.0/8",
        )

    def fail_next_launch(self, code: str, *, effect: bool = False) -> None:
        from launcher import sandbox

        status = 500 if code in {"InsufficientInstanceCapacity", "InternalError"} else 400
        # The SDK repeats a server's error once by itself.
        times = 2 if status == 500 or code == sandbox.faults.RESET else 1
        sandbox.inject(self.home, sandbox.FaultPlan("RunInstances", code, status, times=times, after=effect))

    def interrupt(self, ref: InstanceRef) -> None:
        from launcher import sandbox

        sandbox.interrupt(self.home, ref.instance_id, 0.5)

    def lose(self, ref: InstanceRef) -> None:
        from launcher import sandbox

        sandbox.kill(self.home, ref.instance_id)

    def leftovers(self) -> list[str]:
        ec2 = self.account.client("ec2", REGION)
        names = [pair["KeyName"] for pair in ec2.describe_key_pairs()["KeyPairs"]]
        names += [group["GroupName"] for group in ec2.describe_security_groups()["SecurityGroups"]]
        ec2.close()
        return [name for name in names if self.run_id in name]


@pytest.fixture(params=["fake", "aws"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    if request.param == "fake":
        yield FakeRig(tmp_path)
        return
    from launcher import sandbox

    embedded = request.getfixturevalue("embedded_cloud")
    made = AwsRig(tmp_path, embedded)
    yield made
    sandbox.clear_faults(embedded.home)
    for status in made.provider.find(made.run_id, REGION):
        made.provider.terminate(status.ref)
        made.gone(status.ref)
    for client in made.provider._clients.values():
        client.close()


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
    with pytest.raises(RefusedError, match="IdempotentParameterMismatch"):
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


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "VcpuLimitExceeded"])
def test_no_capacity_and_no_quota_are_told_apart_from_a_refusal(rig, code):
    rig.fail_next_launch(code)
    with pytest.raises(CapacityError, match=code):
        rig.provider.launch(rig.request())
    assert rig.provider.find(rig.run_id, REGION) == []
    rig.provider.launch(rig.request(DEMAND_EAST, lease=2))


def test_a_missing_permission_is_a_refusal_with_a_hint(rig):
    rig.fail_next_launch("UnauthorizedOperation")
    with pytest.raises(RefusedError, match="UnauthorizedOperation") as error:
        rig.provider.launch(rig.request())
    assert error.value.hint


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
