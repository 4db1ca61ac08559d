"""The first acts of a machine: its own power-off at the deadline, and the watch over its agent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from string import Template

import pytest

from launcher.clouds import AWS
from launcher.templating import QUIET_MINUTES

TEMPLATE = Path(__file__).parents[2] / "templates" / "user-data.sh"
FUTURE, PAST = "2099-12-01 02:30:00 UTC", "2020-12-01 02:30:00 UTC"
LIMIT_BYTES = 16 * 1024
"""EC2's, before base64."""


def rendered(deadline: str) -> str:
    return Template(TEMPLATE.read_text()).substitute(deadline=deadline, quiet_minutes=QUIET_MINUTES)


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
    assert calls == [
        "systemctl enable --now gpucost-deadline.timer",
        "systemctl enable --now gpucost-watch.service",
    ]


def test_it_may_run_twice(tmp_path: Path) -> None:
    run(tmp_path, FUTURE)
    calls, _ = run(tmp_path, FUTURE)
    assert len(calls) == 4
    assert len((tmp_path / "etc/hosts").read_text().splitlines()) == 1


def test_a_deadline_that_has_passed_ends_the_machine_at_once(tmp_path: Path) -> None:
    calls, _ = run(tmp_path, PAST)
    assert "shutdown -h now" in calls


def watched(root: Path, minutes: int, writes: str) -> list[str]:
    """The calls of the watch in so many minutes; `writes` is what an agent does in each (`$minute`)."""
    _, units = run(root, FUTURE)
    program = root / "usr/local/sbin/gpucost-watch"
    assert f"ExecStart=/{program.relative_to(root)}" in (units / "gpucost-watch.service").read_text().splitlines()
    (root / "calls").unlink()
    status = root / "home/ubuntu/gpucost/run-1/status.json"
    status.parent.mkdir(parents=True)
    sleep = program.with_name("sleep")
    sleep.write_text(
        f"""#!/bin/sh
        minute=$(( $(cat "$GPUCOST_ROOT/minute" 2>/dev/null || echo 0) + 1 ))
        echo $minute >"$GPUCOST_ROOT/minute"
        status={status}
        {writes}
        [ $minute -le {minutes} ]
        """
    )
    sleep.chmod(0o755)
    environment = {"GPUCOST_ROOT": str(root), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    subprocess.run([program], env=environment, check=True, timeout=60)
    calls = root / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


def test_a_machine_whose_agent_died_while_nobody_watches_powers_itself_off(tmp_path: Path) -> None:
    dies = 'if [ $minute -le 5 ]; then touch -d "@$minute" "$status"; fi'
    assert watched(tmp_path / "a", 5 + QUIET_MINUTES - 1, dies) == []
    assert watched(tmp_path / "b", 5 + QUIET_MINUTES + 1, dies) == ["shutdown -h now"] * 2, "tried until it is off"


def test_a_machine_to_which_no_agent_ever_comes_powers_itself_off(tmp_path: Path) -> None:
    assert watched(tmp_path / "a", QUIET_MINUTES - 1, ":") == []
    assert watched(tmp_path / "b", QUIET_MINUTES, ":") == ["shutdown -h now"]


def test_an_agent_at_work_or_started_again_in_time_is_left_alone(tmp_path: Path) -> None:
    assert watched(tmp_path / "a", 3 * QUIET_MINUTES, 'touch -d "@$minute" "$status"') == []
    again = f'if [ $((minute % {QUIET_MINUTES - 1})) -eq 1 ]; then touch -d "@$minute" "$status"; fi'
    assert watched(tmp_path / "b", 3 * QUIET_MINUTES, again) == []


def test_a_launcher_that_lives_acts_on_a_dead_agent_before_the_machine_does() -> None:
    assert max(AWS.beat_limit_seconds + AWS.install_limit_seconds, AWS.silence_limit_seconds) < QUIET_MINUTES * 60


def test_it_fits_and_downloads_nothing() -> None:
    text = rendered(FUTURE)
    assert len(text.encode()) < LIMIT_BYTES
    assert not any(word in text for word in ("curl", "wget", "pip", "apt", "http"))


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not Path("/sbin/shutdown").exists(), reason="needs systemd"
)
def test_systemd_reads_the_units(tmp_path: Path) -> None:
    _, units = run(tmp_path, FUTURE)
    timer, service = units / "gpucost-deadline.timer", units / "gpucost-watch.service"
    assert subprocess.run(["systemd-analyze", "calendar", FUTURE], capture_output=True, check=False).returncode == 0
    argv = ["systemd-analyze", "verify", str(timer), str(service)]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stderr.splitlines()
    missing_here = "Command /usr/local/sbin/gpucost-watch "
    assert [line for line in said if "gpucost-" in line and missing_here not in line] == []


SHELLCHECK = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck")
def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    script = tmp_path / "user-data.sh"
    script.write_text(rendered(FUTURE))
    subprocess.run([str(SHELLCHECK), str(script)], check=True)
    run(tmp_path, FUTURE)
    subprocess.run([str(SHELLCHECK), str(tmp_path / "usr/local/sbin/gpucost-watch")], check=True)
