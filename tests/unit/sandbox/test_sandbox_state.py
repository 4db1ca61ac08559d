"""What the sandbox writes down can be read again, and only by a version that knows it."""

from __future__ import annotations

import json

import pytest

from launcher.errors import BadInput
from launcher.sandbox.state import (
    InstanceStatus,
    SandboxInfo,
    SandboxPaths,
    SandboxSettings,
    SandboxStatus,
    decode,
    encode,
    write_text,
)

INFO = SandboxInfo(
    ec2_endpoint="http://127.0.0.1:1",
    s3_endpoint="http://127.0.0.1:2",
    region="us-east-1",
    regions=("us-east-1",),
    zones=("us-east-1a", "us-east-1b"),
    access_key="A",
    secret_key="s",
    credentials_file="/x/credentials",
    ssh_port=3,
    ssh_user="ubuntu",
    bucket="b",
    instance_profile="p",
    pid=4,
    control_token="t",
    settings=SandboxSettings(idle_seconds=5.0),
)


def test_a_status_with_its_instances_survives_the_way_through_json():
    instance = InstanceStatus("i-1", "g4dn.xlarge", "us-east-1", "us-east-1a", "spot", "running", "127.0.0.2", 3)
    status = SandboxStatus(INFO, (instance,), "nobody", "why", 1.0, 2.0, 0)
    assert decode(encode(status), SandboxStatus, "x") == status


def test_another_schema_is_refused_and_both_versions_are_named():
    text = json.dumps({**json.loads(encode(INFO)), "schema": 9})
    with pytest.raises(BadInput, match=r"f\.json: schema 9, this version reads 1"):
        decode(text, SandboxInfo, "f.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1, "new": 2}'])
def test_a_torn_or_foreign_file_is_named_in_the_error(text):
    with pytest.raises(BadInput, match=r"f\.json: not readable"):
        decode(text, SandboxInfo, "f.json")


def test_files_with_keys_are_for_their_owner_alone(tmp_path):
    path = tmp_path / "deep" / "credentials"
    write_text(path, "secret")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["credentials"]


def test_two_homes_have_two_marks_and_a_home_keeps_its_own(tmp_path):
    assert SandboxPaths(tmp_path / "a").mark != SandboxPaths(tmp_path / "b").mark
    assert SandboxPaths(tmp_path / "a").mark == SandboxPaths(tmp_path / "b" / ".." / "a").mark
