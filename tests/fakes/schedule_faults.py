"""What goes wrong in a fault schedule. Each fault plans itself into the world and says in a few words what it did."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from random import Random

from cut_journal import Cut
from fake_machine import FakeMachine
from launcher_processes import Process
from launcher_world import DEMAND_EAST, SPOT_EAST, SPOT_WEST
from schedule_world import ScheduleWorld

from launcher.errors import BadInput
from launcher.providers.interface import CapacityError, EndCause, QuotaError, UnreachableError
from launcher.storage.interface import StorageError
from pricing.offers import CapacityType

TIMES = (3, 20, 90, 400)
"""How long something is out."""


Fault = Callable[["Schedule"], str]


@dataclass
class Schedule:
    """One schedule while it is made and played."""

    world: ScheduleWorld
    random: Random
    faults: list[str] = field(default_factory=list)
    """In words."""
    drawn: list[Fault] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    """At which journal line the next launchers die."""
    clocks: tuple[float, ...] = (0.0,)
    """How far ahead the clock of a launcher may be."""
    more_usd: Decimal | None = None
    """What the second launcher adds to the budget."""
    returns: bool = True
    """False: when the first launcher has died, nobody ever comes back."""
    moves: bool = False
    """Each launcher is on another machine than the one before."""
    others: list[Process] = field(default_factory=list)
    run_id: str = ""
    horizon: float = 450
    """Seconds in which things go wrong: a little longer than an undisturbed run."""

    @property
    def leaves_it(self) -> bool:
        """Whether nobody comes back. Before the other stops are there, it takes the machine's own timer for that."""
        return not self.returns and self.world.provider.timers

    def moment(self) -> float:
        """Some time in which the run may go on."""
        return round(self.random.uniform(0, self.horizon), 1)

    def each_alive(self, elapsed: float, action: Callable[[FakeMachine], None], *, spot: bool = False) -> None:
        """Do something to the machine that lives then, if it is one of those."""

        def act() -> None:
            for machine in self.world.provider.alive():
                if not spot or machine.request.offer.capacity_type is CapacityType.SPOT:
                    action(machine)

        self.world.clock.at(elapsed, act)

    def between(self, begin: float, seconds: float, change: Callable[[bool], None]) -> None:
        """`change(True)` at the beginning, `change(False)` at the end."""
        self.world.clock.at(begin, lambda: change(True))
        self.world.clock.at(begin + seconds, lambda: change(False))


def _out(name: str, choose: Callable[[ScheduleWorld], object], *, means: bool = True) -> Fault:
    """Something is out for a while: its attribute `name` is `means` meanwhile."""

    def fault(s: Schedule) -> str:
        target, begin, seconds = choose(s.world), s.moment(), s.random.choice(TIMES)
        s.between(begin, seconds, lambda out: setattr(target, name, means if out else not means))
        s.world.truth.silent_seconds += seconds
        return f"{type(target).__name__}.{name} = {means} from {begin:.0f} s for {seconds} s"

    return fault


def machines_cut_off(s: Schedule) -> str:
    """Machines do not reach the storage: checkpoints, posts and outcomes wait."""
    begin, seconds = s.moment(), s.random.choice(TIMES)
    s.between(begin, seconds, lambda out: setattr(s.world.store, "down_for_machines", out))
    start = s.world.clock.start
    s.world.truth.storage_out.append((start + timedelta(seconds=begin), start + timedelta(seconds=begin + seconds)))
    return f"no storage for machines from {begin:.0f} s for {seconds} s"


def refused(s: Schedule) -> str:
    """No capacity, or no quota, for an offer."""
    offer, times = s.random.choice([SPOT_EAST, SPOT_EAST, SPOT_WEST, DEMAND_EAST]), s.random.randint(1, 3)
    error = s.random.choice([None, QuotaError("VcpuLimitExceeded")])
    s.world.provider.refuse(offer.key, times=times, error=error)
    return f"{offer.key} refused {times} times ({error or 'capacity'})"


