"""The key pair of a run: made once, and made anew where its file holds none."""

from __future__ import annotations

import pytest

from launcher.ssh import drop_unusable_key, make_key_pair


def test_a_key_is_made_once_and_only_its_owner_may_read_it(tmp_path):
    path = tmp_path / "run" / "ssh_key"
    public = make_key_pair(path)
    assert public.startswith("ssh-ed25519 ")
    assert make_key_pair(path) == public
    assert path.stat().st_mode & 0o777 == 0o600
    assert not drop_unusable_key(path)


@pytest.mark.parametrize("content", ["", "garbage", "-----BEGIN OPENSSH PRIVATE KEY-----\n"])
def test_a_file_that_holds_no_key_is_replaced_before_a_launch_and_removed_before_a_login(tmp_path, content):
    path = tmp_path / "ssh_key"
    path.write_text(content)
    assert drop_unusable_key(path)
    assert not path.exists()
    path.write_text(content)
    assert make_key_pair(path).startswith("ssh-ed25519 ")
    assert "PRIVATE KEY" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kept", range(0, 340, 20))
def test_a_key_that_was_cut_short_anywhere_is_no_key(tmp_path, kept):
    path = tmp_path / "ssh_key"
    make_key_pair(path)
    path.write_bytes(path.read_bytes()[:kept])
    assert drop_unusable_key(path)
    assert not path.exists()


def test_no_key_is_no_unusable_one(tmp_path):
    assert not drop_unusable_key(tmp_path / "ssh_key")
