"""Whole sweeps on fakes: what is found without any state of this machine, what is removed, and what is said of it."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from memory_object_store import FakeStore
from sweep_cases import OTHER, OUTPUT, REGION, RUN, World, beat, hours, orphans, post, reasons, results, thing

from launcher.clouds import AWS
from launcher.errors import BadInput, ExitCode, ProviderError
from launcher.providers.interface import RefusedError, UnreachableError
from launcher.providers.sweep import Found, Kind
from launcher.storage.interface import StorageError
from launcher.sweep.looking import LocalRun, Scope, usd_per_day
from launcher.sweep.removing import Result, exit_code
from launcher.sweep.render import show_done, show_sweep, sweep_document
from launcher.sweep.verdicts import GRACE

PAST = hours(-2)
MACHINE = thing(Kind.INSTANCE, deadline=PAST, state="running", note="g4dn.xlarge spot")
DISK = thing(Kind.VOLUME, deadline=PAST, state="in-use")
INTERFACE = thing(Kind.INTERFACE, deadline=PAST)
REQUEST = thing(Kind.SPOT_REQUEST, deadline=PAST)
SCHEDULE = thing(Kind.SCHEDULE, deadline=PAST, output=None)
KEY = thing(Kind.KEY_PAIR)
GROUP = thing(Kind.SECURITY_GROUP)
TEMPLATE = thing(Kind.LAUNCH_TEMPLATE)
UPLOAD = thing(Kind.UPLOAD, made_at=hours(-4), id=f"{OUTPUT}/{RUN}/tasks/t/x.pt", handle="u1")
ALL = (UPLOAD, TEMPLATE, GROUP, KEY, SCHEDULE, INTERFACE, DISK, REQUEST, MACHINE)


@pytest.fixture
def world():
    return World()


# -- what is found -----------------------------------------------------------------------------------------------------


def test_a_machine_is_found_by_its_tags_when_all_local_state_is_gone(world):
    """C01, C03: a machine ran for 400 hours; the client, its state gone, listed nothing. Tags say what it is."""
    world.cloud.add(replace(MACHINE, deadline=hours(4)))
    post(world.store, hours(-0.01))
    (row,) = sweep_document(world.look(), None)["items"][:1]
    assert (row["id"], row["run_id"], row["lease_id"]) == (MACHINE.id, RUN, f"{RUN}-1")
    assert (row["deadline"], row["output"], row["usd_per_day"]) == ("2026-12-01T13:00:00Z", OUTPUT, Decimal("4.80"))
    assert row["reason"] == "run lives: agent heard 36 s ago"


def test_a_machine_of_a_launch_that_was_never_recorded_is_found_and_ended(world):
    """C25: the launcher was killed within the create call: its journal has the intent, and no id of a machine."""
    world.journals[RUN] = LocalRun(output=OUTPUT)
    world.cloud.add(MACHINE)
    assert results(world.clean()) == {MACHINE.id: Result.REMOVED}


def test_a_machine_that_never_registered_is_an_orphan_like_any_other(world):
    """I07: of the machines of a CI 30 % did not register in time; the job was cancelled and the machine stayed."""
    world.cloud.add(MACHINE)
    assert "nothing was ever heard of its run" in reasons(world.look())[MACHINE.id]
    assert orphans(world.look()) == {MACHINE.id}


def test_every_enabled_region_is_asked_unless_one_is_named(world):
    world.cloud.enabled = ["us-east-1", "eu-west-1", "ap-south-1"]
    there = [replace(MACHINE, id=f"i-{region}", region=region) for region in world.cloud.enabled]
    world.cloud.add(*there)
    assert orphans(world.look()) == {"i-us-east-1", "i-eu-west-1", "i-ap-south-1"}
    assert orphans(world.look(Scope(regions=("eu-west-1",)))) == {"i-eu-west-1"}
    with pytest.raises(BadInput, match="region 'mars-1' is not enabled"):
        world.look(Scope(regions=("mars-1",)))


def test_the_cost_of_a_day_counts_what_stands_without_any_machine(world):
    """C28: a cluster without a machine cost 2.40 USD a day."""
    world.cloud.add(DISK, thing(Kind.VOLUME, OTHER, deadline=hours(1), usd_per_day=Decimal("0.10")), UPLOAD, KEY)
    sweep = world.look()
    assert usd_per_day(sweep.items) == Decimal("0.37")
    assert usd_per_day(sweep.orphans) == Decimal("0.27")
    text = show_sweep(sweep)
    assert "in all: $0.3700 a day for 5 things" in text
    assert "orphans: $0.2700 a day for 3 things" in text


def test_nothing_that_is_found_drives_the_terminal(world):
    world.cloud.add(replace(MACHINE, note="\x1b[2Jgone"))
    assert "\x1b" not in show_sweep(world.look())


def test_a_cost_that_nobody_knows_is_not_shown_as_nothing(world):
    world.cloud.add(replace(MACHINE, usd_per_day=None))
    sweep = world.look()
    text = show_sweep(sweep)
    (row,) = [line for line in text.splitlines() if MACHINE.id in line]
    assert " unknown " in row
    assert "orphans: $0 a day and 1 of unknown cost for 1 thing" in text
    assert sweep_document(sweep, None)["unknown_costs"] == 1


def test_a_bucket_is_listed_with_its_cost_and_never_removed(world):
    """C39: the bucket made for a job stayed after it; it may hold what nobody has elsewhere."""
    world.cloud.add(MACHINE)
    world.store.objects[f"{RUN}/tasks/t/last.pt"] = b"x" * 2**20
    sweep = world.look()
    (bucket,) = [one.found for one in sweep.items if one.found.kind is Kind.BUCKET]
    assert (bucket.id, bucket.note) == (OUTPUT, "1.0 MiB, objects: 1, runs: 1")
    assert bucket.usd_per_day == Decimal("0.023") / 1024 * 24 / 730
    world.clean(sweep)
    assert OUTPUT not in world.cloud.asked
    assert f"{RUN}/tasks/t/last.pt" in world.store.objects


def test_a_bucket_that_cannot_be_read_is_listed_all_the_same(world):
    world.cloud.add(replace(MACHINE, output="s3://theirs/runs"))
    sweep = world.look()
    (bucket,) = [one.found for one in sweep.items if one.found.kind is Kind.BUCKET]
    assert (bucket.id, bucket.usd_per_day, bucket.note) == ("s3://theirs/runs", None, "cannot be read")
    assert [(gap.where, gap.what) for gap in sweep.gaps] == [("s3://theirs/runs", "objects")]


def test_uploads_and_runs_below_a_named_prefix_are_found_where_no_tag_is_left(world):
    world.stores["s3://old/place"] = FakeStore("s3://old/place")
    post(world.stores["s3://old/place"], hours(-30), OTHER)
    left = thing(Kind.UPLOAD, OTHER, id="s3://old/place/x", output="s3://old/place", made_at=hours(-31), handle="u")
    world.cloud.add(left)
    assert [one.found.id for one in world.look().items] == []
    sweep = world.look(Scope(outputs=("s3://old/place",)))
    assert orphans(sweep) == {left.id}
    assert sweep_document(sweep, None)["runs"] == [{"run_id": OTHER, "alive": "", "places": ("s3://old/place",)}]
    assert results(world.clean(sweep)) == {left.id: Result.REMOVED}


def test_a_stopped_machine_says_that_its_disks_are_billed(world):
    """C26, C40: what "stopped" still costs is said, and ended."""
    off = replace(MACHINE, state="stopped", usd_per_day=Decimal(0), note="stopped: its disks are billed all the same")
    world.cloud.add(off, DISK)
    sweep = world.look()
    assert "stopped: its disks are billed all the same" in show_sweep(sweep)
    assert usd_per_day(sweep.orphans) == DISK.usd_per_day
    assert results(world.clean(sweep)) == {MACHINE.id: Result.REMOVED, DISK.id: Result.REMOVED}


# -- whether its run lives ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [post, beat])
def test_nothing_of_a_run_that_is_heard_is_removed(world, who):
    """C38: the sweep deleted machines with a running job."""
    world.cloud.add(*ALL)
    who(world.store, hours(-0.1))
    assert orphans(world.look()) == set()
    assert world.clean() == ()
    assert world.cloud.asked == []


def test_a_run_that_a_process_here_drives_lives_whatever_the_storage_says(world):
    world.journals[RUN] = LocalRun(driven_by="process 4242 on this machine")
    world.cloud.add(MACHINE)
    assert reasons(world.look())[MACHINE.id] == "keep: run lives: driven by process 4242 on this machine"


@pytest.mark.parametrize("trouble", ["down", "torn", "foreign"])
def test_a_heartbeat_that_cannot_be_read_counts_as_heard(world, trouble):
    if trouble == "down":
        world.store.down = True
    elif trouble == "torn":
        world.store.objects[f"{RUN}/launcher.json"] = b'{"schema": 1, "at"'
    else:
        del world.stores[OUTPUT]
    world.cloud.add(*ALL)
    assert orphans(world.look()) == set()
    assert "counts as alive: its heartbeat cannot be read" in reasons(world.look())[MACHINE.id]


def test_what_says_nowhere_where_its_heartbeat_is_counts_as_alive(world):
    world.cloud.add(replace(MACHINE, output=None))
    assert orphans(world.look()) == set()


def test_the_journal_here_can_say_where_the_heartbeat_is(world):
    world.cloud.add(replace(MACHINE, output=None))
    world.journals[RUN] = LocalRun(output=OUTPUT)
    assert orphans(world.look()) == {MACHINE.id}
    post(world.store, hours(0))
    assert orphans(world.look()) == set()


def test_a_named_prefix_says_where_the_heartbeat_is_if_the_run_has_objects_there(world):
    """That a heartbeat is missing in a place where its run never was says nothing."""
    world.cloud.add(replace(MACHINE, output=None))
    scope = Scope(outputs=(OUTPUT,))
    assert orphans(world.look(scope)) == set()
    post(world.store, hours(-3))
    assert orphans(world.look(scope)) == {MACHINE.id}


def test_a_tag_of_one_thing_says_where_the_heartbeat_of_the_whole_run_is(world):
    world.cloud.add(MACHINE, SCHEDULE)
    assert orphans(world.look()) == {MACHINE.id, SCHEDULE.id}


# -- what is removed ---------------------------------------------------------------------------------------------------


def test_looking_removes_nothing(world):
    """C38: a dry run by default."""
    world.cloud.add(*ALL)
    assert len(orphans(world.look())) == len(ALL)
    assert world.cloud.asked == []


def test_everything_of_a_dead_run_goes_and_each_thing_after_what_holds_it(world):
    """C09: a key pair and a security group stayed after the machine."""
    world.cloud.add(*ALL)
    done = world.clean()
    assert results(done) == {one.id: Result.REMOVED for one in ALL}
    assert world.cloud.ids() == set()
    first = [next(at for at, id_ in enumerate(world.cloud.asked) if id_ == one.id) for one in reversed(ALL)]
    assert first == sorted(first)
    assert exit_code(world.look(), done, interrupted=False) is ExitCode.DONE
    assert orphans(world.look()) == set()


def test_what_goes_with_its_machine_is_not_removed_twice(world):
    world.cloud.add(MACHINE, DISK, INTERFACE)
    world.cloud.with_machines = {DISK.id, INTERFACE.id}
    found = results(world.clean())
    assert found == {MACHINE.id: Result.REMOVED, DISK.id: Result.GONE, INTERFACE.id: Result.GONE}
    assert set(world.cloud.asked) == {MACHINE.id}


def test_what_lives_is_left_alone_beside_what_does_not(world):
    mine = thing(Kind.INSTANCE, OTHER, deadline=PAST)
    world.cloud.add(MACHINE, KEY, mine, thing(Kind.KEY_PAIR, OTHER))
    post(world.store, hours(0), OTHER)
    world.clean()
    assert world.cloud.ids() == {mine.id, f"key-pair-{OTHER}-1"}


def test_a_run_that_came_back_to_life_since_it_was_listed_is_kept(world):
    world.cloud.add(*ALL)
    sweep = world.look()
    post(world.store, hours(0))
    done = world.clean(sweep)
    assert set(results(done).values()) == {Result.KEPT}
    assert done[0].reason == "run lives: agent heard 0 s ago"
    assert world.cloud.asked == []
    assert exit_code(sweep, done, interrupted=False) is ExitCode.DONE


def test_a_run_that_comes_back_to_life_while_its_machine_ends_keeps_the_rest(world):
    world.cloud.add(MACHINE, KEY)
    world.clock.at(30, lambda: beat(world.store, world.clock.now()))
    found = results(world.clean())
    assert found == {MACHINE.id: Result.REMOVED, KEY.id: Result.KEPT}
    assert world.cloud.ids() == {KEY.id}


def test_each_run_is_looked_at_right_before_its_own_removal(world):
    """Not before the first of many: by the last one's turn it may live again."""
    late = thing(Kind.INSTANCE, OTHER, deadline=PAST)
    world.cloud.add(MACHINE, late)
    world.cloud.before_call = lambda call: post(world.store, hours(0), OTHER) if call == "remove" else None
    assert results(world.clean()) == {MACHINE.id: Result.REMOVED, late.id: Result.KEPT}