def launched_twice(s: Schedule) -> str:
    """The answers to a launch that is carried out are lost, and then there is said to be no room: on to the next zone.

    The machine may not show up for a while. Whoever goes on at once pays for two.
    """
    lost, hidden = s.random.randint(1, 4), s.random.choice([0, 20, 60, 85])
    s.world.provider.fail("launch", UnreachableError("read timed out"), times=lost, effect=True)
    s.world.provider.fail("launch", CapacityError("InsufficientInstanceCapacity"))
    s.world.provider.visible_seconds = hidden
    return f"{lost} launches done and not answered, then no capacity; machines show up after {hidden} s"


def launch_times_out(s: Schedule) -> str:
    """A launch is not answered, and not carried out."""
    times = s.random.randint(1, 5)
    s.world.provider.fail("launch", UnreachableError("connect timed out"), times=times)
    return f"{times} launches time out"


def throttled(s: Schedule) -> str:
    """Some calls of the provider fail."""
    call, times = s.random.choice(["find", "describe", "terminate", "clean_up"]), s.random.randint(1, 6)
    s.world.provider.fail(call, UnreachableError("RequestLimitExceeded"), times=times)
    return f"{call} throttled {times} times"


def slow_cloud(s: Schedule) -> str:
    """Late and flickering visibility, slow boots, slow ends."""
    cloud, choose = s.world.provider, s.random.choice
    cloud.visible_seconds = max(cloud.visible_seconds, choose([0, 10, 50, 85]))
    cloud.flickers = choose([None, Random(s.random.random())])  # noqa: S311 - seeded on purpose
    cloud.boot_seconds = choose([5, 20, 120])
    cloud.console_seconds = cloud.boot_seconds + choose([1, 10, 100])
    cloud.end_seconds = choose([1, 10, 50])
    return (
        f"machines show up after {cloud.visible_seconds} s{' and flicker' if cloud.flickers else ''}, boot in "
        f"{cloud.boot_seconds} s, end in {cloud.end_seconds} s"
    )


def slow_calls(s: Schedule) -> str:
    """Each call of a port takes a while after its effect: whoever else lives may act in between."""
    longest = s.random.choice([0.5, 3, 15])
    own = Random(s.random.random())  # noqa: S311 - seeded on purpose

    def late(_name: str) -> None:
        s.world.clock.sleep(own.uniform(0, longest))

    for port in (s.world.store, s.world.provider, s.world.timer):
        port.after_call = late
    return f"calls take up to {longest} s"


def storage_errors(s: Schedule) -> str:
    """Single calls of the launcher to the storage fail, some of them once they are carried out."""
    call = s.random.choice(["create", "upload", "get", "list", "download"])
    part = s.random.choice(["", "", "/journal/", "launcher.json"])
    times, effect = s.random.randint(1, 4), s.random.random() < 0.5
    s.world.store.fail(call, part, times=times, effect=effect)
    return f"{times} times 500 for {call} of *{part}*{' once it is done' if effect else ''}"


def preempted(s: Schedule) -> str:
    """A spot machine gets its notice."""
    at, notice = s.moment(), s.random.choice([5, 30, 120])
    s.each_alive(at, lambda machine: s.world.provider.preempt(machine, notice), spot=True)
    return f"notice of {notice} s at {at:.0f} s"


def lost(s: Schedule) -> str:
    """A machine is gone without a word."""
    at = s.moment()
    s.each_alive(at, s.world.provider.lose)
    return f"machine gone at {at:.0f} s"


def ended_by_hand(s: Schedule) -> str:
    """Somebody terminates the machine in the console."""
    at = s.moment()
    s.each_alive(at, lambda machine: machine.end(EndCause.USER, "Client.UserInitiatedShutdown"))
    return f"machine ended by hand at {at:.0f} s"


