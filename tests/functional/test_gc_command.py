"""`gpucost gc` as it is typed, where nothing can be swept: one clear message, the next action, an exit code."""

from __future__ import annotations

import json
import sys

import pytest

from launcher import cli


@pytest.fixture
def gc(tmp_path, monkeypatch, capsys):
    """Runs the command with a home of its own; exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUCOST_HOME", str(tmp_path / "home"))

    def run(*argv):
        monkeypatch.setattr(sys, "argv", ["gpucost", "gc", *argv])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return end.value.code, out, err

    return run


@pytest.mark.parametrize("more", [(), ("--yes",)], ids=["look", "remove"])
def test_without_credentials_there_is_one_error_and_what_to_do(gc, more):
    code, out, err = gc(*more)
    assert (code, out) == (5, "")
    assert "error: there are no usable AWS credentials" in err
    assert "  try: set AWS_PROFILE" in err


def test_a_profile_that_does_not_exist_is_named(gc):
    code, _, err = gc("--profile", "nobodys")
    assert code == 5
    assert "nobodys" in err


def test_without_credentials_the_document_is_an_error(gc):
    code, out, _ = gc("--json")
    assert code == 5
    assert json.loads(out)["kind"] == "error"


def test_an_embedded_cloud_that_does_not_run_is_not_started_to_be_swept(gc, tmp_path):
    code, out, _ = gc("--cloud", "sandbox", "--yes")
    assert code == 0
    assert "the embedded cloud is not running" in out
    assert not (tmp_path / "home" / "sandbox").exists()
    code, out, err = gc("--cloud", "sandbox", "--json")
    document = json.loads(out)
    assert (code, document["kind"], document["running"], document["items"]) == (0, "gc", False, [])
    assert "not running" in err


@pytest.mark.parametrize("output", ["gs://team/runs", "team/runs", "s3://", "s3:///runs", ""])
def test_a_place_that_is_no_s3_url_is_refused(gc, output):
    code, _, err = gc("--cloud", "sandbox", "--output", output)
    assert code == 2
    assert repr(output) in err
    assert "try: write --output s3://bucket/prefix" in err


def test_a_profile_means_nothing_to_the_embedded_cloud(gc):
    code, _, err = gc("--cloud", "sandbox", "--profile", "x")
    assert code == 2
    assert "--profile is for --cloud aws" in err


def test_a_cloud_on_which_nothing_can_be_started_cannot_be_swept(gc):
    assert gc("--cloud", "gcp")[0] == 2
