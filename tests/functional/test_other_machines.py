"""A run and several machines: the journal's copy in the storage is a fence, and enough to go on with nothing else."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from launcher_processes import Process, SharedClock
from launcher_world import Cut, World

from launcher import app, wiring
from launcher.adopting import refresh
from launcher.claim import HeldElsewhere
from launcher.context import Context
from launcher.errors import BadInput, ExitCode, StopUnconfirmed, Unreadable
from launcher.events import (
    Cancelled,
    CheckpointSynced,
    Claimed,
    DataStaged,
    InstanceCreated,
    LaunchRequested,
    LeaseClosed,
    Outcome,
)
from launcher.journal import JournalBusy, JournalUnwritable, decode
from launcher.mirror import ALIVE_SECONDS, Fenced, Holder
from launcher.report import Happened
from launcher.run import State
from launcher.storage.interface import StorageError
from remote.protocol import StoredRun

LINES = 15
"""Journal lines of an undisturbed run after its first one."""


def stored(world, run_id):
    """The lines of the journal's copy, in order."""
    prefix = StoredRun(run_id).journal
    keys = sorted(key for key in world.store.objects if key.startswith(prefix))
    assert [key.removeprefix(prefix) for key in keys] == [f"{n:06d}.json" for n in range(1, len(keys) + 1)]
    return [world.store.objects[key].decode() for key in keys]


