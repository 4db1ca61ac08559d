"""The journal on disk: what is written stays, what is torn is dropped, what is damaged is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from run_cases import SAMPLES, STRAIGHT, fold, opened

from launcher.errors import BadInput
from launcher.journal import EVENT_TYPES, SCHEMA, Journal, JournalBusy, decode, encode, replay


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "run" / "journal.jsonl")


def write(journal, events):
    for event in events:
        journal.append(event)
    return journal


def damaged(journal, number, change):
    """Rewrites one line (counted from 1) by `change`."""
    lines = journal.path.read_text().splitlines()
    lines[number - 1] = change(lines[number - 1])
    journal.path.write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("event", SAMPLES.values(), ids=lambda event: type(event).__name__)
def test_every_event_comes_back_from_its_line_as_it_was(event):
    assert decode(encode(1, event), "line 1") == event


def test_every_event_of_the_table_can_be_written():
    assert set(EVENT_TYPES.values()) == set(SAMPLES)


def test_the_replay_of_what_was_appended_is_the_same_run(journal):
    write(journal, STRAIGHT)
    assert tuple(journal.events()) == STRAIGHT
    assert replay(journal.events(), "j") == fold(STRAIGHT)


def test_a_line_has_a_schema_a_number_and_a_type(journal):
    write(journal, STRAIGHT[:3])
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert [(line["schema"], line["seq"], line["type"]) for line in lines] == [
        (SCHEMA, 1, "RunOpened"),
        (SCHEMA, 2, "LaunchRequested"),
        (SCHEMA, 3, "InstanceCreated"),
    ]


def test_a_journal_that_is_not_there_has_no_events(journal):
    assert journal.events() == []
    assert journal.writer() is None


@pytest.mark.parametrize("keep", [1, 20, -1])
def test_a_torn_last_line_is_dropped_and_the_next_append_takes_its_place(journal, keep):
    write(journal, STRAIGHT[:3])
    whole = journal.path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    journal.path.write_bytes(whole[: last + keep] if keep > 0 else whole[:keep])
    assert journal.events() == list(STRAIGHT[:2])
    write(journal, STRAIGHT[2:4])
    assert journal.events() == list(STRAIGHT[:4])
    assert [json.loads(line)["seq"] for line in journal.path.read_text().splitlines()] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda line: line[:-20], "damaged"),
        (lambda line: "", "damaged"),
        (lambda line: "[1, 2]", "damaged"),
        (lambda line: '"text"', "damaged"),
        (lambda line: line.replace('"i-1"', "17"), "damaged"),
        (lambda line: line.replace('"event":', '"evnt":'), "damaged"),
        (lambda line: line.replace("InstanceCreated", "InstanceDreamt"), "unknown event 'InstanceDreamt'"),
        (lambda line: line.replace('"schema":1', '"schema":99'), "schema 99, this version reads 1"),
    ],
    ids=["cut", "empty", "list", "text", "type", "key", "event", "schema"],
)
def test_damage_before_the_last_line_is_named_with_its_line(journal, change, said):
    write(journal, STRAIGHT)
    damaged(journal, 3, change)
    with pytest.raises(BadInput) as error:
        journal.events()
    assert f"{journal.path} line 3" in str(error.value)
    assert said in str(error.value)
    assert error.value.hint


def test_bytes_that_are_no_text_are_named_with_their_line(journal):
    write(journal, STRAIGHT[:2])
    journal.path.write_bytes(journal.path.read_bytes() + b"\xff\xfe\x00garbage\n")
    with pytest.raises(BadInput, match="line 3 is damaged"):
        journal.events()


def test_a_history_without_its_beginning_is_no_run():
    for history in ([], STRAIGHT[1:]):
        with pytest.raises(BadInput, match="does not begin with a run"):
            replay(history, "j")


def test_an_event_that_cannot_follow_is_named_with_its_line():
    with pytest.raises(BadInput, match="j line 3: DataStaged cannot happen to a run that is provisioning") as error:
        replay([*STRAIGHT[:2], STRAIGHT[4]], "j")
    assert error.value.hint


def test_what_is_appended_is_on_disk_before_append_returns(journal, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle)))
    journal.append(opened())
    file, folder = journal.path.stat(), journal.path.parent.stat()
    assert [seen.st_ino for seen in synced] == [file.st_ino, folder.st_ino], "and once the folder that names it"
    assert synced[0].st_size == file.st_size > 0, "the line was in the file by then"
    journal.append(STRAIGHT[1])
    assert [seen.st_ino for seen in synced[2:]] == [file.st_ino]


def test_text_in_any_language_survives(journal):
    event = opened(name="détecteur\u2028\n検出器")
    assert write(journal, [event]).events() == [event]
    assert journal.path.read_bytes().count(b"\n") == 1


HOLD = """
import sys
from pathlib import Path
from launcher.journal import Journal
with Journal(Path(sys.argv[1])).writing():
    print("writing", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(journal):
    """Another process that drives the run."""
    argv = [sys.executable, "-c", HOLD, str(journal.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        yield process


def test_a_second_writer_is_kept_out_and_told_who_writes(journal, holder):
    assert journal.writer() == holder.pid
    with (
        pytest.raises(JournalBusy, match=f"driven by another process \\(pid {holder.pid}\\)") as busy,
        journal.writing(),
    ):
        pass
    assert "gpucost status" in busy.value.hint


def test_a_writer_that_was_killed_leaves_the_journal_free(journal, holder):
    holder.kill()
    holder.wait(20)
    assert journal.writer() is None
    with journal.writing():
        journal.append(opened())
    assert len(journal.events()) == 1


def test_two_writers_of_one_process_are_two(journal):
    with journal.writing(), pytest.raises(JournalBusy), journal.writing():
        pass
