"""The commands in an instance's root directory, run as a machine's scripts run them."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from launcher.sandbox.rootfs import Root

UNIT = "[Timer]\nOnCalendar=2026-12-01 02:30:00 UTC\n"


@pytest.fixture
def root(tmp_path):
    one = Root(tmp_path / "root")
    one.make()
    return one


def run(root, command):
    environment = root.environment(mark="m/i", metadata="http://127.0.0.1:1", host_path=os.environ["PATH"])
    done = subprocess.run(["/bin/bash", "-c", command], env=environment, capture_output=True, text=True, timeout=20)
    return done.returncode, done.stdout, done.stderr


def test_the_environment_holds_nothing_of_the_caller(root, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "mine")
    code, out, _ = run(root, "echo $AWS_PROFILE; echo $HOME; command -v shutdown")
    assert (code, out.splitlines()) == (0, ["", str(root.home), str(root.commands / "shutdown")])


@pytest.mark.parametrize("command", ["sudo -n echo x", "sudo -u root -E -- echo x", "sudo A=x sh -c 'echo $A'"])
def test_sudo_runs_what_follows_its_options(root, command):
    assert run(root, command) == (0, "x\n", "")


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        pytest.param("shutdown -h now", 0, id="now"),
        pytest.param("sudo -n shutdown -P +2", 120, id="in-minutes"),
        pytest.param("shutdown", 60, id="default-is-a-minute"),
        pytest.param("poweroff", 0, id="poweroff"),
        pytest.param("systemctl poweroff", 0, id="systemctl"),
        pytest.param("shutdown -h $(date -u -d '+5 minutes' +%H:%M)", 240, id="clock-time"),
    ],
)
def test_a_power_off_is_written_down_with_its_time(root, command, seconds):
    before = time.time()
    assert run(root, command) == (0, "", "")
    due = float(root.shutdown.read_text())
    assert seconds - 1 <= due - before <= seconds + 61


def test_a_scheduled_power_off_can_be_cancelled(root):
    run(root, "shutdown +1")
    assert run(root, "shutdown -c")[0] == 0
    assert not root.shutdown.exists()


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("shutdown -r now", "-r is not supported in the sandbox"),
        ("shutdown soon", "Failed to parse time specification: soon"),
        ("shutdown +x", "Failed to parse time specification: +x"),
        ("systemctl kexec", "kexec is not supported in the sandbox"),
        ("systemctl start nothing.timer", "Unit nothing.timer not found."),
        ("systemctl enable nothing", "Unit nothing.service not found."),
    ],
)
def test_what_a_command_cannot_do_fails_with_a_reason(root, command, complaint):
    code, _, err = run(root, command)
    assert code != 0
    assert complaint in err
    assert not root.shutdown.exists()


def test_systemctl_enables_starts_stops_and_answers(root):
    (root.units / "d.timer").write_text(UNIT)
    assert run(root, "systemctl daemon-reload && systemctl enable --now d.timer")[0] == 0
    assert (root.wishes / "d.timer").exists()
    assert run(root, "systemctl is-active d.timer") == (0, "active\n", "")
    assert run(root, "systemctl is-enabled d.timer") == (0, "enabled\n", "")
    assert run(root, "systemctl disable --now d.timer")[0] == 0
    assert run(root, "systemctl is-active d.timer") == (3, "inactive\n", "")
    assert run(root, "systemctl is-enabled d.timer") == (1, "disabled\n", "")


def test_absolute_names_of_commands_lead_to_the_shims_and_never_to_the_host(root):
    assert root.command(["/sbin/shutdown", "-h", "now"]) == [str(root.commands / "shutdown"), "-h", "now"]
    assert root.command(["/usr/bin/systemctl", "poweroff"])[0] == str(root.commands / "systemctl")
    assert root.command(["/bin/echo", "x"]) == ["/bin/echo", "x"]
    inside = root.path / "opt/pytorch/bin/python"
    assert root.command(["/opt/pytorch/bin/python"]) == [str(inside)]
