"""The bundle, the user-data, the key pair: what is sent to a machine."""

from __future__ import annotations

import io
import stat
import tarfile
from datetime import UTC, datetime, timedelta, timezone

import paramiko
import pytest

from launcher.bundle import pack_remote
from launcher.ssh import make_key_pair
from launcher.templating import template_text, user_data


def test_two_packs_of_the_same_sources_are_the_same_bytes():
    first, second = pack_remote(), pack_remote()
    assert first == second
    assert len(first.digest) == 16


def test_the_bundle_holds_what_runs_on_the_machine_and_nothing_else():
    with tarfile.open(fileobj=io.BytesIO(pack_remote().content)) as tar:
        members = tar.getmembers()
    names = {member.name for member in members}
    assert {"remote/__init__.py", "remote/agent/__main__.py", "remote/transfer/__main__.py"} <= names
    assert {"remote/protocol.py", "remote/yolov9/train.py", "remote/dataset/__init__.py"} <= names
    assert all(name.startswith("remote/") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert all(member.isreg() and member.mtime == 0 and member.mode == 0o644 for member in members)


def test_a_bundle_does_not_show_its_content():
    assert len(repr(pack_remote())) < 200


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 12, 1, 2, 30, 0, tzinfo=UTC),
        datetime(2026, 12, 1, 4, 30, 0, tzinfo=timezone(timedelta(hours=2))),
        datetime(2026, 12, 1, 2, 30, 0, 999_999, tzinfo=UTC),
    ],
)
def test_the_user_data_arms_an_absolute_time_in_utc(moment):
    text = user_data(moment)
    assert "\nOnCalendar=2026-12-01 02:30:00 UTC\n" in text
    assert text.startswith("#!/bin/sh\n")


def test_the_user_data_leaves_nothing_unfilled_and_says_the_same_for_the_same_lease():
    moment = datetime(2026, 12, 1, 2, 30, 0, tzinfo=UTC)
    text = user_data(moment)
    assert "$$" not in text
    assert "${deadline}" not in text
    assert '"${GPUCOST_ROOT:-}"' in text
    assert text == user_data(moment), "the launch token stands for one request"


def test_a_template_that_is_not_there_is_our_own_fault():
    with pytest.raises(FileNotFoundError):
        template_text("none.sh")


def test_a_key_pair_is_made_once_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "run" / "ssh_key"
    public = make_key_pair(path)
    assert public.startswith("ssh-ed25519 ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert make_key_pair(path) == public
    key = paramiko.Ed25519Key.from_private_key_file(str(path))
    assert public.split()[1] == key.get_base64()
    assert [file.name for file in path.parent.iterdir()] == ["ssh_key"]


def test_two_runs_have_two_keys(tmp_path):
    assert make_key_pair(tmp_path / "a") != make_key_pair(tmp_path / "b")
