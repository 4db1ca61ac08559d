"""Signals raise inside a step, and only count outside of one."""

from __future__ import annotations

import signal
from contextlib import contextmanager

import pytest

from launcher.interrupts import ASKED, STOPPED, Interrupted, Interrupts

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def interrupts():
    made = Interrupts()
    with made.installed():
        yield made


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_inside_a_step_raises_there_with_its_name(interrupts, number):
    with pytest.raises(Interrupted, match=number.name), interrupts.raising():
        signal.raise_signal(number)
    assert interrupts.count == 1


def test_the_word_of_gpucost_stop_is_told_from_a_signal_of_the_terminal(interrupts):
    with pytest.raises(Interrupted, match=STOPPED), interrupts.raising():
        signal.raise_signal(ASKED)


def test_a_signal_outside_of_a_step_waits_for_the_next_one(interrupts):
    signal.raise_signal(signal.SIGINT)
    entered = False
    with pytest.raises(Interrupted), interrupts.raising():
        entered = True
    assert not entered


def test_a_signal_raises_once(interrupts):
    with pytest.raises(Interrupted), interrupts.raising():
        signal.raise_signal(signal.SIGINT)
    with interrupts.raising():
        pass


def test_a_second_signal_is_counted_and_raises_in_the_next_step(interrupts):
    with pytest.raises(Interrupted), interrupts.raising():
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    assert interrupts.count == 2
    with pytest.raises(Interrupted, match="SIGTERM"), interrupts.raising():
        pass


def test_while_an_interrupt_is_on_its_way_another_one_only_counts(interrupts):
    with pytest.raises(Interrupted), interrupts.raising(), once_more_at_the_end():
        signal.raise_signal(signal.SIGINT)
    assert interrupts.count == 2


@contextmanager
def once_more_at_the_end():
    """A step that cleans up, and is hit by a second signal while it does."""
    try:
        yield
    finally:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_is_no_ordinary_exception():
    """No `except Exception` of a step may swallow it."""
    assert not issubclass(Interrupted, Exception)


def test_the_handlers_from_before_come_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    made = Interrupts()
    with made.installed():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_hang_up_that_is_ignored_from_outside_stays_ignored():
    """`nohup gpucost train` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        made = Interrupts()
        with made.installed():
            signal.raise_signal(signal.SIGHUP)
            assert made.count == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupt_is_heard_even_where_a_shell_ignores_it_for_its_background():
    """`gpucost stop` sends it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        made = Interrupts()
        with made.installed():
            signal.raise_signal(signal.SIGINT)
        assert made.count == 1
    finally:
        signal.signal(signal.SIGINT, before)
