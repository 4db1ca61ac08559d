"""Seeded schedules of everything that goes wrong, several at a time, with the invariants measured on the cloud itself.

`GPUCOST_SCHEDULES=20000 pytest -s tests/functional/test_fault_schedules.py` plays as many as the design asks for.
"""

from __future__ import annotations

import os
import sys
import time

import pytest
from fault_schedules import Played, made, play, play_all, summary
from schedule_faults import FAULTS

SCHEDULES = int(os.environ.get("GPUCOST_SCHEDULES", "2000"))
SEVERAL = 40


@pytest.mark.timeout(3600)
def test_whatever_goes_wrong_money_and_work_are_safe_and_nothing_is_left():
    begun = time.monotonic()
    played = play_all(SCHEDULES)
    failed = [one for one in played if one.failure]
    sys.stdout.write(f"\n{summary(played, time.monotonic() - begun)}\n")
    assert not failed, "\n\n".join(map(str, failed[:10]))
    assert len(played) == SCHEDULES


def test_a_schedule_is_played_the_same_way_each_time(tmp_path):
    for seed in range(SEVERAL):
        assert play(seed, tmp_path / f"{seed} first") == play(seed, tmp_path / f"{seed} again")


def test_every_fault_comes_up(tmp_path):
    drawn = {fault for seed in range(10 * SEVERAL) for fault in made(seed, tmp_path / str(seed)).drawn}
    assert drawn == set(FAULTS)


def test_a_failing_schedule_is_told_with_its_seed_its_faults_and_how_to_play_it_again():
    told = str(Played(4711, faults=("machine gone at 12 s",), failure="AssertionError: two machines at one time"))
    assert "seed 4711" in told
    assert "machine gone at 12 s" in told
    assert "two machines at one time" in told
    assert told.endswith("python tests/fakes/fault_schedules.py 4711")
