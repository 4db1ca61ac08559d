"""For all tests: no SDK looks for a metadata service or for anybody's keys; and the command, as it is typed."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _no_real_cloud(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    nowhere = str(tmp_path_factory.getbasetemp() / "no-such-file")
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", nowhere)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)


@pytest.fixture
def gpucost(tmp_path, monkeypatch, capsys):
    """Runs a command in a folder of its own; exit code, standard output, standard error."""
    from launcher import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUCOST_HOME", str(tmp_path / "home"))

    def run(*argv):
        monkeypatch.setattr(sys, "argv", ["gpucost", *argv])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return end.value.code, out, err

    return run
