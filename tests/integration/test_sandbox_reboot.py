"""A reboot in the embedded cloud: processes go, everything else stays, and no deadline is lost."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from sandbox_client import (  # noqa: F401 - fixtures
    NEEDED,
    argv,
    imds,
    marked_processes,
    sandbox_cloud,
    sandbox_home,
    sandbox_machine,
    until,
)

from launcher import sandbox
from launcher.templating import user_data

pytestmark = NEEDED
TIMER = "gpucost-deadline.timer"
ENDS_IN_ORDER = "trap 'echo told > $HOME/farewell; exit' TERM; while :; do sleep 0.1; done"
STAYS = "trap '' TERM; while :; do sleep 0.1; done"


def boots(machine):
    return machine.console().count("[sandbox] boot finished")


def reboot(cloud, machine):
    machine.close()
    machine.connection = None
    before = boots(machine)
    cloud.ec2.reboot_instances(InstanceIds=[machine.id])
    until("the second boot", lambda: boots(machine) == before + 1)


def detach(machine, command):
    assert machine.run(f"setsid bash -c {command!r} >/dev/null 2>&1 </dev/null &")[0] == 0


def test_a_reboot_ends_all_processes_and_keeps_files_address_and_host_key(cloud, home):
    machine = cloud.launch(user_data="#!/bin/bash\necho once >> $HOME/boots\n")
    machine.connect()
    base = machine.run("echo $AWS_EC2_METADATA_SERVICE_ENDPOINT")[1].strip()
    address, key = machine.describe()["PublicIpAddress"], machine.host_key()
    detach(machine, ENDS_IN_ORDER)
    detach(machine, STAYS)
    until("both", lambda: len([p for p in marked_processes(home) if "while" in argv(p)]) == 2)
    assert machine.run("echo mine > kept")[0] == 0
    reboot(cloud, machine)
    assert [p for p in marked_processes(home) if "while" in argv(p)] == []
    assert machine.state() == "running"
    assert (machine.describe()["PublicIpAddress"], machine.host_key()) == (address, key)
    machine.connect()
    assert machine.run("cat kept farewell boots")[1] == "mine\ntold\nonce\n"
    assert machine.run("echo $AWS_EC2_METADATA_SERVICE_ENDPOINT")[1].strip() == base
    assert imds(base, "meta-data/instance-id") == (200, machine.id)
    machine.close()
    cloud.ec2.terminate_instances(InstanceIds=[machine.id])
    machine.wait("terminated")


def test_the_deadline_of_the_real_user_data_survives_a_reboot_and_ends_the_machine(cloud):
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=10)
    machine = cloud.launch(user_data=user_data(due))
    machine.connect()
    assert machine.run(f"systemctl is-active {TIMER}") == (0, "active\n", "")
    reboot(cloud, machine)
    machine.connect()
    assert machine.run(f"systemctl is-active {TIMER}") == (0, "active\n", "")
    assert datetime.now(UTC) < due
    machine.close()
    end = machine.wait("terminated")
    assert end["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert datetime.now(UTC) >= due


def test_an_interruption_outlasts_a_reboot(cloud, home, machine):
    machine.connect()
    sandbox.interrupt(home, machine.id, 2.5)
    reboot(cloud, machine)
    machine.connect()
    base = machine.run("echo $AWS_EC2_METADATA_SERVICE_ENDPOINT")[1].strip()
    assert imds(base, "meta-data/spot/instance-action")[0] == 200
    machine.close()
    assert machine.wait("terminated")["StateReason"]["Code"] == "Server.SpotInstanceTermination"


def test_only_a_running_instance_reboots(cloud):
    machine = cloud.launch()
    machine.wait("running")
    cloud.ec2.terminate_instances(InstanceIds=[machine.id])
    machine.wait("terminated")
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        cloud.ec2.reboot_instances(InstanceIds=[machine.id])