def test_what_cannot_be_looked_at_again_is_not_removed(world):
    world.cloud.add(MACHINE)
    sweep = world.look()
    world.cloud.dark[REGION] = "AWS does not allow this"
    (done,) = world.clean(sweep)
    assert done.result is Result.FAILED
    assert "cannot be looked at again: AWS does not allow this" in done.reason
    assert world.cloud.asked == []


def test_a_machine_stays_in_the_list_until_the_provider_says_that_it_is_gone(world):
    """C07: a restart that failed dropped the cluster from the table, and it ran on."""
    world.cloud.add(MACHINE, KEY)
    world.cloud.stuck = {MACHINE.id}
    sweep = world.look()
    done = world.clean(sweep)
    assert results(done) == {MACHINE.id: Result.UNCONFIRMED, KEY.id: Result.REMOVED}
    assert exit_code(sweep, done, interrupted=False) is ExitCode.NOT_CONFIRMED_GONE
    assert world.clock.elapsed <= AWS.stop_limit_seconds + AWS.poll_seconds
    assert MACHINE.id in reasons(world.look())
    text = show_done(done, AWS)
    assert text.splitlines()[-2].startswith(f"NOT CONFIRMED GONE: instance {MACHINE.id} {REGION}")
    assert text.splitlines()[-1].endswith(f"aws ec2 terminate-instances --region us-east-1 --instance-ids {MACHINE.id}")


