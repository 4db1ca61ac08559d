"""The clouds of the contract suites, with the means to move them: the one in memory, and the embedded one behind the
AWS adapter. In the latter an instance really boots and really dies, so its waits are on real time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from fake_compute import FakeProvider
from fake_timer import FakePrices, FakeTimer
from launcher_clock import FakeClock
from launcher_world import SPOT_EAST

from launcher.providers.interface import (
    CapacityError,
    CloudTimer,
    ComputeProvider,
    CredentialsError,
    InstanceRef,
    InstanceState,
    InstanceStatus,
    LaunchRequest,
    PriceFeed,
    QuotaError,
    RefusedError,
    UnreachableError,
)
from launcher.ssh import make_key_pair
from launcher.templating import user_data
from pricing.offers import Offer

REGION = "us-east-1"
PATIENCE = 30.0


class Rig:
    """The ports of a cloud, with the means to move it."""

    provider: ComputeProvider
    timer: CloudTimer
    barred_timer: CloudTimer
    """One that nobody may arm."""
    prices: PriceFeed
    ahead: timedelta
    """From now to a moment that a test can wait for."""

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
        self, offer: Offer = SPOT_EAST, lease: int = 1, lives: float = 3600, launcher: str = "laptop"
    ) -> LaunchRequest:
        """A launch of this test's run; each launcher has a key of its own."""
        return LaunchRequest(
            run_id=self.run_id,
            lease_id=f"{self.run_id}-{lease}",
            token=f"{self.run_id}-{lease}-token",
            offer=offer,
            disk_gib=100,
            user_data=user_data(self.now() + timedelta(seconds=lives)),
            deadline=self.now() + timedelta(seconds=lives),
            ssh_public_key=make_key_pair(self.folder / launcher),
            tags={"gpucost-name": "contract", "gpucost-output": "s3://bucket/contract"},
        )

    def pass_by(self, moment: datetime) -> None:
        """Let time pass until this moment lies behind."""
        limit = time.monotonic() + PATIENCE
        while self.now() <= moment:
            assert time.monotonic() < limit, f"{moment} never comes"
            self.wait()

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

    def fail_next_arm(self, code: str, *, effect: bool = False) -> None:
        """The next arming of a stop is answered with this code; with `effect` it is carried out all the same."""
        raise NotImplementedError

    def fail_next_price(self, code: str) -> None:
        """The next question for a price is answered with this code."""
        raise NotImplementedError

    def set_price(self, offer: Offer, usd: Decimal) -> None:
        """From now on machines of this offer cost this much."""
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


def _error(code: str) -> Exception:
    """As the adapter translates it."""
    return {
        "InsufficientInstanceCapacity": CapacityError(code),
        "VcpuLimitExceeded": QuotaError(code),
        "MaxSpotInstanceCountExceeded": QuotaError(code),
        "UnauthorizedOperation": RefusedError(code, hint="grant it"),
        "ExpiredToken": CredentialsError(code, hint="log in again"),
        "InternalError": UnreachableError(code),
        "ThrottlingException": UnreachableError(code),
        "RESET": UnreachableError("connection reset"),
    }[code]


class FakeRig(Rig):
    """The fake and its clock."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock = FakeClock()
        self.cloud = FakeProvider(self.clock)
        self.provider = self.cloud
        self.timer = FakeTimer(self.clock, self.cloud)
        self.barred_timer = FakeTimer(self.clock, self.cloud, permitted=False)
        self.prices = FakePrices(self.clock)
        self.ahead = timedelta(seconds=95)

    def now(self) -> datetime:
        return self.clock.now()

    def wait(self) -> None:
        self.clock.sleep(5)

    def fail_next_launch(self, code: str, *, effect: bool = False) -> None:
        self.cloud.fail("launch", _error(code), effect=effect)

    def fail_next_arm(self, code: str, *, effect: bool = False) -> None:
        self.timer.fail("arm", _error(code), effect=effect)

    def fail_next_price(self, code: str) -> None:
        self.prices.fail(_error(code))

    def set_price(self, offer: Offer, usd: Decimal) -> None:
        self.prices.set(offer.key, usd)

    def interrupt(self, ref: InstanceRef) -> None:
        self.cloud.preempt(self._machine(ref), notice_seconds=1)

    def lose(self, ref: InstanceRef) -> None:
        self.cloud.lose(self._machine(ref))

    def leftovers(self) -> list[str]:
        return [made for _, run_id, made in self.cloud.resources if run_id == self.run_id]

    def _machine(self, ref: InstanceRef):
        return next(machine for machine in self.cloud.machines if machine.ref == ref)


class AwsRig(Rig):
    """The AWS adapter, and the embedded cloud behind it."""

    def __init__(self, folder: Path, embedded) -> None:
        from launcher.clouds import sandbox_facts
        from launcher.providers.aws.account import AwsAccount
        from launcher.providers.aws.compute import AwsCompute
        from launcher.providers.aws.prices import AwsPrices
        from launcher.providers.aws.timer import AwsTimer

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
        self.timer = AwsTimer(self.account, precision_seconds=1)
        self.barred_timer = AwsTimer(self.account, role="gpucost-nobody", precision_seconds=1)
        self.prices = AwsPrices(self.account)
        self.ahead = timedelta(seconds=4)

    def close(self) -> None:
        """End what the test left, and let go of all connections."""
        from launcher import sandbox

        sandbox.clear_faults(self.home)
        for status in self.provider.find(self.run_id, REGION):
            self.provider.terminate(status.ref)
            self.gone(status.ref)
        for port in (self.provider, self.timer, self.barred_timer, self.prices):
            port.close()

    def fail_next_launch(self, code: str, *, effect: bool = False) -> None:
        self._fail_next("RunInstances", code, effect)

    def fail_next_arm(self, code: str, *, effect: bool = False) -> None:
        self._fail_next("CreateSchedule", code, effect)

    def fail_next_price(self, code: str) -> None:
        self._fail_next("DescribeSpotPriceHistory", code, effect=False)

    def set_price(self, offer: Offer, usd: Decimal) -> None:
        from launcher import sandbox

        sandbox.set_spot_price(self.home, offer.instance.name, offer.zone or None, usd)

    def _fail_next(self, action: str, code: str, effect: bool) -> None:
        from launcher import sandbox

        status = 500 if code in {"InsufficientInstanceCapacity", "InternalError"} else 400
        # The SDK repeats a server's error, and a request that came too soon, once by itself.
        twice = status == 500 or code in {sandbox.faults.RESET, "ThrottlingException"}
        sandbox.inject(self.home, sandbox.FaultPlan(action, code, status, times=1 + twice, after=effect))

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
