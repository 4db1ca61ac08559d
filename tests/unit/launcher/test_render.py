"""What people and spreadsheets read, line by line."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pricing_cases
import pytest
from pricing_cases import FULL_RATES, T4_METAL, spot
from run_cases import ELSEWHERE, RUN_ID, SAMPLES, checkpoint, entry, fold, later, launch, opened, run_in

from launcher.accounts import COLUMNS, csv_text, row_count, table_text, total_usd, write_whole
from launcher.events import (
    Cancelled,
    CheckpointSynced,
    DataStaged,
    InstanceCreated,
    InstanceReady,
    LeaseClosed,
    Outcome,
    Preempted,
    Replanned,
    Settled,
)
from launcher.limits import storage_lines
from launcher.render import show_agent, show_cap, show_plan, show_receipt, show_runs, show_status, table
from launcher.run import State
from pricing.ledger import EndedBy
from pricing.offers import Policy
from remote.protocol import AgentStatus, Phase, TaskProgress, TaskState, TaskStatus

GOLDEN = Path(__file__).parents[2] / "golden"


def golden(name):
    """What is expected, as a file, without its last newline."""
    return (GOLDEN / name).read_text(encoding="utf-8").removesuffix("\n")


def preempted_run():
    """Two machines: one taken back early, one ended by the user."""
    second = replace(entry(2), region="us-west-2", zone="usw2-az1")
    kinds = (InstanceCreated, InstanceReady, DataStaged, CheckpointSynced, Preempted)
    return fold(
        [
            opened(),
            launch(1),
            *(SAMPLES[kind] for kind in kinds),
            LeaseClosed(at=later(500), entry=entry(1, ended_by=EndedBy.PROVIDER)),
            SAMPLES[Replanned],
            launch(2, selection=ELSEWHERE),
            SAMPLES[Cancelled],
            LeaseClosed(at=later(900), entry=second),
            replace(SAMPLES[Settled], outcome=Outcome.CANCELLED, message="interrupted (SIGINT)"),
        ]
    )


def stored_run():
    """The same with its objects, of which some lie in another region than the second machine."""
    run = preempted_run()
    run = replace(run, opened=replace(run.opened, storage_region="us-east-1"), artifact_bytes=5 * 10**8)
    return replace(run, storage=storage_lines(run, FULL_RATES))


def status(*tasks):
    return AgentStatus(
        RUN_ID, f"{RUN_ID}-1", Phase.TRAINING, later(170).timestamp(), later(100).timestamp(), 7, list(tasks)
    )


TRAINING = TaskStatus(
    "job",
    TaskState.RUNNING,
    1,
    progress=TaskProgress(3, 10, 33, 100, 41.26, loss=1.23456, map50=0.4321),
)


def test_the_receipt_shows_each_line_of_each_machine_and_estimate_against_actual():
    assert show_receipt(stored_run()) == golden("receipt.txt")


def test_a_training_that_ended_early_is_named_in_receipt_and_status():
    done = replace(run_in(State.SETTLED), checkpoints=(checkpoint(7),))
    words = "ended early: job after epoch 7 of 100, no better (patience)"
    assert f"  {words}" in show_receipt(done).splitlines()
    assert f"         {words}" in show_status(done, None, now=later(999), usd=Decimal(0), driver="").splitlines()
    patient = replace(done.opened, job=done.opened.job | {"trainer": done.opened.job["trainer"] | {"patience": 20}})
    assert "no better for 20 epochs" in show_receipt(replace(done, opened=patient))
    for other in (replace(done, checkpoints=(checkpoint(100),)), replace(done, outcome=Outcome.CANCELLED)):
        assert "ended early" not in show_receipt(other)


def test_objects_without_a_machine_are_not_called_nothing():
    run = replace(stored_run(), entries=())
    assert "nothing was paid for" not in show_receipt(run)
    assert "  no machine ever ran" in show_receipt(run).splitlines()


def test_a_receipt_without_a_machine_says_that_nothing_was_paid():
    run = fold([opened(budget_usd=None), SAMPLES[Cancelled], replace(SAMPLES[Settled], outcome=Outcome.CANCELLED)])
    lines = show_receipt(run).splitlines()
    assert "  nothing was paid for: no machine ever ran" in lines
    assert "  total: $0.0000" in lines
    assert not [line for line in lines if "confirmed gone" in line]


def test_a_run_that_still_stops_is_not_called_gone():
    run = replace(run_in(State.STOPPING), entries=(entry(1),))
    assert "confirmed gone" not in show_receipt(run)


def test_runs_are_listed_in_columns():
    runs = [run_in(State.TRAINING), preempted_run(), run_in(State.SETTLED, budget_usd=None)]
    assert show_runs([(run, run.spent_usd) for run in runs]) == golden("runs.txt")


def test_the_status_of_a_run_that_trains_says_who_drives_it_and_until_when():
    shown = show_status(
        run_in(State.TRAINING), status(TRAINING), now=later(180), usd=Decimal("0.0123"), driver="process 4242"
    )
    assert shown == golden("status.txt")


def test_the_status_says_what_a_preemption_would_cost_and_how_often_is_saved():
    run = replace(run_in(State.TRAINING), checkpoints=(checkpoint(2),))
    progress = replace(TRAINING.progress, checkpoint_seconds=250.0)
    shown = show_status(run, status(replace(TRAINING, progress=progress)), now=later(180), usd=Decimal(1), driver="x")
    assert "(13 steps since the last checkpoint, one each 4 min 10 s)" in shown


def test_a_machine_past_its_time_is_said_to_be_and_how_to_confirm_its_end():
    shown = show_status(run_in(State.TRAINING), None, now=later(3720), usd=Decimal(1), driver="nobody")
    assert "UTC (2 min 00 s ago; budget)" in shown
    assert f"nobody has confirmed its end: `gpucost stop {RUN_ID}` does" in shown


def test_a_run_without_a_launcher_shows_how_to_go_on():
    shown = show_status(run_in(State.PROVISIONING), None, now=later(70), usd=Decimal(0), driver="nobody; go on")
    assert "machine  asked for aws/us-east-1/use1-az1/g4dn.xlarge/spot" in shown
    assert "driven   by nobody; go on" in shown
    assert "agent" not in shown


def test_a_settled_run_shows_its_last_words_and_results_but_no_machine():
    shown = show_status(
        run_in(State.SETTLED), status(TRAINING), now=later(999), usd=Decimal("0.04"), driver="nobody; go on"
    )
    assert [line.split()[0] for line in shown.splitlines()] == ["run", "state", "saved", "spent", "last", "results"]


def test_a_run_that_ended_early_shows_how_to_go_on():
    run = replace(run_in(State.SETTLED), outcome=Outcome.DEADLINE)
    shown = show_status(run, None, now=later(999), usd=Decimal("0.04"), driver="nobody; go on")
    assert shown.splitlines()[-1] == f"go on    gpucost resume {RUN_ID}"
    shown = show_status(
        replace(run, outcome=Outcome.BUDGET), None, now=later(999), usd=Decimal(0), driver="nobody; go on"
    )
    assert shown.splitlines()[-1].startswith(f"go on    gpucost resume {RUN_ID} --budget +")


def test_the_progress_of_several_trainings_is_told_apart():
    other = replace(TRAINING, name="b", progress=TaskProgress(1, 5, 10, 50, 9.0))
    waiting = TaskStatus("c")
    assert show_agent(status(TRAINING, other, waiting)) == (
        "training  job: epoch 3/10  41.3 images/s  loss 1.235  mAP50 0.432  b: epoch 1/5  9.0 images/s"
    )


OFFERS = [
    pricing_cases.offer("0.526"),
    spot("0.2", 0.05),
    pricing_cases.offer("0.6", region="eu-west-1"),
    pricing_cases.offer("9", instance=T4_METAL),
    replace(pricing_cases.offer("0.5"), usd_per_hour=Decimal(0)),
]


def test_a_plan_shows_the_ranking_the_reasons_and_the_choice():
    policy = Policy(storage_region="us-east-1")
    assert show_plan(pricing_cases.plan(OFFERS, policy, rates=FULL_RATES)) == golden("plan.txt")


def test_a_long_plan_says_how_many_more_fit():
    assert "... and 2 more that fit" in show_plan(pricing_cases.plan(OFFERS), rows=1).splitlines()


@pytest.mark.parametrize(
    ("budget", "seconds", "text"),
    [
        (Decimal(5), 3600, "at most $5.00, done within 1 h 00 min"),
        (Decimal(5), None, "at most $5.00"),
        (None, None, "NO BUDGET: the machine ends at twice the plan's p90"),
    ],
)
def test_the_cap_is_one_line(budget, seconds, text):
    assert show_cap(budget, seconds) == text


def test_a_table_is_as_wide_as_its_widest_cell_and_ends_without_blanks():
    assert table(("a", "long"), [("1", "x"), ("22", "")], right=frozenset({0})).splitlines() == [
        " a  long",
        " 1  x",
        "22",
    ]


FROZEN = (
    "lease_id,run_id,name,cloud,provider,region,zone,instance_type,gpu,gpu_count,market,usd_per_hour,"
    "started_at,ended_at,billed_seconds,usd,estimate_usd,outcome,basis"
)


def test_the_columns_of_the_ledger_are_a_contract():
    """Other people's spreadsheets read them; a new one goes to the end."""
    assert ",".join(COLUMNS) == FROZEN