def test_what_a_machine_holds_is_not_waited_for_where_the_machine_cannot_be_ended(world):
    world.cloud.add(MACHINE, DISK, KEY)
    world.cloud.refused = {MACHINE.id}
    done = world.clean()
    assert results(done) == {MACHINE.id: Result.FAILED, DISK.id: Result.UNCONFIRMED, KEY.id: Result.REMOVED}
    assert done[-1].reason == f"{DISK.id} is held by {MACHINE.id}; its machine is still there"
    assert world.clock.elapsed == 0


def test_one_failure_leaves_the_rest_to_be_done(world):
    world.cloud.add(*ALL)
    world.cloud.refused = {DISK.id, REQUEST.id}
    sweep = world.look()
    done = world.clean(sweep)
    assert {id_ for id_, result in results(done).items() if result is Result.FAILED} == {DISK.id, REQUEST.id}
    assert world.cloud.ids() == {DISK.id, REQUEST.id}
    assert exit_code(sweep, done, interrupted=False) is ExitCode.NOT_CONFIRMED_GONE


def test_a_refusal_of_what_is_not_billed_is_no_unconfirmed_stop(world):
    world.cloud.add(MACHINE, KEY)
    world.cloud.refused = {KEY.id}
    sweep = world.look()
    assert exit_code(sweep, world.clean(sweep), interrupted=False) is ExitCode.REFUSED


