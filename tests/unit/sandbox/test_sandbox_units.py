"""The part of systemd that the instances of the sandbox have."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from launcher.sandbox.units import Timer, UnitError, missed, parse_calendar, parse_service, parse_timer

DUE = datetime(2026, 12, 1, 2, 30, tzinfo=UTC).timestamp()
TIMER = """\
[Unit]
Description=x
[Timer]
# OnCalendar=daily
OnCalendar=2026-12-01 02:30:00 UTC
Persistent=true
"""


def test_a_timer_names_its_service_and_its_time():
    assert parse_timer("a.timer", TIMER) == Timer("a.timer", "a.service", DUE, persistent=True)
    assert parse_timer("a.timer", TIMER + "Unit=b.service\n").service == "b.service"


@pytest.mark.parametrize(
    "text", ["2026-12-01 02:30:00 UTC", "2026-12-01 02:30", "2026-12-01T02:30:00Z", "Tue 2026-12-01 02:30:00 UTC"]
)
def test_absolute_times_are_utc(text):
    assert parse_calendar(text, "a.timer") == DUE


@pytest.mark.parametrize(
    "text", ["daily", "*-*-* 02:30:00", "2026-13-01 00:00:00", "2026-12-01 02:30:00 Europe/Berlin"]
)
def test_any_other_calendar_is_refused_by_name(text):
    with pytest.raises(UnitError, match=r"a\.timer: OnCalendar="):
        parse_calendar(text, "a.timer")


def test_a_timer_without_a_calendar_is_refused():
    with pytest.raises(UnitError, match="only OnCalendar="):
        parse_timer("a.timer", "[Timer]\nOnBootSec=5\n")


def test_a_service_is_its_exec_line():
    assert parse_service("a.service", "[Service]\nExecStart=-/sbin/shutdown -h 'now'\n").argv == (
        "/sbin/shutdown",
        "-h",
        "now",
    )
    with pytest.raises(UnitError, match="no ExecStart="):
        parse_service("a.service", "[Service]\nType=oneshot\n")
    with pytest.raises(UnitError, match="No closing quotation"):
        parse_service("a.service", "[Service]\nExecStart=echo 'x\n")


@pytest.mark.parametrize(
    ("persistent", "last", "expected"),
    [(True, DUE - 60, True), (False, DUE - 60, False), (True, None, False), (True, DUE + 1, False)],
)
def test_a_time_missed_while_off_counts_only_for_a_persistent_timer_armed_before(persistent, last, expected):
    timer = Timer("a.timer", "a.service", DUE, persistent)
    assert missed(timer, last, DUE + 5) is expected
    assert missed(timer, last, DUE - 5) is False