def launcher_killed(s: Schedule) -> str:
    """The launcher dies at a time."""
    at = s.moment()
    s.world.kill_at(at)
    return f"launcher killed at {at:.0f} s"


def launcher_cut(s: Schedule) -> str:
    """The launcher dies at a journal line."""
    cut = Cut(s.random.randint(1, 14), before=s.random.random() < 0.5)
    s.cuts.append(cut)
    return f"a launcher dies {'before' if cut.before else 'after'} line {cut.line}"


def nobody_returns(s: Schedule) -> str:
    """The launcher dies, and nobody ever comes back: everything must end by itself."""
    s.returns = False
    return f"{launcher_killed(s)} for good"


def interrupted(s: Schedule) -> str:
    """The launcher gets a signal."""
    at, number = s.moment(), s.random.choice([signal.SIGINT, signal.SIGTERM])
    s.world.signal_at(at, number)
    return f"{number.name} at {at:.0f} s"


def suspended(s: Schedule) -> str:
    """The laptop is closed for a while: the launcher stands still, the world does not."""
    at, seconds = s.moment(), s.random.choice([100, 600, 5000])
    _stands_still(s, at, seconds)
    return f"launcher stands still at {at:.0f} s for {seconds} s"


def _stands_still(s: Schedule, at: float, seconds: float) -> None:
    def sleep() -> None:
        if s.world.clock.running is None:
            s.world.clock.sleep(seconds)

    s.world.clock.at(at, sleep)
    s.world.truth.silent_seconds += seconds


def slept_over_a_launch(s: Schedule) -> str:
    """The laptop is closed between two tries of a launch, and opened when somebody else has dealt with the run."""
    how, tries = s.random.choice(["resume", "take over", "stop"]), s.random.randint(1, 3)
    s.world.provider.fail("launch", UnreachableError("connect timed out"), times=tries)
    _stands_still(s, 1, s.random.choice([300, 600]))
    _comes(s, 200 if how == "resume" else 2, 5000, how)
    return f"launcher stands still between {tries} launches that time out, and another comes to {how}"


def moved(s: Schedule) -> str:
    """Each launcher that goes on is on another machine, with nothing but the prefix."""
    s.moves = True
    return "each next launcher is on another machine"


def second_launcher(s: Schedule) -> str:
    """Somebody on another machine resumes the run, takes it over or stops it, while the first launcher may live."""
    at, seconds = s.moment(), s.random.choice([30, 200, 100_000])
    how = s.random.choice(["resume", "take over", "stop"])
    _comes(s, at, seconds, how)
    return f"another launcher comes to {how} at {at:.0f} s, for at most {seconds} s"


def _comes(s: Schedule, at: float, seconds: float, how: str) -> None:
    other = s.world.elsewhere(f"other{len(s.faults)}")
    other.set_clock(s.random.choice(s.clocks))

    def go_on() -> None:
        try:
            other.adopt(s.run_id)
        except (BadInput, StorageError):  # nothing of the run is in the storage, or it does not answer
            return
        other.live(lambda: other.stop(s.run_id) if how == "stop" else other.drive(s.run_id, by_force=how != "resume"))

    def begin() -> None:
        process = Process(s.world.clock, go_on)
        s.others.append(process)
        process.start()
        s.world.clock.after(seconds, process.kill)

    s.world.clock.at(at, begin)


def budget_raised(s: Schedule) -> str:
    """The next launcher raises the budget."""
    s.more_usd = Decimal(s.random.choice(["0.01", "0.05", "1"]))
    s.cuts.append(Cut(s.random.randint(5, 12), before=False))
    return f"budget +{s.more_usd} after the launcher died at line {s.cuts[-1].line}"


def agent_killed(s: Schedule) -> str:
    """The agent's process dies."""
    at = s.moment()
    s.each_alive(at, lambda machine: machine.kill_agent() if machine.agent is not None else None)
    return f"agent killed at {at:.0f} s"


