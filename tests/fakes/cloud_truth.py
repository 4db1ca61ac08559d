"""What must hold whatever happened, measured on the simulated cloud itself and not on what a launcher believes.

Money is what the cloud bills: seconds from the launch until the machine goes down, at the prices that were in force,
nothing for a spot machine that is taken back in its first hour. What nobody in the product can know is allowed for and
no more: see `excuses`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from fake_agent import AGAIN_SECONDS
from fake_machine import FakeMachine
from schedule_world import ScheduleWorld

from launcher.events import CloudStopArmed, Event, InstanceCreated, LaunchRequested, LeaseClosed, PriceChanged
from launcher.journal import decode, replay
from launcher.providers.interface import EndCause
from launcher.run import Run
from pricing.cost import PriceChange, cost_lines, refund_lines, total
from remote.protocol import StoredRun

ASK_SECONDS = 120 + 60
"""A launcher that lives learns of a new price within two minutes and a few polls."""
HOUR = Decimal(3600)
SECOND_USD = Decimal("0.0005")
"""More than a second of any machine here costs: times are rounded."""

# Why a run may cost more than its budget, which is then nobody's fault:
CLOCKS = "clocks are wrong"
"""A deadline is a time on the launcher's clock, and the machine's own timer goes by the machine's."""
PRICE = "a price rises"
"""The timers know the price at the launch only. An agent that hears nothing new reckons with the on-demand price; where
it is dead too, what the rise costs while no launcher lives that knows of it is paid."""
SHORT = "a lease is short"
"""Its deadline is no whole minute, and only the cloud's own stop works: that knows whole minutes, and may come a minute
later than is reckoned with."""
FORGOTTEN = "a machine is forgotten"
"""The launcher died before it had the answer to its launch, and the provider has forgotten the machine, an hour after
its end, before the next launcher came to look: no journal knows of it. It cost what its own lease was allowed."""
LAST_WORDS = "an agent dies after its last words"
"""It is killed while it waits for a launcher before it powers off, its machine lives on to its deadline, and the
provider gives no time of the end: whoever looks later believes the words."""
BARE = "a machine has no stop"
"""Schedules break stops one by one, but agent, timer and cloud may all be out of order by chance, or the launcher dies
before there are more than the first."""


@dataclass(frozen=True)
class Story:
    """What the journal tells of one lease."""

    launch: LaunchRequested
    created: bool
    cloud_stop_at: datetime | None
    prices: tuple[PriceChange, ...]
    closed_at: datetime | None = None


def stories(history: Iterable[Event]) -> dict[str, Story]:
    """By lease id."""
    found: dict[str, Story] = {}
    lease_id = ""
    for event in history:
        if isinstance(event, LaunchRequested):
            lease_id = event.lease.lease_id
            found[lease_id] = Story(event, created=False, cloud_stop_at=None, prices=())
        elif isinstance(event, InstanceCreated):
            found[lease_id] = replace(found[lease_id], created=True)
        elif isinstance(event, CloudStopArmed):
            found[lease_id] = replace(found[lease_id], cloud_stop_at=event.until)
        elif isinstance(event, PriceChanged):
            found[lease_id] = replace(found[lease_id], prices=(*found[lease_id].prices, event.change))
        elif isinstance(event, LeaseClosed):
            found[lease_id] = replace(found[lease_id], closed_at=event.at)
    return found


# -- time --------------------------------------------------------------------------------------------------------------


def off_at(machine: FakeMachine) -> datetime:
    """When a machine stopped to be billed."""
    assert machine.ended_at is not None, f"{machine.ref.instance_id} is billed on"
    return machine.stopping_at or machine.ended_at


def stops(world: ScheduleWorld, machine: FakeMachine, story: Story | None) -> Iterator[datetime]:
    """When each stop that needs no launcher ends this machine at the latest, in true time; broken ones are left out."""
    deadline = machine.request.deadline
    own_clock = timedelta(seconds=-machine.clock_ahead)
    if world.provider.timers:
        yield deadline + own_clock
    if world.timer.works and story is not None and story.cloud_stop_at is not None:
        yield story.cloud_stop_at
    agent = machine.agent
    if agent is not None and not agent.killed:
        yield max(deadline, datetime.fromtimestamp(agent.status.started_at, UTC)) + own_clock


def check_ends(world: ScheduleWorld, told: dict[str, Story]) -> int:
    """Every machine is off by its deadline, to the precision of its stops; how many had no stop at all."""
    bare = 0
    for machine in world.provider.machines:
        latest = min(stops(world, machine, told.get(machine.request.lease_id)), default=None)
        if latest is None:
            bare += 1
            continue
        booted = machine.launched_at + timedelta(seconds=world.provider.boot_seconds)
        late = (off_at(machine) - max(latest, booted)).total_seconds()
        assert late <= 1, f"{machine.ref.instance_id} was billed {late:.0f} s beyond its stops"
    return bare


# -- money -------------------------------------------------------------------------------------------------------------


