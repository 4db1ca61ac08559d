"""Finding processes by tree and by mark, and ending them."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import pytest

from launcher.sandbox import processes
from launcher.sandbox.processes import MARK, Process

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc of Linux")


def tree(*lines):
    return {pid: Process(pid, parent, state) for pid, parent, state in lines}


TABLE = tree((1, 0, "S"), (10, 1, "S"), (11, 10, "S"), (12, 11, "R"), (13, 11, "Z"), (20, 1, "S"))


def test_descendants_are_all_below_and_alive():
    assert processes.descendants(10, TABLE) == {11, 12}
    assert processes.descendants(20, TABLE) == set()


def test_ancestors_lead_up_to_init():
    assert processes.ancestors(12, TABLE) == {11, 10, 1}


@pytest.fixture
def sleeper():
    mark = f"test-{uuid.uuid4().hex}"
    child = subprocess.Popen(
        ["sh", "-c", "echo; exec sleep 60"],
        env={MARK: f"{mark}/i-1", "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    child.stdout.readline()  # it has its own environment by now
    yield mark, child
    child.stdout.close()
    child.kill()
    child.wait()


def test_a_mark_is_matched_whole_or_as_a_folder(sleeper):
    mark, child = sleeper
    assert processes.marked(mark) == {child.pid}
    assert processes.marked(f"{mark}/i-1") == {child.pid}
    assert processes.marked(f"{mark}/i") == set()
    assert processes.marked(mark[:-1]) == set()


def test_ending_by_mark_ends_all_and_reaps_its_own_children(sleeper):
    mark, child = sleeper
    assert processes.end_marked(mark, limit_seconds=5) == set()
    assert not processes.alive(child.pid)


def test_this_process_is_never_found(monkeypatch):
    mark = f"test-{uuid.uuid4().hex}"
    probe = (
        "import os; from launcher.sandbox import processes as p; "
        f"print(p.marked('{mark}'), len(p.ancestors(os.getpid(), p.table())) > 0)"
    )
    environment = {**os.environ, MARK: mark, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set() True\n"
