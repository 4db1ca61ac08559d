"""The end of a machine: deadline, budget, power. Whatever its parts do, the agent alone ends it in time."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from agent_ports import MachineGone

from remote import protocol
from remote.agent.processes import Answer
from remote.protocol import Budget, Phase, PricePoint, Reason, TaskProgress, TaskState


def test_training_stops_before_the_deadline_so_that_the_upload_is_inside_it(lease) -> None:
    one = lease(deadline=1_000_000 + 300, linger_seconds=900)
    one.programs.plans["task/a"] = [one.training(None)]
    one.watch(250)
    status = one.run()
    assert status.reason is Reason.DEADLINE
    assert status.phase_seconds["training"] == pytest.approx(300 - 90 - 4, abs=4)
    assert one.clock.time == pytest.approx(one.job.deadline, abs=2), "a launcher that watches has until the deadline"


def test_at_the_deadline_everything_is_cut_short(lease) -> None:
    one = lease(deadline=1_000_000 + 60, save_reserve_seconds=10)
    one.programs.plans["transfer/stage"] = [one.staging(seconds=10_000)]
    status = one.run()
    assert (status.phase, status.reason) == (Phase.ENDED, Reason.DEADLINE)
    assert one.clock.time < one.job.deadline + 3


def test_a_silent_launcher_never_stops_a_healthy_run(lease) -> None:
    one = lease(linger_seconds=60, beat_seconds=10)
    one.programs.plans["task/a"] = [one.training(2000)]
    assert one.run().reason is Reason.COMPLETED


@pytest.mark.parametrize(("seen", "lingers"), [(20, True), (1, False)])
def test_the_machine_waits_for_a_launcher_that_showed_itself_lately(lease, seen: float, lingers: bool) -> None:
    one = lease(linger_seconds=60)
    one.programs.plans["task/a"] = [one.training(80)]
    one.watch(seen if not lingers else 80)
    one.run()
    waited = one.clock.time - one.clock.start - 90
    assert (waited > 30) is lingers


def test_a_power_off_that_fails_is_tried_until_it_works(lease) -> None:
    one = lease()
    one.programs.answers["poweroff"] = OSError(1, "not permitted")
    one.clock.at(200, lambda: one.programs.answers.update(poweroff=MachineGone()))
    one.run()
    assert one.programs.commands.count(["poweroff"]) > 20


@pytest.mark.parametrize(
    "answer",
    [
        Answer(-15, ""),
        Answer(143, "Terminated"),
        Answer(1, "Call to PowerOff failed: There's already a shutdown or sleep operation in progress"),
    ],
)
def test_an_agent_whose_power_off_meets_its_own_shutdown_leaves_at_once(lease, answer: Answer) -> None:
    one = lease(linger_seconds=0)
    supervisor = one.supervisor()
    one.programs.answers["poweroff"] = answer
    one.clock.at(60, supervisor.terminate)
    supervisor.run()
    assert one.clock.time <= one.clock.start + 62


def test_an_agent_leaves_within_a_beat_of_the_shutdown_that_it_asked_for(lease) -> None:
    one = lease(linger_seconds=0)
    supervisor = one.supervisor()
    one.programs.answers["poweroff"] = Answer(0, "")
    one.clock.at(58, lambda: one.programs.answers.update(poweroff=Answer(1, "busy")))
    one.clock.at(61, supervisor.terminate)
    supervisor.run()
    assert one.clock.time <= one.clock.start + 63


def test_a_lost_lease_folder_still_ends_at_the_deadline(lease) -> None:
    one = lease(deadline=1_000_000 + 300)
    one.clock.at(10, lambda: shutil.rmtree(one.paths.root))
    one.programs.plans["task/a"] = [lambda child: None]
    with pytest.raises(MachineGone):
        one.supervisor().run()
    assert one.programs.commands == [["poweroff"]]
    assert one.clock.time < one.job.deadline + 3


def test_a_mistake_of_our_own_still_stores_what_was_trained_and_powers_off(lease) -> None:
    one = lease()
    one.programs.plans["task/a"] = [one.training(None)]
    one.clock.at(10, lambda: setattr(one.notices, "broken", KeyError("surprise")))
    one.clock.at(11, lambda: setattr(one.notices, "broken", None))
    status = one.run()
    assert status.reason is Reason.TRAINER_FAILED
    assert "internal error of the agent: KeyError" in status.message
    assert status.tasks[0].state is TaskState.INTERRUPTED
    assert "transfer/outcome" in one.programs.names()


def test_a_mistake_that_stays_ends_the_machine_all_the_same(lease) -> None:
    one = lease()
    one.notices.broken = KeyError("surprise")
    status = one.run()
    assert (status.phase, status.reason) == (Phase.ENDED, Reason.TRAINER_FAILED)
    assert one.programs.commands == [["poweroff"]]


def budget(lease, cap: float, usd_per_hour: float = 36.0) -> Budget:
    """One cent a second from the start, unless told otherwise."""
    return Budget(cap, 0.0, [PricePoint(lease.clock.start, usd_per_hour)], 0.0)


def test_training_stops_before_the_budget_is_passed_and_the_machine_goes_with_it(lease) -> None:
    one = lease(linger_seconds=900)
    one.job = replace(one.job, budget=budget(one, cap=3.0))
    one.programs.plans["task/a"] = [one.training(None)]
    one.watch(250)
    status = one.run()
    assert status.reason is Reason.BUDGET
    assert status.message.startswith("the budget pays for no more training: $2.1")
    assert status.tasks[0].state is TaskState.INTERRUPTED
    assert status.phase_seconds["training"] == pytest.approx(300 - 90 - 4, abs=4)
    assert one.clock.time == pytest.approx(one.clock.start + 300, abs=2), "whoever watches"


def test_a_price_that_rises_ends_training_sooner(lease) -> None:
    one = lease()
    one.job = replace(one.job, budget=budget(one, cap=10.0))
    one.programs.plans["task/a"] = [one.training(None)]
    dearer = budget(one, cap=10.0)
    dearer = replace(dearer, points=[*dearer.points, PricePoint(one.clock.start + 100, 180.0)])
    one.clock.at(100, lambda: protocol.write(one.paths.budget, dearer))
    assert one.run().reason is Reason.BUDGET
    assert one.clock.time < one.clock.start + 100 + 9.0 / 0.05


def test_a_budget_that_is_gone_ends_the_machine_at_once(lease) -> None:
    one = lease()
    one.job = replace(one.job, budget=budget(one, cap=10.0))
    one.programs.plans["task/a"] = [one.training(None)]
    one.clock.at(50, lambda: protocol.write(one.paths.budget, budget(one, cap=0.1)))
    status = one.run()
    assert (status.phase, status.reason) == (Phase.ENDED, Reason.BUDGET)
    assert "not everything was stored" in status.message
    assert one.clock.time < one.clock.start + 54


def test_a_budget_that_is_raised_lets_training_go_on(lease) -> None:
    one = lease(beat_seconds=4)
    one.job = replace(one.job, budget=budget(one, cap=3.0))
    one.programs.plans["task/a"] = [one.training(400)]
    one.clock.at(100, lambda: protocol.write(one.paths.budget, budget(one, cap=30.0)))
    assert one.run().reason is Reason.COMPLETED


def test_the_status_is_posted_from_the_first_beat_to_the_last(lease) -> None:
    one = lease()
    one.programs.plans["transfer/post"] = [one.posting(seconds=3)]
    one.run()
    assert one.programs.names()[0] == "transfer/post"
    assert one.programs.last("transfer/post").signals == [], "it ended by itself, before the power-off"


def test_a_post_that_hangs_delays_the_end_by_seconds_and_is_ended(lease) -> None:
    one = lease()
    one.programs.plans["transfer/post"] = [lambda child: None]
    ended = one.run()
    assert one.programs.last("transfer/post").signals == ["KILL"]
    assert one.clock.time - ended.at == pytest.approx(10, abs=1)


HANGS = {
    "a staging whose storage hangs": ("transfer/stage", lambda lease: lambda child: None),
    "a training that ignores SIGTERM": ("task/a", lambda lease: lease.training(None, save_seconds=None)),
    "a training that never tells a step": ("task/a", lambda lease: lambda child: setattr(child, "save_seconds", None)),
    "a sync that hangs": ("transfer/sync", lambda lease: lambda child: None),
    "a sync that goes on for ever": ("transfer/sync", lambda lease: lease.syncing(seconds=1e9)),
    "a sync that fails each time": ("transfer/sync", lambda lease: lease.syncing(code=1, message="503")),
    "a post that hangs": ("transfer/post", lambda lease: lambda child: None),
    "a post that dies each time": ("transfer/post", lambda lease: lambda child: child.ends_in(0, 1)),
    "an outcome that hangs": ("transfer/outcome", lambda lease: lambda child: None),
}


@pytest.mark.parametrize("hang", HANGS)
def test_with_no_launcher_no_timer_and_no_cloud_the_agent_ends_the_machine_by_its_deadline(lease, hang: str) -> None:
    """C22: whatever its parts do."""
    one = lease(deadline=1_000_000 + 300, beat_seconds=2)
    one.programs.plans["task/a"] = [one.training(None)]
    name, plan = HANGS[hang]
    one.programs.plans[name] = [plan(one)]
    status = one.run()
    assert one.programs.commands == [["poweroff"]]
    assert one.clock.time <= one.job.deadline + 4
    assert (status.phase, status.reason) == (Phase.ENDED, Reason.DEADLINE)


def test_a_clock_that_is_set_back_does_not_extend_the_life_of_a_machine(lease) -> None:
    one = lease(deadline=1_000_000 + 400)
    one.programs.plans["task/a"] = [one.training(None)]
    one.clock.at(100, lambda: setattr(one.clock, "skew", -5 * 3600.0))
    assert one.run().reason is Reason.DEADLINE
    assert one.clock.time <= one.job.deadline + 2


def test_a_clock_that_was_behind_and_is_put_right_counts_at_once(lease) -> None:
    one = lease(deadline=1_000_000 + 4000)
    one.programs.plans["task/a"] = [one.training(None)]
    one.clock.at(100, lambda: setattr(one.clock, "skew", 3600.0))
    assert one.run().reason is Reason.DEADLINE
    assert one.clock.time <= one.clock.start + 400 + 2


def test_a_launcher_that_watches_an_idle_machine_for_ever_does_not_keep_it(lease) -> None:
    """C27: no idle logic stands between the machine and its deadline."""
    one = lease(deadline=1_000_000 + 300, linger_seconds=60)
    for second in range(0, 1000, 30):
        one.watch(second)
    assert one.run().reason is Reason.COMPLETED
    assert one.clock.time == pytest.approx(one.job.deadline, abs=2)


def test_a_training_that_nobody_watches_is_not_idle(lease) -> None:
    """U08: steps are activity, and so is a validation that makes none; only the deadline ends either."""
    one = lease(linger_seconds=60, beat_seconds=10, deadline=1_000_000 + 10_000)

    def validating(child) -> None:
        one.training(None)(child)
        began = one.clock.time
        progress = one.paths.task("a").progress

        def tell(now: float) -> None:
            protocol.write(progress, TaskProgress(1, 9, min(int(now - began), 500), 900, 0.0, at=now))

        child.on_poll = tell

    one.programs.plans["task/a"] = [validating]
    status = one.run()
    assert status.reason is Reason.DEADLINE
    assert status.tasks[0].attempts == 1


def test_the_machine_is_not_left_before_the_last_upload_is_done(lease) -> None:
    """L05: flush, then stop."""
    one = lease()
    one.programs.plans["transfer/sync"] = [one.syncing(seconds=300)]
    one.run()
    assert one.programs.last("transfer/sync").code == 0
    assert one.programs.last("transfer/sync").ends_at < one.programs.last("transfer/outcome").ends_at
    assert one.programs.last("transfer/outcome").ends_at <= one.clock.time


def test_training_leaves_time_for_the_last_save_and_upload(lease) -> None:
    """P08: the money runs out, and the work is safe."""
    one = lease(beat_seconds=5)
    one.job = replace(one.job, budget=budget(one, cap=14.0), save_reserve_seconds=120)
    one.programs.plans["task/a"] = [one.training(None, save_seconds=40)]
    one.programs.plans["transfer/sync"] = [one.syncing(seconds=50)]
    status = one.run()
    assert (status.reason, status.tasks[0].exit_code) == (Reason.BUDGET, 75)
    assert one.programs.last("transfer/sync").code == 0
    assert "not finished" not in status.message
    assert one.clock.time <= one.clock.start + 1400 + 5
