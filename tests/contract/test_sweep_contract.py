"""What every `ResourceSweep` does: the fake of the functional tests, and the AWS adapter on the embedded cloud."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from fake_sweep import FakeSweep
from launcher_clock import FakeClock

from launcher.providers.interface import RefusedError
from launcher.providers.sweep import Found, InUseError, Kind, ResourceSweep

REGION = "us-east-1"
PATIENCE = 30.0
DEADLINE = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=4)
TAGGED = [Kind.VOLUME, Kind.INTERFACE, Kind.KEY_PAIR, Kind.SECURITY_GROUP, Kind.LAUNCH_TEMPLATE]
"""What carries tags of its own and needs no machine."""
ALL = [Kind.INSTANCE, Kind.SCHEDULE, Kind.UPLOAD, *TAGGED]


class Rig:
    """A sweep with the means to make things."""

    port: ResourceSweep
    output: str

    def __init__(self) -> None:
        self.run = self.new_run()

    def new_run(self) -> str:
        """An id of its own for each."""
        return f"20261201T040000-{secrets.token_hex(2)}-{secrets.token_hex(4)}"

    def make(self, kind: Kind, run: str | None = None) -> str:
        """Something of a run, tagged as the launcher tags it; its id."""
        raise NotImplementedError

    def untagged(self, kind: Kind) -> str:
        """Something of somebody else's."""
        raise NotImplementedError

    def wait(self) -> None:
        """Let a little time pass."""
        raise NotImplementedError

    def stop_machine(self, machine: str) -> None:
        """Park it instead of ending it."""
        raise NotImplementedError

    def darken(self) -> None:
        """From now on the machines of the region cannot be listed."""
        raise NotImplementedError

    def found(self, run: str | None = None) -> dict[str, Found]:
        """Everything of a run, by id."""
        known = (*self.port.find(REGION, run or self.run).found, *self.port.uploads(self.output, run or self.run).found)
        return {one.id: one for one in known}

    def until(self, wanted: Callable[[], bool]) -> None:
        """Wait for the provider."""
        limit = time.monotonic() + PATIENCE
        while not wanted():
            assert time.monotonic() < limit
            self.wait()