def test_a_lost_answer_is_asked_for_again(world):
    world.cloud.add(DISK, KEY)
    world.cloud.lost_answers = 2
    assert results(world.clean()) == {DISK.id: Result.REMOVED, KEY.id: Result.REMOVED}


def test_a_second_sweep_finds_a_machine_that_is_ending_and_leaves_it(world):
    world.cloud.add(MACHINE)
    world.cloud.remove(MACHINE)
    assert reasons(world.look())[MACHINE.id] == "keep: is ending already"


def test_hundreds_of_stale_things_all_go(world):
    """I08: two hundred stale runners had piled up, and blocked new ones."""
    runs = [f"20261130T0{at // 60}{at % 60:02d}00-{at:04x}-job" for at in range(200)]
    stale = [thing(kind, run, deadline=PAST) for run in runs for kind in (Kind.KEY_PAIR, Kind.SECURITY_GROUP)]
    world.cloud.add(*stale)
    assert set(results(world.clean()).values()) == {Result.REMOVED}
    assert world.cloud.ids() == set()


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_region_that_cannot_be_asked_is_a_gap_and_the_rest_is_swept(world):
    world.cloud.add(MACHINE)
    world.cloud.dark["eu-west-1"] = "AWS does not allow this (an explicit deny)"
    sweep = world.look()
    assert [(gap.where, gap.reason) for gap in sweep.gaps] == [
        ("eu-west-1", "AWS does not allow this (an explicit deny)")
    ]
    assert sweep_document(sweep, None)["complete"] is False
    done = world.clean(sweep)
    assert results(done) == {MACHINE.id: Result.REMOVED}
    assert exit_code(sweep, done, interrupted=False) is ExitCode.REFUSED