def failing_trainer(s: Schedule) -> str:
    """The trainer ends with a code of its own."""
    s.world.script.fails_at_epoch = s.random.randint(1, 6)
    return f"trainer fails in epoch {s.world.script.fails_at_epoch}"


def slow_transfers(s: Schedule) -> str:
    """Saving and uploading take long."""
    script, choose = s.world.script, s.random.choice
    script.saving, script.syncing, script.uploading = choose([1, 30, 90]), choose([1, 30, 90]), choose([0, 5, 40])
    return f"saving takes {script.saving} s, uploads {script.uploading} s, the last sync {script.syncing} s"


def silent_agent(s: Schedule) -> str:
    """The agent's posts do not arrive."""
    s.world.script.posts = False
    return "no posts"


def wrong_clocks(s: Schedule) -> str:
    """The machines' clock is wrong, and each launcher's in its own way."""
    s.clocks = (0.0, s.random.choice([-240.0, -30.0, 40.0, 280.0]))
    s.world.provider.clocks_ahead = s.random.choice([-180.0, -20.0, 0.0, 20.0, 180.0])
    s.world.truth.clocks.add(s.world.provider.clocks_ahead)
    return f"clocks of launchers off by {s.clocks[1]:.0f} s, of machines by {s.world.provider.clocks_ahead:.0f} s"


def broken_stops(s: Schedule) -> str:
    """Some of the stops that need no launcher do not work; never all of them."""
    broken = set(s.random.choice([("timer",), ("cloud",), ("agent",), ("timer", "agent"), ("cloud", "agent")]))
    s.world.provider.timers = "timer" not in broken
    s.world.timer.works = "cloud" not in broken
    if "agent" in broken:
        s.each_alive(s.random.choice([70, 200]), lambda machine: machine.kill_agent() if machine.agent else None)
    return f"broken: {', '.join(sorted(broken))}"


def timer_refused(s: Schedule) -> str:
    """The cloud does not hold a stop for us."""
    s.world.timer.permitted = False
    return "no stop held by the cloud"


def timer_unsure(s: Schedule) -> str:
    """Calls of the cloud's timer fail, some once they are carried out."""
    call, times, effect = s.random.choice(["arm", "disarm"]), s.random.randint(1, 5), s.random.random() < 0.5
    s.world.timer.fail(call, UnreachableError("InternalServerException"), times=times, effect=effect)
    return f"{times} times no answer to {call} of the cloud's timer{', once it is done' if effect else ''}"


def dearer(s: Schedule) -> str:
    """The price of the spot machines changes."""
    at, offer = s.moment() / 2, s.random.choice([SPOT_EAST, SPOT_EAST, SPOT_WEST])
    usd = offer.usd_per_hour * Decimal(s.random.choice(["0.5", "1.5", "1.5", "2.1"]))
    s.world.clock.at(at, lambda: s.world.truth.prices.set(offer.key, usd))
    return f"{offer.key} costs {usd} from {at:.0f} s"


FAULTS: tuple[Fault, ...] = (
    _out("down", lambda w: w.provider),
    _out("down", lambda w: w.connector),
    _out("down", lambda w: w.store),
    _out("down", lambda w: w.timer),
    _out("down", lambda w: w.prices),
    _out("terminates", lambda w: w.provider, means=False),
    machines_cut_off,
    refused,
    launched_twice,
    launch_times_out,
    throttled,
    slow_cloud,
    slow_calls,
    storage_errors,
    preempted,
    lost,
    ended_by_hand,
    launcher_killed,
    launcher_killed,
    launcher_cut,
    nobody_returns,
    interrupted,
    suspended,
    slept_over_a_launch,
    moved,
    second_launcher,
    second_launcher,
    budget_raised,
    agent_killed,
    failing_trainer,
    slow_transfers,
    silent_agent,
    wrong_clocks,
    broken_stops,
    timer_refused,
    timer_unsure,
    dearer,
    dearer,
)
