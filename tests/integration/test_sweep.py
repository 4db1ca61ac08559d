"""`gpucost gc` on the embedded cloud: what the launcher's own adapters made is found by tag alone, and goes.

What this cannot show: open spot requests (the embedded cloud fills every request at once), regions that are not
enabled, and how long a real machine takes to end.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="the sweep is tried on the embedded cloud: pip install 'gpucost[sandbox]'")
from cli_process import User, processes_of
from launcher_world import SPOT_EAST
from sandbox_client import NEEDED, SETTINGS

from launcher import sandbox
from launcher.clouds import sandbox_facts
from launcher.home import Home
from launcher.providers.aws.account import AwsAccount
from launcher.providers.aws.compute import AwsCompute
from launcher.providers.aws.timer import AwsTimer
from launcher.providers.interface import InstanceRef, LaunchRequest
from launcher.ssh import make_key_pair
from launcher.templating import user_data
from remote.protocol import AgentStatus, Phase, StoredRun, encode

pytestmark = NEEDED
REGION = "us-east-1"


class Account:
    """The embedded cloud, used as a launcher uses it, by a user who has no state of these runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = User(folder)
        info = sandbox.up(self.user.home, SETTINGS)
        keys = {"access_key": info.access_key, "secret_key": info.secret_key}
        account = AwsAccount(endpoint_url=info.ec2_endpoint, s3_endpoint_url=info.s3_endpoint, **keys)
        image = sandbox_facts(info.ssh_port).image_parameter
        self.compute = AwsCompute(
            account, image_parameter=image, instance_profile=None, subnet=None, ssh_cidr=lambda: "127.0.0.0/8"
        )
        self.timer = AwsTimer(account)
        self.ec2, self.s3 = account.client("ec2", REGION), account.client("s3", REGION)
        self.bucket, self.output = info.bucket, f"s3://{info.bucket}/runs"

    def launch(self, name: str, deadline: datetime) -> tuple[str, InstanceRef]:
        """A machine with all that belongs to it; its tags say that it should be off by `deadline`."""
        run = f"20261101T000000-{secrets.token_hex(2)}-{name}"
        off = datetime.now(UTC) + timedelta(hours=1)
        tags = {"name": name, "deadline": deadline.isoformat(timespec="seconds"), "output": self.output}
        request = LaunchRequest(
            run_id=run,
            lease_id=f"{run}-1",
            token=secrets.token_hex(16),
            offer=SPOT_EAST,
            disk_gib=100,
            user_data=user_data(off),
            deadline=off,
            ssh_public_key=make_key_pair(self.folder / name),
            tags={f"gpucost-{key}": value for key, value in tags.items()},
        )
        return run, self.compute.launch(request)

    def leave_upload(self, run: str) -> None:
        """The machine was gone before its checkpoint was whole."""
        key = f"runs/{run}/tasks/t/checkpoints/1.pt"
        upload = self.s3.create_multipart_upload(Bucket=self.bucket, Key=key)["UploadId"]
        self.s3.upload_part(Bucket=self.bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * (5 << 20))

    def leave_disk(self, run: str, deadline: datetime) -> str:
        """A disk that did not go with its machine."""
        tags = {"run": run, "deadline": deadline.isoformat(), "output": self.output}
        kept = [{"Key": f"gpucost-{key}", "Value": value} for key, value in tags.items()]
        specification = {"ResourceType": "volume", "Tags": kept}
        zone = f"{REGION}a"
        made = self.ec2.create_volume(
            AvailabilityZone=zone, Size=50, VolumeType="gp3", TagSpecifications=[specification]
        )
        return made["VolumeId"]

    def post(self, run: str, at: datetime) -> None:
        """The agent of a run was heard."""
        status = AgentStatus(run, f"{run}-1", Phase.TRAINING, at=at.timestamp(), started_at=0.0, pid=1)
        key = f"runs/{StoredRun(run).posted_status(f'{run}-1')}"
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=encode(status).encode())

    def gc(self, *argv: str) -> tuple[int, dict, list[str]]:
        """Exit code, document, and what was said beside it."""
        done = self.user.run("gc", "--cloud", "sandbox", "--json", *argv)
        start = next(at for at, line in enumerate(done.lines) if line == "{")
        end = next(at for at, line in enumerate(done.lines) if line == "}")
        said = done.lines[:start] + done.lines[end + 1 :]
        return done.process.returncode, json.loads("\n".join(done.lines[start : end + 1])), said

    def state(self, ref: InstanceRef) -> str:
        """Of a machine, as EC2 has it."""
        answer = self.ec2.describe_instances(InstanceIds=[ref.instance_id])
        return answer["Reservations"][0]["Instances"][0]["State"]["Name"]

    def close(self) -> None:
        self.compute.close()
        self.timer.close()
        self.ec2.close()
        self.s3.close()
        self.user.leave()


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    made = Account(tmp_path_factory.mktemp("sweep"))
    yield made
    made.close()
    assert processes_of(made.user.home) == []


