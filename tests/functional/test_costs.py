"""What a whole run is charged for beside its machines, and that the cap counts it."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest
from launcher_world import DEMAND_EAST, SPOT_EAST, SPOT_WEST, World
from pricing_cases import FULL_RATES

from launcher.accounts import csv_text
from launcher.events import Outcome
from launcher.render import show_receipt
from pricing.cost import total

MACHINE = ["g4dn.xlarge on-demand", "disk", "public IPv4 address"]
OBJECTS = ["objects kept 30 days", "write requests", "read requests", "download of the results"]


def world(folder, bucket_region, offers=(DEMAND_EAST,)):
    return World(folder, offers=offers, rates=FULL_RATES, bucket_region=bucket_region)


def kinds(lines):
    return [line.what.split(",")[0] for line in lines]


def test_a_run_beside_its_bucket_pays_for_its_objects_and_for_no_traffic(tmp_path):
    made = world(tmp_path, "us-east-1")
    run_id = made.open()
    run = made.drive(run_id)
    made.check(run_id)
    assert kinds(run.entries[0].lines) == MACHINE
    assert kinds(run.storage) == OBJECTS
    receipt = show_receipt(run)
    assert all(f"    {kind}" in receipt for kind in MACHINE + OBJECTS)


def test_a_run_that_was_stopped_pays_for_the_results_that_its_last_sync_left(tmp_path):
    made = world(tmp_path, "us-east-1")
    run_id = made.open()
    made.clock.at(250, made.signal)
    run = made.drive(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert (made.folder / "runs/job/best.pt").exists()
    assert kinds(run.storage) == OBJECTS


def test_a_machine_in_another_region_than_the_bucket_pays_for_what_it_moves(tmp_path):
    made = world(tmp_path, "us-west-2")
    run_id = made.open()
    run = made.drive(run_id)
    made.check(run_id)
    assert kinds(run.entries[0].lines) == [*MACHINE, "data set from us-west-2", "checkpoints to us-west-2"]


def test_traffic_that_the_agent_counted_is_charged_as_counted(tmp_path):
    made = world(tmp_path, "us-west-2")
    made.script.uploads = 3 * 10**9
    run = made.drive(made.open())
    fetched, stored = run.entries[0].lines[-2:]
    assert (fetched.what, fetched.quantity) == ("data set from us-west-2", Decimal("1.5"))
    assert (stored.what, stored.quantity) == ("checkpoints to us-west-2", Decimal(3))


def test_each_machine_of_a_preempted_run_fetches_the_data_again(tmp_path):
    made = world(tmp_path, "eu-west-1", offers=(SPOT_EAST, SPOT_WEST))
    run_id = made.open()
    made.lose_at(200)
    run = made.drive(run_id)
    made.check(run_id, late_seconds=45)
    fetched = [line for entry in run.entries for line in entry.lines if line.what.startswith("data set")]
    assert len(fetched) == 2
    assert fetched[1].quantity > fetched[0].quantity, "and its checkpoint"


def test_the_report_adds_up_to_what_the_receipt_says(tmp_path):
    made = world(tmp_path, "us-west-2")
    run = made.drive(made.open())
    rows = list(csv.DictReader(io.StringIO(csv_text([run]))))
    assert [row["lease_id"] for row in rows] == [f"{run.run_id}-1", f"{run.run_id}/storage"]
    assert sum(Decimal(row["usd"]) for row in rows) == run.spent_usd


@pytest.mark.parametrize("region", [None, "us-east-1", "us-west-2"])
@pytest.mark.parametrize("budget", ["0.1", "0.12", "0.2"])
def test_the_cap_holds_for_all_of_it_when_training_takes_far_longer_than_planned(tmp_path, region, budget):
    made = world(tmp_path, region)
    made.script.epoch = 900
    run_id = made.open(budget=budget, epochs=4)
    run = made.drive(run_id)
    made.check(run_id)
    assert run.outcome is Outcome.BUDGET
    assert run.spent_usd <= Decimal(budget)
    assert total(run.storage) > 0
