"""A launcher in the background, as a process of its own."""

from __future__ import annotations

import pytest

from launcher import detaching
from launcher.cli import jobs
from launcher.clock import SystemClock
from launcher.context import Context
from launcher.errors import BadInput
from launcher.home import Home

STRANGER = "from pathlib import Path\nPath('executed').touch()\nraise SystemExit(0)\n"


@pytest.mark.parametrize("name", ["launcher/__init__.py", "click.py", "json.py"])
def test_nothing_in_the_users_folder_is_executed_in_place_of_our_modules(tmp_path, name):
    home, work_dir = Home(tmp_path / "home"), tmp_path / "work"
    home.run("no-such-run").root.mkdir(parents=True)
    (work_dir / name).parent.mkdir(parents=True)
    (work_dir / name).write_text(STRANGER)
    with pytest.raises(BadInput):
        detaching.supervise("no-such-run", Context(home, SystemClock(), lambda _update: None, work_dir))
    assert not (work_dir / "executed").exists()
    assert "there is no run here yet" in home.run("no-such-run").supervisor_log.read_text()


def test_an_interrupt_while_it_starts_says_that_the_run_may_go_on(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(detaching, "supervise", interrupted)
    context = Context(Home(tmp_path), SystemClock(), lambda _update: None, tmp_path)
    assert jobs._go_on_detached("a-run", context, as_json=False) == 130
    assert "`gpucost stop a-run` ends it" in capsys.readouterr().err