def rows(document: dict, run: str) -> dict[str, list[tuple[str, str | None]]]:
    """Action and result of each thing of a run, by kind."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    for row in document["items"]:
        if row["run_id"] == run:
            found.setdefault(row["kind"], []).append((row["action"], row["result"]))
    return found


def test_a_dead_run_is_found_without_any_local_state_and_goes_with_all_it_had_beside_one_that_lives(account):
    """C01, C03, C09: and the bucket of both stays (C39)."""
    past = datetime.now(UTC) - timedelta(hours=3)
    dead, machine = account.launch("dead", past)
    account.post(dead, past)
    account.leave_disk(dead, past)
    alive, busy = account.launch("alive", past)
    account.post(alive, datetime.now(UTC))
    account.timer.arm(machine, f"{dead}-1", datetime.now(UTC) + timedelta(minutes=1))
    account.leave_upload(dead)
    assert Home(account.user.home).run_ids() == []

    code, document, _ = account.gc()
    assert (code, document["dry_run"], document["complete"]) == (0, True, True)
    assert len(document["regions"]) > 10
    found = rows(document, dead)
    assert set(found) == {"instance", "volume", "interface", "schedule", "key pair", "security group", "upload"}
    assert (len(found["volume"]), found["instance"]) == (2, [("remove", None)])
    assert {action for kind in rows(document, alive).values() for action, _ in kind} == {"keep"}
    assert float(document["orphan_usd_per_day"]) > 1
    assert account.state(machine) in {"pending", "running"}

    shown = account.user.run("gc", "--cloud", "sandbox", "--region", REGION)
    assert shown.wait_for(f"run {dead}").endswith(": agent last heard 3 h 00 min ago")
    assert shown.wait_for(f"run {alive}").partition(": ")[2].startswith("run lives: agent heard ")
    shown.wait_for("nothing was removed; this removes the orphans: gpucost gc --cloud sandbox --region us-east-1 --yes")

    account.timer.disarm(f"{dead}-1", REGION)  # it fires at its deadline: until then the run's newest is in the future
    code, document, said = account.gc("--region", REGION, "--yes")
    assert code == 0, said
    found = rows(document, dead)
    assert found["instance"] == found["key pair"] == found["security group"] == [("remove", "removed")]
    assert sorted(result for _, result in found["volume"]) == ["gone by itself", "removed"]
    assert found["interface"] == [("remove", "gone by itself")]
    assert found["upload"] == [("keep", None)], "begun a moment ago: somebody may still be uploading"
    assert account.state(machine) == "terminated"
    assert account.state(busy) == "running"

    code, document, _ = account.gc("--region", REGION)
    assert set(rows(document, dead)) == {"upload"}
    assert set(rows(document, alive)) == {"instance", "volume", "interface", "key pair", "security group"}
    objects = account.s3.list_objects_v2(Bucket=account.bucket, Prefix="runs/")["Contents"]
    assert len(objects) == 2


def test_a_machine_that_cannot_be_ended_is_the_loudest_error_and_goes_when_it_can_be(account):
    past = datetime.now(UTC) - timedelta(hours=3)
    run, machine = account.launch("held", past)
    account.post(run, past)
    refusals = [
        sandbox.FaultPlan("TerminateInstances", "UnauthorizedOperation", 403, times=1000),
    ]
    for refusal in refusals:
        sandbox.inject(account.user.home, refusal)
    code, document, said = account.gc("--region", REGION, "--yes")
    sandbox.clear_faults(account.user.home)
    assert code == document["exit_code"] == 7
    assert rows(document, run)["instance"] == [("remove", "not removed")]
    assert any("NOT CONFIRMED GONE, AND MAY STILL BE BILLED" in line for line in said)
    assert account.state(machine) == "running"
    shown = account.user.run("gc", "--cloud", "sandbox", "--region", REGION, "--yes")
    shown.wait_for(f"removed: instance {machine.instance_id} {REGION}")
    assert shown.process.returncode == 0, shown.text
    limit = time.monotonic() + 20
    while account.state(machine) != "terminated":
        assert time.monotonic() < limit
        time.sleep(0.1)
