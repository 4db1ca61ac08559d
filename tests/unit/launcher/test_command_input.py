"""Flags and files that cannot be used end in a sentence, not in a traceback."""

from __future__ import annotations

import logging

import pytest
from click.testing import CliRunner

from launcher.cli.common import _log_to, overrides
from launcher.cli.report import report_command
from launcher.cli.sandbox import sandbox_command
from launcher.errors import BadInput
from launcher.home import Home


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUCOST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def bare_log(monkeypatch):
    """Logging as it is in a new process."""
    monkeypatch.setattr(logging.root, "handlers", [])
    yield
    for handler in logging.root.handlers:
        handler.close()


@pytest.mark.parametrize(
    ("given", "read"), [("8", 8), ("\u00b2", "\u00b2"), ("\u0663", "\u0663"), ("auto", "auto"), ("-1", "-1")]
)
def test_only_plain_digits_are_a_batch(given, read):
    assert overrides({"batch": given}) == {"batch": read}


def test_a_log_that_cannot_be_written_stops_no_command(tmp_path, bare_log):
    (tmp_path / "gpucost.log").mkdir()
    _log_to(Home(tmp_path))
    logging.getLogger("x").warning("goes nowhere")


@pytest.mark.parametrize("name", ["", "folder"])
@pytest.mark.parametrize("option", ["--csv", "--output"])
def test_a_report_into_what_is_no_file_is_refused(home, tmp_path, monkeypatch, option, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    found = CliRunner().invoke(report_command, [option, name])
    assert isinstance(found.exception, BadInput)
    assert "is no file name" in str(found.exception)


@pytest.mark.parametrize("other", [["--json"], ["--format", "json"], ["--output", "g"]])
def test_a_report_in_two_forms_at_once_is_refused(home, tmp_path, other):
    found = CliRunner().invoke(report_command, ["--csv", str(tmp_path / "f"), *other])
    assert found.exit_code == 2
    assert "cannot be combined" in found.output
    assert not (tmp_path / "f").exists()


def test_a_report_that_fails_leaves_no_half_file(home, tmp_path):
    found = CliRunner().invoke(report_command, ["--csv", str(tmp_path / "none" / "f")])
    assert isinstance(found.exception, BadInput)
    assert "cannot be written" in str(found.exception)


@pytest.mark.parametrize("notice", ["-5", "nan", "inf"])
def test_a_notice_before_now_is_refused(home, notice):
    found = CliRunner().invoke(sandbox_command, ["interrupt", "--notice", notice])
    assert found.exit_code == 2
    assert "--notice" in found.output
