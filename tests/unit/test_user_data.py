"""The first act of a machine: its own power-off at the deadline."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from string import Template

import pytest

TEMPLATE = Path(__file__).parents[2] / "templates" / "user-data.sh"
FUTURE, PAST = "2099-12-01 02:30:00 UTC", "2020-12-01 02:30:00 UTC"
LIMIT_BYTES = 16 * 1024
"""EC2's, before base64."""


def rendered(deadline: str) -> str:
    return Template(TEMPLATE.read_text()).substitute(deadline=deadline)


def run(root: Path, deadline: str) -> tuple[list[str], Path]:
    """Run it below `root` as an ordinary user; the shims that it called, and the folder of units."""
    shims = root / "usr/local/sbin"
    shims.mkdir(parents=True, exist_ok=True)
    for name in ("systemctl", "shutdown"):
        shim = shims / name
        shim.write_text(f'#!/bin/sh\necho {name} "$@" >>"$GPUCOST_ROOT/calls"\n')
        shim.chmod(0o755)
    environment = {"GPUCOST_ROOT": str(root), "PATH": f"{shims}:{os.environ['PATH']}"}
    subprocess.run(["sh"], input=rendered(deadline), text=True, env=environment, check=True, timeout=20)
    return (root / "calls").read_text().splitlines(), root / "etc/systemd/system"


def test_it_enables_a_timer_at_an_absolute_time_that_survives_a_reboot(tmp_path: Path) -> None:
    calls, units = run(tmp_path, FUTURE)
    timer = (units / "gpucost-deadline.timer").read_text().splitlines()
    assert f"OnCalendar={FUTURE}" in timer
    assert "Persistent=true" in timer
    assert "WantedBy=timers.target" in timer
    assert "ExecStart=/sbin/shutdown -h now" in (units / "gpucost-deadline.service").read_text().splitlines()
    assert calls == ["systemctl enable --now gpucost-deadline.timer"]


def test_it_may_run_twice(tmp_path: Path) -> None:
    run(tmp_path, FUTURE)
    calls, _ = run(tmp_path, FUTURE)
    assert len(calls) == 2


def test_a_deadline_that_has_passed_ends_the_machine_at_once(tmp_path: Path) -> None:
    calls, _ = run(tmp_path, PAST)
    assert calls[-1] == "shutdown -h now"


def test_it_fits_and_downloads_nothing() -> None:
    text = rendered(FUTURE)
    assert len(text.encode()) < LIMIT_BYTES
    assert not any(word in text for word in ("curl", "wget", "pip", "apt", "http"))


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not Path("/sbin/shutdown").exists(), reason="needs systemd"
)
def test_systemd_reads_the_units(tmp_path: Path) -> None:
    _, units = run(tmp_path, FUTURE)
    timer = units / "gpucost-deadline.timer"
    assert subprocess.run(["systemd-analyze", "calendar", FUTURE], capture_output=True, check=False).returncode == 0
    checked = subprocess.run(["systemd-analyze", "verify", str(timer)], capture_output=True, text=True, check=False)
    assert "gpucost-deadline" not in checked.stderr


SHELLCHECK = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck")
def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    script = tmp_path / "user-data.sh"
    script.write_text(rendered(FUTURE))
    subprocess.run([str(SHELLCHECK), str(script)], check=True)