def test_the_ledger_has_one_row_for_each_machine_and_the_objects_with_money_in_full():
    assert csv_text([stored_run()]) == golden("report.csv") + "\n"
    assert row_count([stored_run(), preempted_run()]) == 5


def test_the_rows_of_the_ledger_add_up_to_its_total():
    rows = list(csv.DictReader(io.StringIO(csv_text([stored_run(), preempted_run()]))))
    assert sum(Decimal(row["usd"]) for row in rows) == total_usd([stored_run(), preempted_run()])
    assert {row["lease_id"] for row in rows if row["basis"].startswith("rates")} == {f"{RUN_ID}/storage"}


def test_the_ledger_of_nothing_is_its_header():
    assert csv_text([run_in(State.TRAINING)]) == FROZEN + "\n"
    assert table_text([run_in(State.TRAINING)]) == "nothing was paid for yet\n"


def test_the_table_of_costs_ends_with_the_total():
    assert table_text([stored_run()]) == golden("report.txt") + "\n"
    assert total_usd([stored_run()]) == stored_run().spent_usd > preempted_run().spent_usd


def test_a_report_replaces_its_file_whole(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("older and much longer than what comes")
    write_whole(path, "new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("costs.csv", "new")]


def test_a_narrow_terminal_gets_the_plan_without_its_ranges():
    lines = show_plan(pricing_cases.plan(OFFERS), width=80).splitlines()
    assert "range" not in lines[0]
    assert max(len(line) for line in lines[:3]) <= 80


def test_a_plan_whose_best_offer_cannot_be_started_names_the_best_that_can():
    plan = pricing_cases.plan(OFFERS)
    assert "starts no machines" not in show_plan(plan, startable=[plan.chosen.offer.provider])
    text = show_plan(plan, startable=["elsewhere"])
    assert f"note:   gpucost starts no machines on {plan.chosen.offer.provider} yet, and nothing that fits" in text


def test_in_a_narrow_line_loss_gives_way_before_speed_and_speed_before_the_score():
    progress = TaskProgress(1, 9, 1, 9, 20.0, loss=4.5, map50=0.4)
    status = AgentStatus("r", "l", Phase.TRAINING, 0.0, 0.0, 1, [TaskStatus("a", TaskState.RUNNING, progress=progress)])
    assert show_agent(status, 80) == "training  epoch 1/9  20.0 images/s  loss 4.500  mAP50 0.400"
    assert show_agent(status, 50) == "training  epoch 1/9  20.0 images/s  mAP50 0.400"
    assert show_agent(status, 40) == "training  epoch 1/9  mAP50 0.400"
    assert show_agent(status, 5) == "training  epoch 1/9"


def test_a_report_goes_where_a_link_points_and_into_what_is_no_file(tmp_path):
    (tmp_path / "link.csv").symlink_to(tmp_path / "target.csv")
    write_whole(tmp_path / "link.csv", "rows")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "target.csv").read_text() == "rows"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "rows")
    assert os.read(reader, 100) == b"rows"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
