"""Cases from the field: lost data and checkpoints, as whole runs on fakes. The machine's side has its own tests."""

from __future__ import annotations

import pytest
from data_sets import make_set
from launcher_world import World

from launcher.events import DataStaged, Outcome
from launcher.storage.interface import StorageError
from remote.protocol import StoredRun


def looking_at_the_end(world):
    """What the agent of the machine had got done when its end was first asked for."""
    seen = []
    terminate = world.provider.terminate

    def look(ref):
        agent = world.machine().agent
        seen.append((agent.has_ended, agent.unsent))
        return terminate(ref)

    world.provider.terminate = look
    return seen


def newest(world, run_id):
    """Step of the newest checkpoint that is whole in the storage."""
    prefix = StoredRun(run_id).checkpoints("job")
    keys = {key for key in world.store.objects if key.startswith(prefix)}
    whole = [key for key in keys if key.endswith(".json") and f"{key.removesuffix('.json')}.pt" in keys]
    return max(int(key.removeprefix(prefix).split("-")[0]) for key in whole)


@pytest.mark.parametrize("ending", ["done", "interrupted", "failed"])
def test_a_machine_is_ended_only_after_its_last_checkpoint_is_whole_in_the_storage(tmp_path, ending):
    """L03: the volume was deleted although its snapshot had failed."""
    world = World(tmp_path)
    world.script.saving, world.script.uploading = 20, 30
    if ending == "failed":
        world.script.fails_at_epoch = 4
    if ending == "interrupted":
        world.signal_at(200)
    seen = looking_at_the_end(world)
    run_id = world.open()
    run = world.drive(run_id)
    world.check(run_id)
    assert seen[0] == (True, 0)
    expected = {"done": (Outcome.DONE, 50), "interrupted": (Outcome.CANCELLED, 25), "failed": (Outcome.FAILED, 30)}
    assert (run.outcome, newest(world, run_id)) == expected[ending]
    assert run.checkpoints[0].step == newest(world, run_id), "and the journal knows it"


def test_a_last_checkpoint_that_does_not_get_through_is_said_and_the_one_before_is_kept(tmp_path):
    """L03: the wait is bounded, since the machine is paid for; what was verified before stays."""
    world = World(tmp_path)
    run_id = world.open()

    def no_way_out():
        world.store.down_for_machines = True
        world.signal()

    world.clock.at(200, no_way_out)
    run = world.drive(run_id)
    world.check(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert "not waiting any longer for the last upload" in world.notes()
    assert run.checkpoints[0].step == newest(world, run_id) == 20
    assert world.clock.elapsed < 200 + world.facts.drain_seconds + 60
    world.store.down_for_machines = False
    assert world.reopen(run_id, budget="5").outcome is Outcome.DONE
    assert [epoch for _, _, epoch in world.script.trained] == [1, 2, 3, 4, 5]


def test_a_data_set_that_arrived_cut_off_is_stored_again_before_anything_is_paid_for(tmp_path):
    """L03, L06: a copy counts once it is known to be whole."""
    world = World(tmp_path)
    data = make_set(tmp_path / "data")
    first = world.drive(world.open(data=str(data), images=None))
    key = first.data_url.removeprefix(f"{world.store.url}/")
    whole = world.store.objects[key]
    world.store.objects[key] = whole[:-512]
    again = world.drive(world.open(data=str(data), images=None, name="again"))
    assert (first.outcome, again.outcome) == (Outcome.DONE, Outcome.DONE)
    assert world.store.objects[key] == whole


def test_a_data_set_that_cannot_be_stored_costs_nothing_and_stays_where_it_is(tmp_path):
    world = World(tmp_path)
    data = make_set(tmp_path / "data")
    before = sorted(path.name for path in data.rglob("*"))
    world.store.fail("upload", "data/", error=StorageError("the bucket is full", hint="make room"))
    run = world.drive(world.open(data=str(data), images=None))
    assert (run.outcome, run.attempt) == (Outcome.REFUSED, 0)
    assert "the bucket is full" in run.message
    assert world.provider.machines == []
    assert sorted(path.name for path in data.rglob("*")) == before


def test_the_agent_is_told_what_must_be_there_before_it_trains(tmp_path):
    """L06, L08, K04: so many pictures, such a disk, so many GPUs; it checks them before a training is paid for."""
    world = World(tmp_path)
    jobs = []
    run_id = world.open(data=str(make_set(tmp_path / "data")), images=None, disk="120GiB")
    report = world.on(DataStaged, lambda: jobs.append(world.machine().agent.job))
    run = world.drive(run_id, report=report)
    (told,) = jobs
    assert (told.data.files, told.data.sha256, told.data.size) == (3, run.data_sha256, run.data_bytes)
    assert (told.disk_gib, told.gpus) == (120, 1)
    assert world.machine().request.disk_gib == 120
