"""`gpucost sandbox down`: what only the embedded cloud has is not given up without a word."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner
from run_cases import RUN_ID, SAMPLES, STRAIGHT, opened

from launcher import embedded
from launcher.cli.sandbox import sandbox_command
from launcher.errors import BadInput
from launcher.events import Cancelled, LeaseClosed, Outcome, Settled
from launcher.home import Home

CANCELLED = (SAMPLES[Cancelled], SAMPLES[LeaseClosed], replace(SAMPLES[Settled], outcome=Outcome.CANCELLED))


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """How often the cloud was ended."""
    monkeypatch.setenv("GPUCOST_HOME", str(tmp_path))
    calls = []
    monkeypatch.setattr(embedded, "take_down", calls.append)
    return calls


def run_with(folder, events):
    journal = Home(folder).run(RUN_ID).journal
    for event in (opened(cloud="sandbox"), *STRAIGHT[1:5], *events):
        journal.append(event)


def test_checkpoints_of_a_stopped_run_are_not_removed_where_nobody_can_be_asked(tmp_path, ended):
    run_with(tmp_path, CANCELLED)
    found = CliRunner().invoke(sandbox_command, ["down"])
    assert isinstance(found.exception, BadInput)
    assert "the checkpoints of 1 stopped run are nowhere else" in str(found.exception)
    assert "--force" in found.exception.hint
    assert f"gpucost resume {RUN_ID}" in found.exception.hint
    assert ended == []


def test_force_gives_them_up_and_says_so(tmp_path, ended):
    run_with(tmp_path, CANCELLED)
    found = CliRunner().invoke(sandbox_command, ["down", "--force"])
    assert "1 stopped run can no longer be resumed" in found.output
    assert len(ended) == 1


def test_a_run_that_is_done_keeps_nothing_up(tmp_path, ended):
    run_with(tmp_path, STRAIGHT[5:])
    assert CliRunner().invoke(sandbox_command, ["down"]).exit_code == 0
    assert len(ended) == 1


def test_a_run_whose_machine_goes_with_it_is_named_with_what_closes_its_account(tmp_path, ended):
    run_with(tmp_path, ())
    found = CliRunner().invoke(sandbox_command, ["down"])
    assert "needs the embedded cloud" in str(found.exception)
    found = CliRunner().invoke(sandbox_command, ["down", "--force"])
    assert f"the machine of {RUN_ID} went with it: `gpucost stop {RUN_ID}` closes its account" in found.output


def test_a_run_whose_records_cannot_be_read_is_named_and_does_not_keep_the_cloud_up_for_ever(tmp_path, ended):
    run_with(tmp_path, CANCELLED)
    journal = Home(tmp_path).run(RUN_ID).journal
    journal.path.write_text("torn" + journal.path.read_text())
    found = CliRunner().invoke(sandbox_command, ["down"])
    assert f"the records of run {RUN_ID} cannot be read" in str(found.exception)
    assert f"gpucost stop {RUN_ID}" in found.exception.hint
    assert ended == []
    assert CliRunner().invoke(sandbox_command, ["down", "--force"]).exit_code == 0
    assert len(ended) == 1


@pytest.mark.parametrize(("damaged", "ended"), [(False, 1), (True, 0)])
def test_the_last_user_does_not_end_the_cloud_of_a_run_that_cannot_be_read(tmp_path, monkeypatch, damaged, ended):
    """It may have a machine there."""
    calls = []
    monkeypatch.setattr(embedded.sandbox, "suspend", calls.append)
    monkeypatch.setattr(embedded.sandbox, "down", calls.append)
    run_with(tmp_path, CANCELLED)
    journal = Home(tmp_path).run(RUN_ID).journal
    if damaged:
        journal.path.write_text(journal.path.read_text().replace("InstanceReady", "InstanceRaedy"))
    embedded.SandboxUse(None, Home(tmp_path), (tmp_path / "users.lock").open("a")).close()
    assert len(calls) == ended
