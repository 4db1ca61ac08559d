"""Wanted units come to life and are let go again; the clock is an argument."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime

import pytest

pytest.importorskip("asyncssh")

from launcher.sandbox.rootfs import Root
from launcher.sandbox.services import Services

DUE = datetime(2026, 12, 1, 2, 30, tzinfo=UTC).timestamp()


class Fixture:
    """The units of a root directory, with starts recorded instead of done."""

    def __init__(self, root):
        self.root = Root(root)
        self.root.make()
        self.started = []
        self.said = []
        self.ends = []
        self.loop = asyncio.new_event_loop()
        self.services = Services(self.root, self.start, self.said.append)

    def start(self, argv):
        self.started.append(argv)
        end = self.loop.create_future()
        self.ends.append(end)
        return type("Child", (), {"pid": 2**30})(), end

    def unit(self, name, text):
        (self.root.units / name).write_text(text)

    def want(self, name):
        (self.root.wishes / name).touch()


@pytest.fixture
def machine(tmp_path):
    one = Fixture(tmp_path / "root")
    one.unit("d.service", "[Service]\nExecStart=/sbin/shutdown -h now\n")
    one.unit("d.timer", "[Timer]\nOnCalendar=2026-12-01 02:30:00 UTC\nPersistent=true\n")
    yield one
    one.loop.close()


def test_a_timer_starts_its_service_at_its_time_and_once(machine):
    machine.want("d.timer")
    machine.services.tick(DUE - 1)
    assert machine.started == []
    machine.services.tick(DUE)
    machine.services.tick(DUE + 1)
    assert machine.started == [[str(machine.root.commands / "shutdown"), "-h", "now"]]


def test_a_stopped_timer_does_nothing(machine):
    machine.want("d.timer")
    machine.services.tick(DUE - 1)
    (machine.root.wishes / "d.timer").unlink()
    machine.services.tick(DUE + 1)
    assert machine.started == []


def test_a_time_already_past_when_a_timer_is_first_armed_is_not_made_up_for(machine):
    machine.want("d.timer")
    machine.services.tick(DUE + 1)
    assert machine.started == []


def test_a_persistent_timer_makes_up_at_boot_for_the_time_it_was_off(machine):
    (machine.root.stamps / "stamp-d.timer").touch()
    os.utime(machine.root.stamps / "stamp-d.timer", (DUE - 60, DUE - 60))
    wants = machine.root.units / "timers.target.wants"
    wants.mkdir()
    (wants / "d.timer").symlink_to(machine.root.units / "d.timer")
    machine.services.boot()
    machine.services.tick(DUE + 600)
    assert len(machine.started) == 1


def test_at_boot_only_enabled_units_are_wanted(machine):
    machine.want("d.service")
    machine.root.shutdown.write_text("1")
    machine.services.boot()
    machine.services.tick(DUE - 1)
    assert machine.started == []
    assert not machine.root.shutdown.exists()


def test_a_service_that_ended_is_inactive_and_can_be_started_again(machine):
    machine.want("d.service")
    machine.services.tick(0)
    machine.services.tick(1)
    assert len(machine.started) == 1
    machine.ends[0].set_result(4)
    machine.services.tick(2)
    assert machine.said == ["[sandbox] d.service ended with exit code 4"]
    assert not (machine.root.wishes / "d.service").exists()
    machine.want("d.service")
    machine.services.tick(3)
    assert len(machine.started) == 2


def test_what_is_not_understood_shows_on_the_console_once(machine):
    machine.unit("bad.timer", "[Timer]\nOnCalendar=daily\n")
    machine.want("bad.timer")
    machine.services.tick(0)
    machine.services.tick(1)
    (said,) = machine.said
    assert said.startswith("[sandbox] timer refused: bad.timer: OnCalendar=daily: only `YYYY-MM-DD HH:MM:SS UTC`")