def machine_usd(world: ScheduleWorld, machine: FakeMachine, until: datetime, *, refunds: bool = True) -> Decimal:
    """What the cloud bills for a machine up to a time."""
    offer, begin = machine.request.offer, machine.launched_at
    changes = [one for one in world.truth.prices.history if one.offer_key == offer.key]
    before = [one.usd_per_hour for one in changes if one.since <= begin]
    offer = replace(offer, usd_per_hour=before[-1] if before else offer.usd_per_hour)
    later = [PriceChange(one.since, one.usd_per_hour) for one in changes if one.since > begin]
    seconds = max(0.0, (until - begin).total_seconds())
    usd = total(cost_lines(offer, seconds, machine.request.disk_gib, world.rates, started_at=begin, prices=later))
    if refunds and machine.ended_by is EndCause.PROVIDER:
        usd += total(refund_lines(offer, seconds, world.rates, started_at=begin, prices=later))
    return usd


def excuses(world: ScheduleWorld, machine: FakeMachine, story: Story | None) -> Counter[str]:
    """What one machine may cost beyond its share, since nobody could know or act; by why."""
    end = off_at(machine)
    hourly = _highest(world, machine) + Decimal("0.05")
    latest = min(stops(world, machine, story), default=None)
    reckoned = machine.request.deadline + timedelta(seconds=world.facts.power_off_seconds)
    unknown = story is not None and not story.created and _forgotten(world, machine, story)
    return Counter(
        {
            CLOCKS: hourly * Decimal(world.truth.clock_error) / HOUR,
            PRICE: _ignorance_usd(world, machine, end),
            FORGOTTEN: machine_usd(world, machine, end) if unknown else Decimal(0),
            LAST_WORDS: _between_usd(world, machine, _said_to_be_off(world, machine), end),
            SHORT if latest is not None else BARE: _between_usd(world, machine, reckoned, min(end, latest or end)),
        }
    )


def _between_usd(world: ScheduleWorld, machine: FakeMachine, begin: datetime, end: datetime) -> Decimal:
    if end <= begin:
        return Decimal(0)
    return machine_usd(world, machine, end) - machine_usd(world, machine, max(begin, machine.launched_at))


def _said_to_be_off(world: ScheduleWorld, machine: FakeMachine) -> datetime:
    """When a machine is off at the latest whose agent has said its last words; for others, when it was."""
    agent = machine.agent
    if agent is None or not agent.killed or not agent.has_ended:
        return off_at(machine)
    said = datetime.fromtimestamp(agent.status.at - machine.clock_ahead, UTC)
    return said + timedelta(seconds=world.facts.linger_seconds + world.facts.power_off_seconds)


def _forgotten(world: ScheduleWorld, machine: FakeMachine, story: Story | None) -> bool:
    """By the provider, before anybody could close its lease."""
    if story is None or story.closed_at is None or machine.ended_at is None:
        return False
    remembered = timedelta(seconds=world.provider.forgets_seconds - world.truth.clock_error)
    return story.closed_at - machine.ended_at > remembered


def _highest(world: ScheduleWorld, machine: FakeMachine) -> Decimal:
    offer = machine.request.offer
    later = [one.usd_per_hour for one in world.truth.prices.history if one.offer_key == offer.key]
    return max([offer.usd_per_hour, *later])


def _ignorance_usd(world: ScheduleWorld, machine: FakeMachine, end: datetime) -> Decimal:
    """What a rise costs in the time in which no launcher knew of it, nor an agent that takes the worst for granted."""
    agent = machine.agent
    if agent is not None and not agent.killed:
        return Decimal(0)
    return _rise_usd(world, machine, end)


def _rise_usd(world: ScheduleWorld, machine: FakeMachine, end: datetime) -> Decimal:
    """The same where no agent comes into it: what a launcher could not know of."""
    offer = machine.request.offer
    usd = Decimal(0)
    for change in world.truth.prices.history:
        rise = change.usd_per_hour - offer.usd_per_hour
        begin = max(change.since, machine.launched_at)
        if change.offer_key != offer.key or rise <= 0 or begin >= end:
            continue
        lived = sum(max(0.0, (min(died, end) - max(begun, begin)).total_seconds()) for begun, died in world.truth.lives)
        dead = max(0.0, (end - begin).total_seconds() - lived)
        ignorant = dead + world.truth.silent_seconds + ASK_SECONDS * max(1, len(world.truth.lives))
        usd += rise * Decimal(ignorant) / HOUR
    return usd


def check_money(world: ScheduleWorld, run: Run, told: dict[str, Story]) -> dict[str, Decimal]:
    """The machines and the ledger are within the budget; else by how much they are not, and why that is excused."""
    machines = world.provider.machines
    truth = sum((machine_usd(world, one, off_at(one)) for one in machines), Decimal(0)) + total(run.storage)
    allowed: Counter[str] = Counter()
    for machine in machines:
        allowed.update(excuses(world, machine, told.get(machine.request.lease_id)))
    made = {lease_id for lease_id, story in told.items() if story.created}
    assert run.lease is not None or made <= {entry.lease_id for entry in run.entries}, "a machine is not in the ledger"
    _check_entries(world, run, told)
    if run.budget_usd is None:
        return {}
    over, excused = truth - run.budget_usd, sum(allowed.values(), Decimal(0))
    assert over <= excused, f"the machines cost {truth:.4f} USD of {run.budget_usd}, {excused:.4f} more are excused"
    ends = sum((_ending_usd(world, one, run) for one in machines), Decimal(0))
    assert run.spent_usd <= run.budget_usd + excused + ends, f"the ledger says {run.spent_usd:.4f} of {run.budget_usd}"
    why = max(allowed, key=lambda one: allowed[one], default="")
    return {why: over} if over > 0 else {}