@pytest.mark.parametrize("error", [RefusedError("no usable credentials", hint="log in"), UnreachableError("no route")])
def test_an_account_that_cannot_be_asked_at_all_is_one_error(world, error):
    def fail(_call):
        raise error

    world.cloud.before_call = fail
    with pytest.raises(ProviderError, match=str(error)) as raised:
        world.look()
    assert raised.value.hint


def test_a_storage_that_fails_while_a_prefix_is_listed_stops_nothing(world):
    world.cloud.add(MACHINE)
    world.store.fail("list", error=StorageError("cannot be reached"))
    sweep = world.look()
    assert [gap.where for gap in sweep.gaps] == [OUTPUT]
    assert orphans(sweep) == {MACHINE.id}


def test_an_interrupt_ends_the_removal_between_two_calls_and_says_what_was_not_done(world):
    others = [thing(Kind.INSTANCE, OTHER, deadline=PAST), thing(Kind.KEY_PAIR, OTHER, deadline=PAST)]
    world.cloud.add(MACHINE, KEY, *others)
    world.cloud.before_call = lambda call: signal.raise_signal(signal.SIGINT) if call == "remove" else None
    sweep = world.look()
    done = world.clean(sweep)
    assert results(done) == {
        MACHINE.id: Result.UNCONFIRMED,
        others[0].id: Result.NOT_DONE,
        KEY.id: Result.NOT_DONE,
        others[1].id: Result.NOT_DONE,
    }
    assert "interrupted" in done[0].reason
    assert world.cloud.asked == [MACHINE.id]
    assert exit_code(sweep, done, interrupted=True) is ExitCode.INTERRUPTED


