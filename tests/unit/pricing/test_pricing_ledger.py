"""Ledger entries and their totals."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from pricing.cost import cost_lines, total
from pricing.ledger import EndedBy, LeaseInterval, ledger_entry, totals
from tests.fakes.pricing_cases import RATES, offer, spot

START = datetime(2026, 12, 1, 12, tzinfo=UTC)


def lease(seconds: float, name: str = "lease-1", ended_by: EndedBy = EndedBy.US) -> LeaseInterval:
    return LeaseInterval(name, "run-1", START, START + timedelta(seconds=seconds), ended_by)


def test_an_entry_charges_the_interval_by_the_rule_of_the_provider():
    entry = ledger_entry(offer("0.526"), lease(30.5), 100, RATES, estimate_usd=Decimal("0.02"))
    assert entry.billed_seconds == 60
    assert entry.usd == total(cost_lines(offer("0.526"), 30.5, 100, RATES)) == total(entry.lines)
    assert entry.estimate_usd == Decimal("0.02")


def test_a_spot_machine_taken_back_in_its_first_hour_pays_disk_and_address_only():
    entry = ledger_entry(spot("0.2"), lease(1800, ended_by=EndedBy.PROVIDER), 100, RATES)
    assert entry.usd == pytest.approx(entry.lines[1].usd + entry.lines[2].usd, rel=Decimal("1e-24"))
    assert ledger_entry(spot("0.2"), lease(1800), 100, RATES).usd > entry.usd


def test_a_lease_that_ends_before_it_starts_is_refused():
    with pytest.raises(ValueError, match="lease lease-1 ends before it starts"):
        ledger_entry(offer(), lease(-1), 100, RATES)


def test_a_lease_recorded_twice_counts_once():
    first = ledger_entry(offer(), lease(3600), 100, RATES)
    second = ledger_entry(offer(), lease(7200, "lease-2"), 100, RATES)
    sums = totals([first, second, first])
    assert (sums.leases, sums.billed_seconds, sums.usd) == (2, 10800, first.usd + second.usd)


def test_two_different_entries_of_one_lease_are_an_error():
    entry = ledger_entry(offer(), lease(3600), 100, RATES)
    with pytest.raises(ValueError, match="two different entries for lease lease-1"):
        totals([entry, replace(entry, usd=Decimal(5))])