def test_every_record_is_in_the_storage_as_it_is_on_disk(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.drive(run_id)
    assert stored(world, run_id) == world.home.run(run_id).journal.lines()


def test_a_launch_is_in_the_storage_before_it_is_made(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    seen = []
    launch = world.provider.launch

    def look(request):
        seen.append([type(decode(line, "")).__name__ for line in stored(world, run_id)])
        return launch(request)

    world.provider.launch = look
    world.drive(run_id)
    assert seen == [["RunOpened", "Claimed", "LaunchRequested"]]


def test_nothing_is_launched_while_the_storage_cannot_keep_the_intent(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.store.fail("create", times=1000)
    run = world.drive(run_id)
    assert run.outcome is Outcome.REFUSED
    assert "cannot be reached" in run.message
    assert world.provider.machines == []
    assert run.entries == ()


def test_a_storage_that_is_back_in_time_delays_the_launch_and_nothing_else(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.store.fail("create", times=8)
    assert world.drive(run_id).outcome is Outcome.DONE
    world.check(run_id)
    assert stored(world, run_id) == world.home.run(run_id).journal.lines()


def test_an_outage_of_the_storage_while_training_stops_nothing_and_is_caught_up(tmp_path):
    world = World(tmp_path)
    run_id = world.open()

    def out():
        world.store.down = True
        world.clock.after(150, lambda: setattr(world.store, "down", False))

    run = world.drive(run_id, report=world.on(DataStaged, out))
    assert run.outcome is Outcome.DONE
    assert world.notes().count("the journal cannot be copied") == 1
    assert stored(world, run_id) == world.home.run(run_id).journal.lines()


def test_a_stop_is_not_delayed_by_a_storage_that_is_out(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    asked = []

    def report(update):
        if isinstance(update, Happened) and isinstance(update.event, CheckpointSynced):
            world.store.down = True
            world.signal()
        if isinstance(update, Happened) and isinstance(update.event, Cancelled):
            world.store.calls.clear()

    terminate = world.provider.terminate

    def look(ref):
        asked.append([call for call, key in world.store.calls if StoredRun(run_id).prefix in key])
        return terminate(ref)

    world.provider.terminate = look
    world.drive(run_id, report=report)
    assert asked[0] == [], "the machine is ended before the storage is asked for anything"
    assert "Settled" in world.events(run_id)


def test_a_second_launcher_is_told_who_holds_the_run(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    runner = world.elsewhere()
    told = []

    def second():
        runner.adopt(run_id)
        with pytest.raises(HeldElsewhere, match="driven by laptop/4242") as held:
            runner.drive(run_id)
        told.append(held.value)

    run = world.drive(run_id, report=world.on(CheckpointSynced, second))
    assert run.outcome is Outcome.DONE
    world.check(run_id)
    assert told[0].exit_code is ExitCode.HELD
    assert "--take-over" in told[0].hint


def test_a_launcher_whose_run_is_taken_over_steps_back_and_stops_nothing(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    runner = world.elsewhere()
    ended = []

    def take_over():
        runner.adopt(run_id)
        ended.append(runner.drive(run_id, by_force=True))

    with pytest.raises(Fenced, match="taken over by runner/4242"):
        world.drive(run_id, report=world.on(CheckpointSynced, take_over))
    assert ended[0].outcome is Outcome.DONE
    assert len(world.provider.machines) == 1
    assert world.provider.alive() == []
    assert stored(world, run_id) == runner.home.run(run_id).journal.lines()


def test_the_first_launcher_learns_of_the_takeover_within_a_beat(tmp_path):
    world = World(tmp_path)
    world.script.epoch = 3000
    run_id = world.open(budget=None, epochs=3)
    runner = world.elsewhere()
    claimed_at = []

    def claim():
        runner.adopt(run_id)
        claimed_at.append(world.clock.elapsed)
        runner.claim(run_id)

    with pytest.raises(Fenced):
        world.drive(run_id, report=world.on(DataStaged, lambda: world.clock.after(300, claim)))
    assert world.clock.elapsed - claimed_at[0] < 130


def test_records_that_lost_their_number_are_laid_aside_and_not_lost(tmp_path):
    """The storage was out for the first launcher, and another one went on meanwhile."""
    world = World(tmp_path)
    run_id = world.open()
    run = world.drive_until_killed(run_id, cut=Cut(5, before=False))
    assert run.state is State.STAGING
    lost = world.home.run(run_id).journal.append(DataStaged(at=world.clock.now()))
    world.clock.sleep(ALIVE_SECONDS + 1)
    runner = world.elsewhere()
    runner.adopt(run_id)
    assert runner.drive(run_id).outcome is Outcome.DONE
    again = world.drive(run_id, by_force=True)
    assert again.outcome is Outcome.DONE
    assert world.home.run(run_id).journal.lines() == runner.home.run(run_id).journal.lines()
    (aside,) = world.home.run(run_id).root.glob("journal.superseded*.jsonl")
    assert lost in aside.read_text()


@pytest.mark.parametrize("line", range(1, LINES + 1))
def test_a_fresh_machine_goes_on_from_the_prefix_alone_wherever_the_first_one_died(tmp_path, line):
    world = World(tmp_path)
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(line, before=False))
    world.clock.sleep(ALIVE_SECONDS + 1)
    runner = world.elsewhere()
    if not stored_anything(world, run_id):
        pytest.skip("nothing of it is in the storage, and nothing was launched")
    runner.adopt(run_id)
    run = runner.drive(run_id)
    runner.check(run_id)
    assert run.outcome is Outcome.DONE
    assert (runner.folder / "runs/job/best.pt").read_bytes() == b"best"


@pytest.mark.parametrize("line", range(2, LINES + 1))
def test_a_fresh_machine_stops_a_run_from_the_prefix_alone(tmp_path, line):
    world = World(tmp_path)
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(line, before=False))
    runner = world.elsewhere()
    if not stored_anything(world, run_id):
        pytest.skip("nothing of it is in the storage, and nothing was launched")
    runner.adopt(run_id)
    run = runner.stop(run_id)
    runner.check(run_id)
    assert run.outcome in {Outcome.CANCELLED, Outcome.DONE}
    assert len(runner.provider.machines) <= 1


def stored_anything(world, run_id):
    return bool(stored(world, run_id))


def test_a_stop_from_a_fresh_machine_has_the_agent_save_through_the_storage(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(8, before=False))
    world.clock.sleep(20)
    runner = world.elsewhere()
    runner.adopt(run_id)
    run = runner.stop(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert "is asked through the storage" in runner.notes()
    (reached,) = run.checkpoints
    assert reached.step % 10 == 5, "saved in the middle of an epoch, on command"
    runner.check(run_id)


def test_a_launcher_without_ssh_hears_the_agent_through_the_storage(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    run = world.drive(run_id, report=world.on(DataStaged, lambda: setattr(world.connector, "down", True)))
    assert run.outcome is Outcome.DONE
    assert "the machine does not answer" in world.notes()
    assert max(checkpoint.epoch for checkpoint in run.checkpoints) == 5
    world.check(run_id, late_seconds=world.facts.linger_seconds + world.facts.power_off_seconds)


def test_a_machine_of_which_nothing_is_heard_by_any_way_is_given_up(tmp_path):
    world = World(tmp_path)
    run_id = world.open()

    def fall_silent():
        machine = world.machine()
        machine.kill_agent()
        machine.reachable = False

    run = world.drive(run_id, report=world.on(CheckpointSynced, fall_silent))
    assert run.outcome is Outcome.DONE
    assert "Abandoned" in world.events(run_id)
    assert len(run.entries) == 2
    world.check(run_id)


def test_silence_in_a_storage_that_does_not_answer_gives_nothing_up(tmp_path):
    world = World(tmp_path)
    world.script.epoch, world.images_per_second = 400, 2
    run_id = world.open(budget=None)

    def cut_off():
        world.connector.down = world.store.down = True
        world.clock.after(1200, back)

    def back():
        world.connector.down = world.store.down = False

    run = world.drive(run_id, report=world.on(DataStaged, cut_off))
    assert run.outcome is Outcome.DONE
    assert len(run.entries) == 1


def test_a_holder_counts_as_alive_only_while_its_beats_are_fresh():
    assert Holder("laptop/1", "p", ALIVE_SECONDS - 1, ended=False).drives
    assert not Holder("laptop/1", "p", ALIVE_SECONDS + 1, ended=False).drives
    assert not Holder("laptop/1", "p", 0, ended=True).drives


def test_an_unreadable_beat_refuses_nobody(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.drive_until_killed(run_id, cut=Cut(6, before=False))
    world.store.objects[StoredRun(run_id).launcher_beat] = b"{torn"
    runner = world.elsewhere()
    runner.adopt(run_id)
    assert runner.drive(run_id).outcome is Outcome.DONE


def test_the_beat_says_when_a_launcher_has_left(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    world.drive(run_id)
    beat = json.loads(world.store.objects[StoredRun(run_id).launcher_beat])
    assert beat["ended"] is True
    assert beat["launcher"] == "laptop/4242"


def test_a_launcher_that_lost_its_run_in_an_outage_says_so_and_not_that_the_run_is_over(tmp_path):
    """Whoever took it over has ended the machine and goes on; the storage answers again, and was not asked since."""
    world = World(tmp_path, clock=SharedClock())
    world.connector.connect_seconds = 1
    run_id = world.open()
    runner = world.elsewhere()

    def take_over():
        runner.adopt(run_id)
        runner.drive_until_killed(run_id, cut=Cut(4, before=False), by_force=True)

    world.clock.at(11, lambda: setattr(world.store, "down", True))
    world.clock.at(31, lambda: setattr(world.store, "down", False))
    world.clock.at(32, Process(world.clock, take_over).start)
    with pytest.raises(Fenced, match="taken over by runner"):
        world.drive(run_id)
    assert runner.drive(run_id).outcome is Outcome.DONE


def test_the_beat_of_the_launcher_that_has_the_run_is_not_overwritten_by_the_one_that_lost_it(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    runner = world.elsewhere()

    def take_over():
        runner.adopt(run_id)
        runner.drive_until_killed(run_id, cut=Cut(3, before=False), by_force=True)

    with pytest.raises(Fenced):
        world.drive(run_id, report=world.on(CheckpointSynced, take_over))
    beat = json.loads(world.store.objects[StoredRun(run_id).launcher_beat])
    assert (beat["launcher"], beat["ended"]) == ("runner/4242", False)


def test_the_end_of_a_run_is_in_the_storage_as_soon_as_that_answers_again(tmp_path):
    """Else whoever comes with the prefix alone would go on with a run that is over."""
    world = World(tmp_path)
    run_id = world.open()

    def out():
        world.store.down = True
        world.clock.after(10, lambda: setattr(world.store, "down", False))

    world.drive(run_id, report=world.on(LeaseClosed, out))
    assert stored(world, run_id) == world.home.run(run_id).journal.lines()
    assert "Settled" in stored(world, run_id)[-1]


def test_a_create_whose_answer_was_lost_is_not_taken_for_another_launchers(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    create = world.store.create
    lost = iter([True])

    def losing(key, content):
        made = create(key, content)
        if "journal/000003" in key and next(lost, False):
            raise StorageError("read timed out", hint="")
        return made

    world.store.create = losing
    assert world.drive(run_id).outcome is Outcome.DONE
    world.check(run_id)


def test_two_launchers_that_both_believe_to_hold_a_planned_run_launch_once(tmp_path):
    """No clock and no beat is needed for it: the number of the record decides."""
    world = World(tmp_path)
    run_id = world.open()
    world.claim(run_id)
    runner = world.elsewhere()
    runner.adopt(run_id)
    ends = []

    def race():
        ends.append(runner.drive(run_id, by_force=True).outcome)

    with pytest.raises(Fenced):
        world.drive(run_id, report=world.on(LaunchRequested, race), by_force=True)
    assert ends == [Outcome.DONE]
    assert world.provider.most_alive == 1
    assert sum(isinstance(e, InstanceCreated) for e in runner.home.run(run_id).journal.events()) == 1


# -- what others may have put into the storage ---------------------------------------------------------------------


def killed_while_training(world):
    world.script.epoch, world.images_per_second = 600, 2
    run_id = world.open(budget=None)
    world.drive_until_killed(run_id, cut=Cut(8, before=False))
    world.clock.sleep(ALIVE_SECONDS + 1)
    return run_id


def test_an_object_that_is_no_record_neither_spoils_the_journal_nor_keeps_anybody_from_stopping(tmp_path):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    number = len(stored(world, run_id)) + 1
    world.store.objects[StoredRun(run_id).record(number)] = b""
    run = world.stop(run_id)
    assert run.outcome is Outcome.CANCELLED
    world.check(run_id)
    assert stored(world, run_id) == world.home.run(run_id).journal.lines()


def test_an_object_of_another_name_beside_the_records_is_left_alone(tmp_path):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    world.store.objects[f"{StoredRun(run_id).journal}backup-2026.json"] = b"{}"
    assert world.drive(run_id).outcome is Outcome.DONE


def test_a_journal_with_a_gap_is_refused_and_not_written_into(tmp_path):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    del world.store.objects[StoredRun(run_id).record(3)]
    before = dict(world.store.objects)
    runner = world.elsewhere()
    with pytest.raises(Unreadable, match=r"record 3 of the journal in .* is missing or damaged"):
        runner.adopt(run_id)
    assert world.store.objects == before


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": 1, "seq": 3, "type": "Cla'])
def test_a_damaged_record_with_others_behind_it_is_never_written_over_by_who_does_not_have_it(tmp_path, content):
    """Neither a prefix of the history nor another launcher is made of it."""
    world = World(tmp_path)
    run_id = killed_while_training(world)
    world.store.objects[StoredRun(run_id).record(3)] = content
    before = dict(world.store.objects)
    runner = world.elsewhere()
    for _ in range(2):
        with pytest.raises(Unreadable, match="record 3 of the journal"):
            runner.adopt(run_id)
    assert world.store.objects == before
    assert not runner.home.run(run_id).journal.path.exists()


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("content", [None, b"{}"])
def test_what_the_storage_lost_is_written_again_from_the_machine_that_has_it(tmp_path, number, content):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    key = StoredRun(run_id).record(number)
    if content is None:
        del world.store.objects[key]
    else:
        world.store.objects[key] = content
    run = world.stop(run_id)
    assert run.outcome is Outcome.CANCELLED
    assert f"record {number} was lost from the storage, and is written again" in world.notes()
    assert stored(world, run_id) == world.home.run(run_id).journal.lines()
    world.check(run_id)


def test_a_journal_that_is_damaged_here_is_replaced_by_its_copy(tmp_path):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    journal = world.home.run(run_id).journal
    whole = journal.lines()
    journal.path.write_text("\n".join([*whole[:3], "garbage", *whole[4:], ""]))
    world.adopt(run_id)
    assert journal.lines() == whole
    assert "garbage" in journal.path.with_name("journal.superseded.jsonl").read_text()
    assert world.drive(run_id).outcome is Outcome.DONE


def test_a_journal_that_is_damaged_where_there_is_no_copy_is_left_as_it_is(tmp_path):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    journal = world.home.run(run_id).journal
    for _ in range(2):
        journal.append(Claimed(at=world.clock.now(), launcher="laptop/1"))
    damaged = [*journal.lines()[:-2], "garbage", journal.lines()[-1]]
    journal.path.write_text("\n".join([*damaged, ""]))
    with pytest.raises(Unreadable, match=f"line {len(damaged) - 1} is damaged"):
        world.adopt(run_id)
    assert journal.lines() == damaged


def test_the_records_of_another_run_are_not_taken_for_this_one(tmp_path):
    world = World(tmp_path)
    run_id, other = killed_while_training(world), world.open(name="other")
    world.claim(other)
    mine = world.home.run(run_id).journal.lines()
    for number, line in enumerate(world.home.run(other).journal.lines(), 1):
        world.store.objects[StoredRun(run_id).record(number)] = line.encode()
    with pytest.raises(BadInput, match="another run's"):
        world.adopt(run_id)
    with pytest.raises(BadInput, match="another run's"):
        world.drive(run_id)
    assert world.home.run(run_id).journal.lines() == mine


@pytest.mark.parametrize("change", [("run_id", "../../tmp/x"), ("name", "/tmp/pwn/.ssh"), ("name", "../up")])
def test_a_first_record_that_names_another_place_is_refused(tmp_path, change):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    key = StoredRun(run_id).record(1)
    record = json.loads(world.store.objects[key])
    record["event"][change[0]] = change[1]
    world.store.objects[key] = json.dumps(record).encode()
    runner = world.elsewhere()
    with pytest.raises(BadInput, match="another run's"):
        runner.adopt(run_id)
    assert not runner.home.runs.exists()


def test_looking_at_a_run_never_throws_a_record_of_this_machine_away(tmp_path):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    world.home.run(run_id).journal.append(Claimed(at=world.clock.now(), launcher="laptop/1"))
    runner = world.elsewhere()
    runner.adopt(run_id)
    runner.claim(run_id)
    mine = world.home.run(run_id).journal.lines()
    world.adopt(run_id)
    assert world.home.run(run_id).journal.lines() == mine


def test_a_launcher_that_lost_its_run_does_not_end_the_machine_of_the_one_that_has_it(tmp_path):
    world = World(tmp_path)
    world.script.epoch = 600
    run_id = world.open(budget=None)
    runner = world.elsewhere()

    def take_over_and_interrupt():
        runner.adopt(run_id)
        runner.claim(run_id)
        world.signal()

    with pytest.raises(Fenced):
        world.drive(run_id, report=world.on(DataStaged, take_over_and_interrupt))
    assert len(world.provider.alive()) == 1
    assert "terminate" not in world.provider.calls


def test_the_beat_of_a_launcher_that_took_over_is_not_written_over(tmp_path):
    world = World(tmp_path)
    world.script.epoch, world.images_per_second = 600, 2
    run_id = world.open(budget=None)
    runner = world.elsewhere()

    def take_over():
        runner.adopt(run_id)
        runner.claim(run_id)

    with pytest.raises(Fenced):
        world.drive(run_id, report=world.on(DataStaged, lambda: world.clock.after(90, take_over)))
    beat = json.loads(world.store.objects[StoredRun(run_id).launcher_beat])
    assert (beat["launcher"], beat["ended"]) == ("runner/4242", False)


def test_a_launcher_is_known_to_be_there_before_it_launches(tmp_path):
    world = World(tmp_path)
    run_id = world.open()
    beats = []
    launch = world.provider.launch

    def look(request):
        beats.append(StoredRun(run_id).launcher_beat in world.store.objects)
        return launch(request)

    world.provider.launch = look
    world.drive(run_id)
    assert beats == [True]


def test_a_run_that_was_taken_over_and_ended_elsewhere_goes_on_here_at_the_first_resume(tmp_path, monkeypatch):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    world.home.run(run_id).journal.append(Claimed(at=world.clock.now(), launcher="laptop/1"))
    runner = world.elsewhere()
    runner.adopt(run_id)
    runner.stop(run_id)
    context = Context(world.home, world.time, world.updates.append, world.folder)
    monkeypatch.setattr(wiring, "storage_at", lambda *_: nullcontext(world.store))
    refresh(run_id, context, follow=True)
    assert world.run(run_id).outcome is Outcome.CANCELLED
    assert world.home.run(run_id).journal.lines() == stored(world, run_id)


def test_where_nothing_can_be_recorded_a_machine_that_may_be_alive_is_loud(tmp_path):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    lock = world.home.run(run_id).journal.path.with_suffix(".lock")
    lock.unlink()
    lock.symlink_to(tmp_path / "no folder" / "lock")
    context = Context(world.home, world.time, world.updates.append, world.folder)
    with pytest.raises(StopUnconfirmed, match=r"cannot be written: .* MAY STILL BE BILLED"):
        app.go_on(run_id, context)
    with pytest.raises(JournalUnwritable, match="cannot be written"):
        app.stop(run_id, context)


def test_a_stop_follows_the_one_that_was_quicker(tmp_path, monkeypatch):
    world = World(tmp_path)
    run_id = killed_while_training(world)
    context = Context(world.home, world.time, world.updates.append, world.folder)
    rounds = []

    def quicker(run_id, _context):
        rounds.append(run_id)
        if len(rounds) == 1:
            raise JournalBusy("by another process")
        return world.stop(run_id)

    monkeypatch.setattr(app, "_stop", quicker)
    assert app.stop(run_id, context).outcome is Outcome.CANCELLED
    assert "was quicker" in world.notes()
    rounds.clear()
    monkeypatch.setattr(app, "_stop", lambda *_: rounds.append(1) or (_ for _ in ()).throw(JournalBusy("again")))
    with pytest.raises(JournalBusy):
        app.stop(run_id, context)
    assert len(rounds) == app.STOP_ROUNDS


def test_what_the_agent_finds_worth_telling_is_told_once(tmp_path):
    world = World(tmp_path)
    world.script.says = "checkpoint 7 skipped: it is torn"
    world.drive(world.open())
    assert world.notes().count("the agent says: checkpoint 7 skipped: it is torn") == 1