def test_an_interrupt_cuts_the_wait_for_the_provider_short(world):
    world.cloud.add(MACHINE)
    world.clock.at(7, lambda: signal.raise_signal(signal.SIGINT))
    done = world.clean()
    assert results(done) == {MACHINE.id: Result.UNCONFIRMED}
    assert world.clock.elapsed == 7


def test_an_interrupt_after_the_last_removal_changes_nothing(world):
    world.cloud.add(KEY, DISK)
    done = world.clean()
    assert exit_code(world.look(), done, interrupted=True) is ExitCode.DONE


# -- how it looks ------------------------------------------------------------------------------------------------------


def test_each_thing_stands_below_its_run_which_says_whether_it_lives(world):
    world.cloud.add(
        MACHINE, thing(Kind.INSTANCE, OTHER, deadline=hours(3), made_at=hours(-3)), KEY, thing(Kind.VOLUME, None)
    )
    post(world.store, hours(-0.01), OTHER)
    lines = show_sweep(world.look()).splitlines()
    at = lines.index(f"run {RUN}: nothing was ever heard of its run")
    assert [line.split()[:2] for line in lines[at + 1 : at + 3]] == [["instance", MACHINE.id], ["key", "pair"]]
    assert lines[at + 1].endswith("REMOVE: its deadline was 2 h 00 min ago, nothing was ever heard of its run")
    at = lines.index(f"run {OTHER}: run lives: agent heard 36 s ago")
    assert "3 h 00 min" in lines[at + 1]
    assert "2026-12-01 12:00" in lines[at + 1]
    assert "of no run" in lines
    assert "storage: never deleted" in lines


def test_in_a_narrow_terminal_it_is_left_out_what_a_thing_is(world):
    world.cloud.add(MACHINE)
    assert "g4dn.xlarge" in show_sweep(world.look(), width=200)
    assert "g4dn.xlarge" not in show_sweep(world.look(), width=100)


def test_an_upload_is_called_by_its_place_in_its_run(world):
    world.cloud.add(UPLOAD, MACHINE)
    (line,) = [line for line in show_sweep(world.look()).splitlines() if line.startswith("  upload")]
    assert line.split()[1:3] == ["tasks/t/x.pt", OUTPUT]


def test_an_empty_account_says_so(world):
    kept = "results stay in the storage; --output shows what a prefix holds"
    assert show_sweep(world.look()) == f"nothing of gpucost's in 2 regions ({kept})"
    assert show_sweep(world.look(Scope(regions=(REGION,)))) == f"nothing of gpucost's in us-east-1 ({kept})"


def test_the_document_has_every_thing_its_verdict_and_its_result(world):
    world.cloud.add(MACHINE, KEY)
    world.cloud.refused = {KEY.id}
    sweep = world.look()
    document = json.loads(json.dumps(sweep_document(sweep, world.clean(sweep)), default=str))
    rows = {row["id"]: (row["action"], row["result"]) for row in document["items"]}
    assert rows[MACHINE.id] == ("remove", "removed")
    assert rows[KEY.id] == ("remove", "not removed")
    assert rows[OUTPUT] == ("keep", None)
    assert (document["dry_run"], document["orphans"], document["orphan_usd_per_day"]) == (False, 2, "4.80")


def test_the_grace_time_is_longer_than_the_slowest_stop():
    """The other three stops have done what they can by then: the last upload, the terminate loop, the power-off."""
    slowest = AWS.drain_seconds + AWS.stop_limit_seconds + AWS.power_off_seconds
    assert timedelta(seconds=slowest) < GRACE


def test_a_thing_that_can_start_a_machine_may_bill_although_it_costs_nothing_yet():
    assert [one.may_bill for one in (REQUEST, KEY, DISK, UPLOAD)] == [True, False, True, True]
    assert Found(Kind.VOLUME, "v", REGION).may_bill
