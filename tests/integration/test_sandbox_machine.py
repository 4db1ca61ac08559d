"""An instance of the embedded cloud from inside: SSH, files, metadata, storage, timers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from sandbox_client import (  # noqa: F401 - fixtures
    NEEDED,
    argv,
    imds,
    instance_folder,
    marked_processes,
    paramiko,
    sandbox_cloud,
    sandbox_home,
    sandbox_machine,
    until,
)

pytestmark = NEEDED


DEADLINE = """#!/bin/bash
set -eu
units="${{GPUCOST_ROOT:-}}/etc/systemd/system"
cat > "$units/gpucost-deadline.service" <<UNIT
[Unit]
Description=End this machine
[Service]
Type=oneshot
ExecStart=/sbin/shutdown -h now
UNIT
cat > "$units/gpucost-deadline.timer" <<UNIT
[Timer]
OnCalendar={time:%Y-%m-%d %H:%M:%S} UTC
Persistent=true
AccuracySec=1s
[Install]
WantedBy=timers.target
UNIT
systemctl daemon-reload
systemctl enable --now gpucost-deadline.timer
systemctl is-active gpucost-deadline.timer
"""


def test_a_deadline_timer_of_user_data_ends_the_instance_without_any_launcher(cloud):
    due = datetime.now(UTC) + timedelta(seconds=4)
    machine = cloud.launch(user_data=DEADLINE.format(time=due))
    machine.connect()
    assert machine.run("systemctl is-active gpucost-deadline.timer") == (0, "active\n", "")
    assert machine.run("systemctl is-enabled gpucost-deadline.timer") == (0, "enabled\n", "")
    machine.close()
    end = machine.wait("terminated")
    assert datetime.now(UTC) >= due - timedelta(seconds=1)
    assert end["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_the_metadata_service_wants_a_token_and_knows_the_instance(machine):
    base = machine.run("echo $AWS_EC2_METADATA_SERVICE_ENDPOINT")[1].strip()
    assert imds(base, "meta-data/instance-id", token=False)[0] == 401
    assert imds(base, "meta-data/instance-id") == (200, machine.id)
    document = json.loads(imds(base, "dynamic/instance-identity/document")[1])
    assert (document["instanceId"], document["region"]) == (machine.id, "us-east-1")


STORAGE = """\
import sys, boto3
from botocore.exceptions import ClientError
endpoint, bucket = sys.argv[1:]
session = boto3.session.Session()
s3 = session.client("s3", endpoint_url=endpoint, region_name="us-east-1")
s3.put_object(Bucket=bucket, Key="from/instance", Body=b"x" * 10)
print(s3.head_object(Bucket=bucket, Key="from/instance")["ContentLength"])
keys = session.get_credentials().get_frozen_credentials()
print(bool(keys.token), session.get_credentials().method)
bad = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=keys.access_key,
                   aws_secret_access_key=keys.secret_key, aws_session_token=keys.token[:-4] + "AAAA")
try:
    bad.list_objects_v2(Bucket=bucket)
except ClientError as error:
    print("refused", error.response["ResponseMetadata"]["HTTPStatusCode"])
"""


def test_a_program_on_the_instance_reaches_the_bucket_with_the_role_alone(cloud, machine):
    command = f"$GPUCOST_ROOT/opt/pytorch/bin/python - {cloud.info.s3_endpoint} {cloud.info.bucket}"
    code, out, err = machine.run(command, stdin=STORAGE.encode())
    assert (code, out.splitlines()) == (0, ["10", "True iam-role", "refused 403"]), err


def test_the_machines_own_python_is_not_the_training_environment(machine):
    ask = "-c 'import sys; print(sys.prefix)'"
    assert machine.run(f"python3 {ask}")[1].strip() == sys.base_prefix
    assert machine.run(f"$GPUCOST_ROOT/opt/pytorch/bin/python {ask}")[1].strip() == sys.prefix


def test_sftp_copies_files_and_starts_in_the_home_directory(machine, home):
    client = machine.connect()
    data = os.urandom(300_000)
    with client.open_sftp() as sftp:
        assert sftp.normalize(".") == str(instance_folder(home, machine) / "root/home/ubuntu")
        sftp.putfo(io.BytesIO(data), "blob")
        back = io.BytesIO()
        sftp.getfo("blob", back)
    assert back.getvalue() == data


def test_much_output_and_much_input_arrive_whole(machine):
    assert len(machine.run("head -c 3000000 /dev/zero | tr '\\0' x")[1]) == 3_000_000
    assert machine.run("wc -c", stdin=b"y" * 2_000_000)[1].strip() == "2000000"


SLOW_COUNT = """python3 -c '
import os, time
read = 0
while got := len(os.read(0, 65536)):
    read += got
    time.sleep(0.02)
print(read)'"""


@pytest.mark.parametrize("size", [100_000, 200_000, 300_000, 1_500_000])
def test_input_arrives_whole_where_it_is_read_slowly(machine, size):
    assert machine.run(SLOW_COUNT, stdin=b"y" * size)[1].strip() == str(size)


def test_a_command_that_leaves_its_input_unread_ends_as_it_likes_and_harms_no_other(machine):
    assert machine.run("head -c 5; exit 3", stdin=b"y" * 1_500_000) == (3, "yyyyy", "")
    assert machine.run("echo fine")[1] == "fine\n"


def test_a_lost_connection_ends_no_detached_process(machine):
    client = machine.connect()
    assert machine.run("setsid sh -c 'sleep 1; echo done > later' >/dev/null 2>&1 </dev/null &")[0] == 0
    client.get_transport().sock.close()
    client.close()
    machine.connect()
    assert until("the detached process", lambda: machine.run("cat later")[1]) == "done\n"


def test_a_command_whose_client_is_gone_ends_when_it_writes_as_with_openssh(machine, home):
    channel = machine.connect().get_transport().open_session()
    channel.exec_command("yes")
    channel.recv(1000)
    machine.close()
    until("yes to end", lambda: not [p for p in marked_processes(home) if argv(p).startswith("yes")])
    assert machine.connect()
    assert "Traceback" not in machine.console()


def test_only_the_user_of_the_image_with_the_right_key_gets_in(cloud, machine):
    address = machine.wait("running")["PublicIpAddress"]
    machine.host_key()
    other = paramiko.Ed25519Key.generate() if hasattr(paramiko.Ed25519Key, "generate") else paramiko.ECDSAKey.generate()
    for user, key in (("root", cloud.key), ("ubuntu", other)):
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        with contextlib.closing(client), pytest.raises(paramiko.AuthenticationException):
            client.connect(address, cloud.info.ssh_port, user, pkey=key, allow_agent=False, look_for_keys=False)


def test_every_listener_is_on_loopback(cloud, home, machine):
    machine.connect()
    sockets = {link for pid in [cloud.info.pid, *marked_processes(home)] for link in _descriptors(pid)}
    listening = {
        fields[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if (fields := line.split())[3] == "0A" and f"socket:[{fields[9]}]" in sockets
    }
    assert len(listening) >= 4
    assert {address.split(":")[0][-2:] for address in listening} == {"7F"}


def _descriptors(pid):
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(entry.readlink()))
    return found
