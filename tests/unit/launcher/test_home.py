"""Names on the user's machine: where the state is, and which run a user means."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from run_cases import opened

from launcher.errors import BadInput
from launcher.home import Home, find_home
from remote import protocol
from remote.protocol import AgentStatus, Phase

STATUS = AgentStatus("run", "run-1", Phase.TRAINING, 5.0, 1.0, 42)
IDS = [
    "20261201T090000-aaaa-first",
    "20261201T100000-bbbb-second",
    "20261202T090000-cccc-first",
    "20261203T090000-dddd-with-dashes",
]


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path)
    for run_id in reversed(IDS):
        made.run(run_id).journal.append(replace(opened(), run_id=run_id))
    (tmp_path / "runs" / "not-a-run").mkdir()
    return made


def test_runs_are_listed_oldest_first(home):
    assert home.run_ids() == IDS


@pytest.mark.parametrize(
    ("reference", "run_id"),
    [
        (None, IDS[3]),
        (IDS[0], IDS[0]),
        ("20261201T10", IDS[1]),
        ("first", IDS[2]),
        ("second", IDS[1]),
        ("with-dashes", IDS[3]),
    ],
)
def test_a_run_is_found_by_id_unique_beginning_or_name(home, reference, run_id):
    assert home.find(reference) == run_id


@pytest.mark.parametrize(
    ("reference", "said"),
    [("20261201", "several runs begin with '20261201'"), ("third", "no run is called 'third'"), ("dashes", "no run")],
)
def test_a_reference_that_names_no_single_run_is_refused_with_the_newest(home, reference, said):
    with pytest.raises(BadInput, match=said) as error:
        home.find(reference)
    assert IDS[3] in error.value.hint
    assert "gpucost ls" in error.value.hint


def test_without_any_run_the_next_action_is_to_start_one(tmp_path):
    with pytest.raises(BadInput, match="no run here yet") as error:
        Home(tmp_path).find(None)
    assert "gpucost train" in error.value.hint


def test_the_state_is_where_the_environment_says(tmp_path):
    assert find_home({"GPUCOST_HOME": str(tmp_path / "a")}).root == tmp_path / "a"
    assert find_home({"XDG_STATE_HOME": str(tmp_path / "b")}).root == tmp_path / "b" / "gpucost"
    assert find_home({"GPUCOST_HOME": str(tmp_path / "c"), "XDG_STATE_HOME": "/d"}).root == tmp_path / "c"


def test_the_default_is_the_users_state_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_home({}).root == tmp_path / ".local/state/gpucost"
    assert find_home({"GPUCOST_HOME": "~/mine"}).root == tmp_path / "mine"


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be made") as error:
        find_home({"GPUCOST_HOME": str(tmp_path / "file" / "below")})
    assert "GPUCOST_HOME" in error.value.hint


def test_the_last_status_is_kept_and_an_unreadable_one_is_none(tmp_path):
    folder = Home(tmp_path).run("r")
    assert folder.last_status() is None
    folder.keep_status(STATUS)
    assert folder.last_status() == STATUS
    folder.status.write_text(protocol.encode(STATUS).replace('"schema": 1', '"schema": 9'))
    assert folder.last_status() is None
    folder.status.write_text("{")
    assert folder.last_status() is None


@pytest.mark.parametrize("named", ["~nosuchuser/x", "x" * 5000, "/proc/nowhere/x"])
@pytest.mark.parametrize("variable", ["GPUCOST_HOME", "XDG_STATE_HOME"])
def test_a_state_directory_that_cannot_be_is_refused_in_words(variable, named):
    with pytest.raises(BadInput, match="the state directory") as error:
        find_home({variable: named})
    assert "GPUCOST_HOME" in error.value.hint
    assert len(str(error.value)) < 400


def test_the_place_of_a_state_directory_stays(tmp_path):
    assert Home(tmp_path).place() == Home(tmp_path).place() != ""
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


@pytest.mark.parametrize("content", [None, "", "0123456789abcdef", "0123 other-host 17", "a b c d"])
def test_a_copy_of_a_state_directory_is_another_place(tmp_path, content):
    """Both would else take the other's beat for their own, and drive one run twice."""
    first, copy = Home(tmp_path / "home"), Home(tmp_path / "copy")
    first.root.mkdir()
    name = first.place()
    shutil.copytree(first.root, copy.root)
    if content is not None:
        (copy.root / "place").write_text(content)
    assert copy.place() not in {name, content}
    assert copy.place() == copy.place()
    assert first.place() == name
