"""One unfinished run of a name in one state directory, however many processes begin it at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import pytest
from launcher_world import DATA, JOB, World

from launcher import cli, opening
from launcher.context import Context
from launcher.errors import BadInput, ExitCode
from launcher.home import Home
from launcher.jobspec import parse
from launcher.planning import first_plan

RIVALS = 8


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def context(world):
    return Context(world.home, world.clock, world.updates.append, world.folder)


def prepared(world):
    """The job of the world, ready to start; `closed` of its cloud counts the times that it was given back."""
    job = parse(JOB, {}, "test")
    closed = []
    storage = SimpleNamespace(region="us-east-1")
    cloud = SimpleNamespace(store=world.store, storage=storage, closed=closed, close=lambda: closed.append(1))
    plan = first_plan(job, DATA, world.catalog(), world.clock.now())
    return opening.Prepared(job, "aws", cloud, DATA, plan, ())


def test_of_many_processes_that_begin_one_job_at_once_one_opens_a_run(world, context):
    start = Barrier(RIVALS)
    ready = [prepared(world) for _ in range(RIVALS)]

    def begin(mine):
        start.wait()
        try:
            opening.open_run(mine, context)
        except BadInput as error:
            return str(error)
        return "opened"

    with ThreadPoolExecutor(RIVALS) as pool:
        said = sorted(pool.map(begin, ready))
    assert said == ["a run called 'job' is going on (begun just now)"] * (RIVALS - 1) + ["opened"]
    assert len(world.home.run_ids()) == 1


def test_a_run_that_another_process_drives_by_now_is_named_with_that_process(world, context):
    first = opening.open_run(prepared(world), context)
    with world.home.run(first.run_id).journal.writing(), pytest.raises(BadInput, match=r"is going on \(process \d+\)"):
        opening.open_run(prepared(world), context)


def test_a_name_is_free_again_once_its_run_is_settled(world, context):
    first = opening.open_run(prepared(world), context)
    world.drive(first.run_id)
    assert opening.open_run(prepared(world), context).run_id in world.home.run_ids()
    assert len(world.home.run_ids()) == 2


def test_a_train_that_comes_second_starts_nothing_and_gives_its_cloud_back(world, context, monkeypatch, capsys):
    mine = prepared(world)

    def slow_prepare(_job, _context):
        opening.open_run(prepared(world), context)  # another process, meanwhile
        return mine

    monkeypatch.setattr(opening, "prepare", slow_prepare)
    monkeypatch.setenv("GPUCOST_HOME", str(world.home.root))
    job_file = world.folder / "job.yaml"
    job_file.write_text("".join(f"{key}: {value}\n" for key, value in JOB.items()))
    monkeypatch.setattr("sys.argv", ["gpucost", "train", str(job_file), "--yes"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == ExitCode.USAGE
    assert "a run called 'job' is going on" in capsys.readouterr().err
    assert mine.cloud.closed == [1]
    assert len(Home(world.home.root).run_ids()) == 1