class FakeRig(Rig):
    """The fake and its clock."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.port = self.cloud = FakeSweep(self.clock)
        self.output = "s3://bucket/runs"

    def make(self, kind: Kind, run: str | None = None) -> str:
        run = run or self.run
        upload = kind is Kind.UPLOAD
        id_ = f"{self.output}/{run}/x.pt" if upload else f"{kind}-{secrets.token_hex(4)}"
        tagged = kind not in {Kind.UPLOAD, Kind.SCHEDULE}
        self.cloud.add(
            Found(
                kind,
                id_,
                "" if upload else REGION,
                run_id=run,
                lease_id=None if upload else f"{run}-1",
                deadline=None if upload else DEADLINE,
                output=self.output if tagged or upload else None,
                state="running" if kind is Kind.INSTANCE else "",
                usd_per_day=Decimal(1) if kind in {Kind.INSTANCE, Kind.VOLUME, Kind.UPLOAD} else Decimal(0),
                made_at=self.clock.now(),
            )
        )
        return id_

    def untagged(self, kind: Kind) -> str:
        return f"{kind}-of-somebody"

    def wait(self) -> None:
        self.clock.sleep(5)

    def stop_machine(self, machine: str) -> None:
        self.cloud.things = [
            replace(one, state="stopped", usd_per_day=Decimal(0)) if one.id == machine else one
            for one in self.cloud.things
        ]

    def darken(self) -> None:
        self.cloud.dark[REGION] = "UnauthorizedOperation: not for you"


class Aws:
    """The adapter, its timer and plain clients of the embedded cloud, made once for all tests."""

    def __init__(self, embedded) -> None:
        from launcher.clouds import sandbox_facts
        from launcher.providers.aws.account import AwsAccount
        from launcher.providers.aws.sweep import AwsSweep
        from launcher.providers.aws.timer import AwsTimer
        from pricing.sources.tables import load_offers, load_rates
        from pricing.standing import StandingPrices

        self.home, info = embedded.home, embedded.info
        account = AwsAccount(
            endpoint_url=info.ec2_endpoint,
            s3_endpoint_url=info.s3_endpoint,
            access_key=info.access_key,
            secret_key=info.secret_key,
        )
        self.port = AwsSweep(account, StandingPrices("aws", load_offers(), load_rates()), home_region=REGION)
        self.timer = AwsTimer(account)
        self.bucket = info.bucket
        self.ec2, self.s3 = account.client("ec2", REGION), account.client("s3", REGION)
        ssm = account.client("ssm", REGION)
        self.image = ssm.get_parameter(Name=sandbox_facts(info.ssh_port).image_parameter)["Parameter"]["Value"]
        ssm.close()

    def close(self) -> None:
        for client in (self.ec2, self.s3, self.timer, self.port):
            client.close()


class AwsRig(Rig):
    """The AWS adapter, and the embedded cloud behind it."""

    def __init__(self, aws: Aws) -> None:
        super().__init__()
        self.home, self.port, self.timer, self.image = aws.home, aws.port, aws.timer, aws.image
        self.ec2, self.s3, self.bucket = aws.ec2, aws.s3, aws.bucket
        self.output = f"s3://{aws.bucket}/runs-{secrets.token_hex(4)}"
        self.runs = {self.run}

    def make(self, kind: Kind, run: str | None = None) -> str:
        run = run or self.run
        self.runs.add(run)
        tags = {"run": run, "lease": f"{run}-1", "deadline": DEADLINE.isoformat(), "output": self.output}
        return self._make(kind, run, [{"Key": f"gpucost-{key}", "Value": value} for key, value in tags.items()])

    def untagged(self, kind: Kind) -> str:
        return self._make(kind, self.new_run(), [{"Key": "Name", "Value": "of somebody"}])

    def _make(self, kind: Kind, run: str, tags: list[dict[str, str]]) -> str:
        def tagged(*kinds: str) -> list[dict[str, object]]:
            return [{"ResourceType": one, "Tags": tags} for one in kinds]

        name = f"gpucost-{run}-{secrets.token_hex(2)}"
        match kind:
            case Kind.INSTANCE:
                return self._launch(tagged("instance", "volume", "network-interface"))
            case Kind.VOLUME:
                zone = f"{REGION}a"
                made = self.ec2.create_volume(
                    AvailabilityZone=zone, Size=50, VolumeType="gp3", TagSpecifications=tagged("volume")
                )
                return made["VolumeId"]
            case Kind.INTERFACE:
                subnet = self.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
                made = self.ec2.create_network_interface(SubnetId=subnet, TagSpecifications=tagged("network-interface"))
                return made["NetworkInterface"]["NetworkInterfaceId"]
            case Kind.KEY_PAIR:
                self.ec2.create_key_pair(KeyName=name, KeyType="ed25519", TagSpecifications=tagged("key-pair"))
                return name
            case Kind.SECURITY_GROUP:
                made = self.ec2.create_security_group(
                    GroupName=name, Description="test", TagSpecifications=tagged("security-group")
                )
                return made["GroupId"]
            case Kind.LAUNCH_TEMPLATE:
                made = self.ec2.create_launch_template(
                    LaunchTemplateName=name,
                    LaunchTemplateData={"InstanceType": "g4dn.xlarge"},
                    TagSpecifications=tagged("launch-template"),
                )
                return made["LaunchTemplate"]["LaunchTemplateId"]
            case Kind.SCHEDULE:
                return self._schedule(run)
            case _:
                return self._upload(run)

    def _launch(self, specifications: list[dict[str, object]]) -> str:
        groups = self.ec2.describe_security_groups(Filters=[{"Name": "tag:gpucost-run", "Values": [self.run]}])
        answer = self.ec2.run_instances(
            ImageId=self.image,
            InstanceType="g4dn.xlarge",
            MinCount=1,
            MaxCount=1,
            UserData="#!/bin/bash\n",
            InstanceInitiatedShutdownBehavior="terminate",
            BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 100, "VolumeType": "gp3"}}],
            TagSpecifications=specifications,
            **({"SecurityGroupIds": [one["GroupId"] for one in groups["SecurityGroups"]]} if groups else {}),
        )
        return answer["Instances"][0]["InstanceId"]

    def _schedule(self, run: str) -> str:
        from launcher.providers.aws.timer import schedule_name
        from launcher.providers.interface import InstanceRef

        self.timer.arm(InstanceRef(REGION, "i-0123456789abcdef0"), f"{run}-1", DEADLINE)
        return schedule_name(f"{run}-1")

    def _upload(self, run: str) -> str:
        key = f"{self.output.removeprefix(f's3://{self.bucket}/')}/{run}/x.pt"
        upload = self.s3.create_multipart_upload(Bucket=self.bucket, Key=key)["UploadId"]
        self.s3.upload_part(Bucket=self.bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * (5 << 20))
        return f"s3://{self.bucket}/{key}"

    def wait(self) -> None:
        time.sleep(0.1)

    def stop_machine(self, machine: str) -> None:
        self.ec2.stop_instances(InstanceIds=[machine])
        self.until(lambda: self.found()[machine].state == "stopped")

    def darken(self) -> None:
        from launcher import sandbox

        sandbox.inject(self.home, sandbox.FaultPlan("DescribeInstances", "UnauthorizedOperation", 403, times=1))

    def close(self) -> None:
        from launcher import sandbox

        sandbox.clear_faults(self.home)
        for run in self.runs:
            for one in self.found(run).values():
                self.until(lambda one=one: self._removed(one))

    def _removed(self, one: Found) -> bool:
        try:
            return self.port.remove(one)
        except InUseError:
            return False


@pytest.fixture(scope="module")
def aws(embedded_cloud) -> Iterator[Aws]:
    made = Aws(embedded_cloud)
    yield made
    made.close()


@pytest.fixture(params=["fake", "aws"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    if request.param == "fake":
        yield FakeRig()
        return
    made = AwsRig(request.getfixturevalue("aws"))
    yield made
    made.close()


def removed(rig: Rig, id_: str, run: str | None = None) -> None:
    """Remove one thing, as often as it takes."""
    one = rig.found(run)[id_]
    rig.until(lambda: rig.port.remove(one))


def test_the_regions_are_named(rig):
    assert REGION in rig.port.regions()


@pytest.mark.parametrize("kind", [Kind.INSTANCE, *TAGGED])
def test_what_is_tagged_is_found_with_what_its_tags_say(rig, kind):
    id_ = rig.make(kind)
    found = rig.found()[id_]
    assert (found.kind, found.region, found.run_id, found.lease_id) == (kind, REGION, rig.run, f"{rig.run}-1")
    assert (found.deadline, found.output) == (DEADLINE, rig.output)


def test_a_schedule_is_found_with_its_run_and_its_time(rig):
    id_ = rig.make(Kind.SCHEDULE)
    found = rig.found()[id_]
    assert (found.kind, found.run_id, found.lease_id) == (Kind.SCHEDULE, rig.run, f"{rig.run}-1")
    assert abs(found.deadline - DEADLINE) <= timedelta(minutes=1)


def test_an_unfinished_upload_is_found_below_its_prefix_with_its_run(rig):
    id_ = rig.make(Kind.UPLOAD)
    (found,) = rig.port.uploads(rig.output).found
    assert (found.id, found.kind, found.run_id, found.output) == (id_, Kind.UPLOAD, rig.run, rig.output)
    assert found.usd_per_day > 0
    assert rig.port.uploads(f"{rig.output}-other").found == ()


@pytest.mark.parametrize("kind", TAGGED)
def test_what_is_not_ours_is_not_found(rig, kind):
    rig.make(kind)
    foreign = rig.untagged(kind)
    assert foreign not in {one.id for one in rig.port.find(REGION).found}


@pytest.mark.parametrize("kind", ALL)
def test_of_one_run_only_its_own_is_found(rig, kind):
    other = rig.new_run()
    mine, theirs = rig.make(kind), rig.make(kind, other)
    assert mine in rig.found()
    assert theirs not in rig.found()
    assert theirs in rig.found(other)
    everything = {*rig.port.find(REGION).found, *rig.port.uploads(rig.output).found}
    assert {mine, theirs} <= {one.id for one in everything}


def test_other_regions_have_none_of_it(rig):
    rig.make(Kind.VOLUME)
    assert rig.port.find("eu-west-1", rig.run).found == ()


@pytest.mark.parametrize("kind", ALL)
def test_what_was_removed_is_gone_and_can_be_removed_again(rig, kind):
    id_ = rig.make(kind)
    one = rig.found()[id_]
    removed(rig, id_)
    assert id_ not in rig.found()
    assert rig.port.remove(one)


def test_a_machine_is_not_gone_before_the_provider_says_so(rig):
    id_ = rig.make(Kind.INSTANCE)
    one = rig.found()[id_]
    assert rig.port.remove(one) is False
    rig.until(lambda: rig.port.remove(one))


def test_what_a_machine_holds_cannot_be_removed_before_it_is_gone(rig):
    group = rig.make(Kind.SECURITY_GROUP)
    machine = rig.make(Kind.INSTANCE)
    with pytest.raises(InUseError):
        rig.port.remove(rig.found()[group])
    removed(rig, machine)
    rig.until(lambda: _goes(rig, group))


def _goes(rig: Rig, id_: str) -> bool:
    try:
        return rig.port.remove(rig.found()[id_])
    except InUseError:
        return False


def test_a_machine_that_runs_costs_and_a_stopped_one_costs_its_disks(rig):
    """C26, C40."""
    machine = rig.make(Kind.INSTANCE)
    if isinstance(rig, FakeRig):
        rig.make(Kind.VOLUME)
    rig.until(lambda: rig.found()[machine].state == "running")
    assert rig.found()[machine].usd_per_day > 0
    rig.stop_machine(machine)
    found = rig.found()
    assert found[machine].usd_per_day == 0
    assert sum(one.usd_per_day for one in found.values() if one.kind is Kind.VOLUME) > 0


def test_what_cannot_be_listed_is_a_gap(rig):
    rig.make(Kind.VOLUME)
    rig.darken()
    listing = rig.port.find(REGION, rig.run)
    assert [(gap.where, gap.what) for gap in listing.gaps] == [(REGION, "instances")]
    assert "UnauthorizedOperation" in listing.gaps[0].reason


def test_a_bucket_is_never_removed(rig):
    """C39."""
    with pytest.raises(RefusedError):
        rig.port.remove(Found(Kind.BUCKET, rig.output, "", output=rig.output))
