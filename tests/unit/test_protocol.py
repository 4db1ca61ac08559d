"""Files of the protocol: whole, versioned, checked field by field."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from remote import protocol
from remote.protocol import (
    SCHEMA,
    AgentJob,
    AgentStatus,
    ArtifactFile,
    ArtifactList,
    Checkpoint,
    DataSpec,
    LeasePaths,
    Manifest,
    Phase,
    ProtocolError,
    Reason,
    StopCommand,
    StorageSpec,
    StoredRun,
    TaskProgress,
    TaskSpec,
    TaskState,
    TaskStatus,
    TransferOutcome,
)

CHECKPOINT = Checkpoint("a", 2, 20, "s3://b/run/tasks/a/checkpoints/20-abcdef01.pt", "ab" * 32, 1000, 1.5)
PROGRESS = TaskProgress(2, 10, 20, 100, 31.5, loss=2.25, map50=0.5, at=1.5)
JOB = AgentJob(
    "run",
    "lease",
    1e9,
    ["python3"],
    StorageSpec("s3://b/out", "us-east-1"),
    DataSpec("s3://b/d.tar", sha256="ab", size=10, files=3),
    [TaskSpec("a", {"epochs": 3, "hyp": {"lr0": 0.01}}, world_size=2)],
    ["sudo", "shutdown", "-h", "now"],
    metadata_base="http://169.254.169.254",
)
RECORDS = [
    JOB,
    AgentStatus(
        "run",
        "lease",
        Phase.TRAINING,
        2.0,
        1.0,
        77,
        [TaskStatus("a", TaskState.RUNNING, 1, None, "", PROGRESS), TaskStatus("b")],
        notice={"action": "terminate", "time": "2026-12-01T02:30:00Z"},
        rebalance="2026-12-01T02:20:00Z",
        checkpoint=CHECKPOINT,
        reason=Reason.PREEMPTED,
        phase_seconds={"staging": 3.5},
    ),
    PROGRESS,
    StopCommand(Reason.CANCELLED, 3.0),
    TransferOutcome(ok=True, bytes=5, checkpoint=CHECKPOINT, data="/data"),
    Manifest("a", 2, 20, "20-abcdef01.pt", "ab" * 32, 1000, 1.5),
    ArtifactList("a", [ArtifactFile("best.pt", 5, "ab")], 4.0),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was_written(record, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "record.json"
    protocol.write(path, record)
    assert protocol.read(path, type(record)) == record
    assert [entry.name for entry in path.parent.iterdir()] == ["record.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": SCHEMA + 1}, f"job.json: schema {SCHEMA + 1}, this version reads {SCHEMA}"),
        ({"colour": 1}, "job.json: unknown field 'colour' in AgentJob"),
        ({"deadline": "soon"}, "job.json: AgentJob.deadline: expected float, found str"),
        ({"concurrent": True}, "job.json: AgentJob.concurrent: expected int, found bool"),
        ({"tasks": {"a": 1}}, "job.json: AgentJob.tasks: expected list, found dict"),
        ({"data": None}, "job.json: AgentJob.data: expected dict, found NoneType"),
        ({"python": [1]}, "job.json: AgentJob.python: expected str, found int"),
    ],
)
def test_a_bad_field_is_refused_by_name(change: dict[str, object], message: str) -> None:
    text = json.dumps({**json.loads(protocol.encode(JOB)), **change})
    with pytest.raises(ProtocolError) as caught:
        protocol.decode(text, AgentJob, "job.json")
    assert str(caught.value) == message


def test_a_missing_field_is_refused_by_name() -> None:
    raw = json.loads(protocol.encode(JOB))
    del raw["run_id"]
    with pytest.raises(ProtocolError, match="run_id"):
        protocol.decode(json.dumps(raw), AgentJob, "job.json")


def test_an_unknown_reason_is_refused() -> None:
    text = protocol.encode(StopCommand(Reason.CANCELLED, 1.0)).replace("cancelled", "bored")
    with pytest.raises(ProtocolError, match="bored"):
        protocol.decode(text, StopCommand, "command.json")


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', "1"])
def test_what_is_no_object_is_refused_and_named(text: str) -> None:
    with pytest.raises(ProtocolError, match=r"^status\.json: "):
        protocol.decode(text, AgentStatus, "status.json")


def test_a_whole_number_may_stand_where_a_float_is_meant() -> None:
    text = protocol.encode(JOB).replace("1000000000.0", "1000000000")
    assert protocol.decode(text, AgentJob, "job.json") == JOB


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "status.json"
    protocol.write(path, StopCommand(Reason.CANCELLED, 1.0))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        protocol.write(path, StopCommand(Reason.DEADLINE, 2.0))
    assert protocol.read(path, StopCommand).reason is Reason.CANCELLED


def test_every_name_of_a_lease_lies_in_its_folder(tmp_path: Path) -> None:
    paths = LeasePaths(tmp_path)
    named = [value for value in vars(paths).values() if isinstance(value, Path)]
    named += list(vars(paths.task("a")).values())
    assert all(path == tmp_path or tmp_path in path.parents for path in named)


def test_stored_names_begin_with_the_run() -> None:
    run = StoredRun("run-1")
    names = [run.checkpoints("a"), run.artifact("a", "best.pt"), run.artifacts("a"), run.outcome("l")]
    assert all(name.startswith("run-1/") for name in names)


def test_an_older_status_without_newer_fields_is_readable() -> None:
    raw = json.loads(protocol.encode(replace(RECORDS[1], rebalance=None)))
    del raw["rebalance"]
    assert protocol.decode(json.dumps(raw), AgentStatus, "status.json").rebalance is None


@pytest.mark.parametrize("at", ["1e300", "-1.0", "NaN", "Infinity", "1" + "0" * 400])
@pytest.mark.parametrize("field", ["at", "started_at"])
def test_a_time_that_is_none_is_refused_whoever_wrote_it(field: str, at: str) -> None:
    status = AgentStatus("run", "lease", Phase.ENDED, 2.0, 1.0, 77)
    text = protocol.encode(status).replace(f'"{field}": {getattr(status, field)}', f'"{field}": {at}')
    with pytest.raises(ProtocolError, match=r"outcome\.json: (AgentStatus\..*is no time|int too large)"):
        protocol.decode(text, AgentStatus, "outcome.json")


def test_a_duration_that_is_no_number_is_refused() -> None:
    status = AgentStatus("run", "lease", Phase.ENDED, 2.0, 1.0, 77, phase_seconds={"staging": float("inf")})
    with pytest.raises(ProtocolError, match="is no number"):
        protocol.decode(protocol.encode(status), AgentStatus, "outcome.json")


def test_a_loss_that_is_no_number_is_read_for_what_it_is() -> None:
    text = protocol.encode(replace(PROGRESS, loss=float("nan")))
    assert str(protocol.decode(text, TaskProgress, "progress.json").loss) == "nan"


def test_json_without_an_end_is_no_record() -> None:
    with pytest.raises(ProtocolError, match="not JSON"):
        protocol.decode("[" * 200_000, AgentStatus, "status.json")


def test_words_of_a_machine_hold_nothing_that_a_terminal_obeys() -> None:
    told = TaskStatus("a", message="\x1b[2Jgone\r\x07\x9b31m\nnext\tline: \u00e9")
    status = AgentStatus("run", "lease", Phase.ENDED, 2.0, 1.0, 77, [told], message="\x1b]0;title\x07")
    read = protocol.decode(protocol.encode(status), AgentStatus, "status.json")
    assert read.message == "\ufffd]0;title\ufffd"
    assert read.tasks[0].message == "\ufffd[2Jgone\ufffd\ufffd\ufffd31m\nnext\tline: \u00e9"