def _check_entries(world: ScheduleWorld, run: Run, told: dict[str, Story]) -> None:
    """The ledger never has a machine for less than the cloud bills, had it ended when the ledger says.

    A price that falls between its true end and that one makes the minimum charge less.
    """
    entries = {entry.lease_id: entry for entry in run.entries}
    for machine in world.provider.machines:
        lease_id = machine.request.lease_id
        if lease_id not in entries:
            continue
        excused = sum(excuses(world, machine, told.get(lease_id)).values(), SECOND_USD)
        excused += _rise_usd(world, machine, off_at(machine)) if world.prices.failed else 0
        entry = entries[lease_id]
        least = min(machine_usd(world, machine, end) for end in (off_at(machine), entry.ended_at)) - excused
        assert entry.usd >= least, f"the ledger has {entry.usd:.4f} USD for {lease_id}, not {least:.4f}"


def _ending_usd(world: ScheduleWorld, machine: FakeMachine, run: Run) -> Decimal:
    """The ledger counts a machine until it is gone, which takes a while that EC2 does not bill.

    One whose end nobody knows is counted until its deadline at most, even if it ended before by other hands, or by the
    provider, which takes nothing for it then.
    """
    assert machine.ended_at is not None
    latest = max(machine.ended_at, machine.request.deadline + timedelta(seconds=world.facts.power_off_seconds))
    counted = [entry.ended_at for entry in run.entries if entry.lease_id == machine.request.lease_id]
    end = max(off_at(machine), min([latest, *counted]))
    return machine_usd(world, machine, end, refunds=False) - machine_usd(world, machine, off_at(machine))


# -- leases, resources, work -------------------------------------------------------------------------------------------


def check_nothing_is_left(world: ScheduleWorld) -> None:
    """A settled run owns nothing: no machine, and no key pair, group or schedule but where their removal failed."""
    assert world.provider.alive() == [], "something is still billed"
    if "clean_up" not in world.provider.failed:
        assert world.provider.resources == set(), "key pair or security group is left"
    if "disarm" not in world.timer.failed:
        assert world.timer.armed == {}, "a stop is left in the cloud"


def check_leases(world: ScheduleWorld, run: Run) -> None:
    """Never two machines at one time, nor for one lease; none that may live beyond the user's own deadline."""
    assert world.provider.most_alive <= 1, "two machines at one time"
    leases = [machine.request.lease_id for machine in world.provider.machines]
    assert len(set(leases)) == len(leases), "two machines for one lease"
    assert world.truth.unwritten == [], "a launch that nobody else could know of"
    if run.ends_by is not None:
        assert all(machine.request.deadline <= run.ends_by for machine in world.provider.machines)


def check_work(world: ScheduleWorld) -> float:
    """No more than one checkpoint interval of work is ever lost or done again; the most that was, in intervals.

    A checkpoint counts once it is in the storage: what takes long to upload, or cannot be, comes on top, and is not
    what is measured.
    """
    script = world.script
    interval = script.checkpoint_epochs * script.epoch
    outages = [(end - begin).total_seconds() + AGAIN_SECONDS for begin, end in world.truth.storage_out]
    late = script.uploading + sum(outages)
    worst = max(script.lost, default=0.0)
    assert worst <= interval + late + 0.01, f"{worst:.0f} s of work were lost, saved each {interval} s"
    reached = 0
    for _, _, epoch in script.trained:
        assert epoch <= reached + 1, f"epoch {epoch} was trained after {reached}"
        again = (reached - epoch + 1) * script.epoch
        assert again < interval + late, f"{again:.0f} s of work were done again, saved each {interval} s"
        reached = epoch
    return worst / interval if late == 0 else 0.0


def check_mirror(world: ScheduleWorld, run_id: str) -> None:
    """The storage has the records of one launcher at each number; in the end those of the last one, if it answered."""
    prefix = StoredRun(run_id).journal
    keys = sorted(key for key in world.store.objects if key.startswith(prefix))
    assert keys == [StoredRun(run_id).record(number) for number in range(1, len(keys) + 1)], "records are missing"
    stored = [world.store.objects[key].decode() for key in keys]
    if not stored:
        assert world.provider.machines == [], "a launch that is in no storage"
        return
    if stored == world.home.run(run_id).journal.lines():
        return
    assert world.store_failed, "the storage has another story"
    replay([decode(line, "a stored record") for line in stored], "the journal in the storage")
