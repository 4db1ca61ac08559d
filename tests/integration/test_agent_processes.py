"""Real processes as the agent starts them: environment, logs, and ends that leave nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remote.agent.processes import LEFT_SECONDS, MachinePrograms, expand
from remote.clock import SystemClock

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")

GRANDCHILD_IN_ITS_OWN_SESSION = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[MachinePrograms]:
    made = MachinePrograms(f"lease-{tmp_path.name}-{os.getpid()}", tmp_path / "bundle", tmp_path)
    yield made
    made.end_left_behind(SystemClock())


def start(programs: MachinePrograms, tmp_path: Path, code: str, *more: str):
    return programs.start("task/a", [sys.executable, "-c", code, *more], tmp_path / "deep" / "log", {"EXTRA": "1"})


class Impatient(SystemClock):
    """Waits hardly, and counts how long it should have waited."""

    waited = 0.0

    def monotonic(self) -> float:
        return self.waited

    def sleep(self, seconds: float) -> None:
        self.waited += seconds


def wait_for(seen: Callable[[], object], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < until
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_gets_its_environment_and_its_log_is_appended(programs: MachinePrograms, tmp_path: Path) -> None:
    for _ in range(2):
        child = start(
            programs, tmp_path, "import os; print(os.environ['PYTHONPATH'], os.environ['EXTRA'], os.getcwd())"
        )
        wait_for(lambda child=child: child.poll() is not None)
    assert (tmp_path / "deep" / "log").read_text() == f"{tmp_path}/bundle 1 {tmp_path}\n" * 2


def test_killing_reaches_a_grandchild_in_a_session_of_its_own(programs: MachinePrograms, tmp_path: Path) -> None:
    child = start(programs, tmp_path, GRANDCHILD_IN_ITS_OWN_SESSION)
    log = tmp_path / "deep" / "log"
    wait_for(lambda: log.read_text().strip())
    grandchild = int(log.read_text())
    assert alive(grandchild)
    child.kill()
    wait_for(lambda: child.poll() == -signal.SIGKILL and not alive(grandchild))


def test_what_a_dead_agent_left_is_found_and_ended(programs: MachinePrograms, tmp_path: Path) -> None:
    child = start(programs, tmp_path, "import time; time.sleep(60)")
    wait_for(lambda: programs.end_left_behind(SystemClock()) > 0)
    wait_for(lambda: child.poll() == -signal.SIGTERM)
    assert programs.end_left_behind(SystemClock()) == 0


SAVES_WHEN_ASKED = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""
HEARS_NOTHING = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""


def test_a_training_that_a_dead_agent_left_saves_before_it_ends(programs: MachinePrograms, tmp_path: Path) -> None:
    child = start(programs, tmp_path, SAVES_WHEN_ASKED, str(tmp_path / "checkpoint"))
    wait_for(lambda: (tmp_path / "deep" / "log").read_text().strip())
    assert programs.end_left_behind(SystemClock()) == 1
    wait_for(lambda: child.poll() == 75)
    assert (tmp_path / "checkpoint").read_text() == "saved"


def test_one_that_does_not_listen_is_killed_after_a_while(programs: MachinePrograms, tmp_path: Path) -> None:
    child = start(programs, tmp_path, HEARS_NOTHING)
    wait_for(lambda: (tmp_path / "deep" / "log").read_text().strip())
    clock = Impatient()
    assert programs.end_left_behind(clock) == 1
    assert clock.waited >= LEFT_SECONDS
    wait_for(lambda: child.poll() == -signal.SIGKILL)


def test_another_lease_is_left_alone(programs: MachinePrograms, tmp_path: Path) -> None:
    child = start(programs, tmp_path, "import time; time.sleep(60)")
    assert MachinePrograms("lease", tmp_path, tmp_path).end_left_behind(SystemClock()) == 0
    assert child.poll() is None
    child.kill()
    wait_for(lambda: child.poll() is not None)


def test_signals_to_an_ended_program_are_harmless(programs: MachinePrograms, tmp_path: Path) -> None:
    child = start(programs, tmp_path, "")
    wait_for(lambda: child.poll() == 0)
    child.terminate()
    child.dump()
    child.kill()
    assert child.poll() == 0


def test_a_short_command_answers_or_times_out(programs: MachinePrograms) -> None:
    answer = programs.run(["sh", "-c", "echo said; exit 3"], 10)
    assert (answer.code, answer.output) == (3, "said\n")
    with pytest.raises(TimeoutError, match="sleep did not end within 0 s"):
        programs.run(["sleep", "30"], 0.1)
    with pytest.raises(FileNotFoundError):
        programs.run(["no-such-program-here"], 1)


def test_the_root_of_the_machine_is_put_before_absolute_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["${GPUCOST_ROOT:-}/opt/pytorch/bin/python", "-m"]
    monkeypatch.setenv("GPUCOST_ROOT", "/sandbox/i-1")
    assert expand(argv) == ["/sandbox/i-1/opt/pytorch/bin/python", "-m"]
    monkeypatch.delenv("GPUCOST_ROOT")
    assert expand(argv) == ["/opt/pytorch/bin/python", "-m"]
