"""A whole cloud in memory with a launcher on it: runs are opened, driven, killed, gone on with, and checked.

The launcher's own code is real: planner, journal, state machine, steps. The ports are fakes with behaviour.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path

from cut_journal import Cut, CutJournal, Killed, leaving
from fake_agent import AgentScript
from fake_compute import FakeProvider, power_off_at
from fake_machine import FakeConnector, FakeMachine
from fake_timer import FakePrices, FakeTimer
from launcher_clock import FakeClock, SkewedClock
from launcher_processes import heard
from memory_object_store import FakeStore
from pricing_cases import OVERHEADS, RATES, T4_SMALL

from launcher.adopting import adopt
from launcher.bundle import Bundle, pack_remote
from launcher.claim import take_up
from launcher.clock import Clock
from launcher.clouds import AWS, CloudFacts
from launcher.context import Context
from launcher.drive import drive
from launcher.events import Cancelled, Event, LaunchRequested, Reopened, RunOpened
from launcher.home import Home
from launcher.interrupts import Interrupts
from launcher.jobspec import JobSpec, parse
from launcher.journal import replay
from launcher.localdata import DataFacts
from launcher.mirror import Launcher, Mirror
from launcher.planning import Catalog, first_plan, next_plan, selection, workload
from launcher.providers.interface import LaunchRequest
from launcher.recovery import verdict
from launcher.report import Happened, Note, Update
from launcher.run import Run, State, advance
from launcher.services import Services
from launcher.ssh import make_key_pair
from launcher.templating import user_data
from pricing.cost import Rates, total
from pricing.offers import CapacityType, Offer
from pricing.planner import Plan
from pricing.throughput import ProbedThroughput
from remote.protocol import StorageSpec

DATA = DataFacts(train_images=1000, val_images=100, bytes=10 * 2**20)
JOB = {
    "name": "job",
    "data": "s3://bucket/runs/data/pictures.tar",
    "images": 1000,
    "model": "yolov9-t",
    "epochs": 5,
    "image_size": 320,
    "batch": 16,
    "output": "s3://bucket/runs",
    "budget": "5",
}


def offer(usd: str, region: str, capacity_type: CapacityType, on_demand: Decimal | None = None) -> Offer:
    """One T4 somewhere."""
    made = Offer(T4_SMALL, region, "", capacity_type, Decimal(usd), "2026-11-15", "test table")
    return replace(made, on_demand_usd_per_hour=on_demand)


DEMAND_EAST = offer("0.526", "us-east-1", CapacityType.ON_DEMAND)
SPOT_EAST = offer("0.20", "us-east-1", CapacityType.SPOT, DEMAND_EAST.usd_per_hour)
SPOT_WEST = offer("0.24", "us-west-2", CapacityType.SPOT, DEMAND_EAST.usd_per_hour)
OFFERS = (SPOT_EAST, SPOT_WEST, DEMAND_EAST)
STEADY_OFFERS = tuple(replace(one, on_demand_usd_per_hour=None) for one in OFFERS)
"""Of which nobody knows how dear they may become: a budget of cents is not kept back for that."""


@cache
def bundle() -> Bundle:
    """The real one, packed once."""
    return pack_remote()


@dataclass
class World:
    """`World(tmp_path)`: three offers, one job, machines that boot in 30 s, epochs of a minute, 5 USD."""

    folder: Path
    facts: CloudFacts = AWS
    offers: tuple[Offer, ...] = OFFERS
    script: AgentScript = field(default_factory=AgentScript)
    images_per_second: float = 20.0
    """What the plan believes."""
    rates: Rates = RATES
    bucket_region: str | None = None
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.store = FakeStore()
        self.provider = FakeProvider(self.clock)
        self.connector = FakeConnector(self.clock, self.store, self.provider.machines, self.script)
        self.home = Home(self.folder / "home")
        self.home.root.mkdir(parents=True, exist_ok=True)
        self.timer = FakeTimer(self.clock, self.provider)
        self.prices = FakePrices(self.clock)
        self.store.objects["data/pictures.tar"] = b"pictures"
        self.updates: list[Update] = []
        self.credentials: Callable[[float], bytes | None] = lambda _seconds: b"[default]\n"
        self.host = "laptop"
        self.clock_ahead: float = 0
        """How far this machine's clock is ahead of the true time."""
        self.effects = 0
        """Calls of the launcher's ports so far, counted for `die_after_effect`."""
        self.die_after_effect: int | None = None
        self.journal_class = CutJournal
        self._listening = False
        for port in (self.store, self.provider, self.connector):
            port.after_call = self._counted

    @property
    def time(self) -> Clock:
        """The clock of the launcher's machine."""
        return SkewedClock(self.clock, self.clock_ahead) if self.clock_ahead else self.clock

    # -- runs ---------------------------------------------------------------------------------------------------------

    def open(self, **changes: object) -> str:
        """The first record of a run; its id."""
        job = parse(JOB, changes, "test")
        run_id = f"{self.time.now():%Y%m%dT%H%M%S}-{len(self.home.run_ids()):04x}-{job.name}"
        plan = self.plan(job)
        record = RunOpened(
            at=self.time.now(),
            run_id=run_id,
            name=job.name,
            cloud="aws",
            job=job.model_dump(mode="json"),
            workload=workload(job, DATA),
            budget_usd=job.budget,
            ends_by=None if job.deadline is None else self.time.now() + timedelta(seconds=job.deadline),
            storage_url=self.store.url,
            data_url=None if job.is_local else job.data,
            results_dir=str(self.folder / "runs" / job.name),
            selection=selection(plan.chosen, job),
            storage_region=self.bucket_region,
        )
        self.home.run(run_id).journal.append(record)
        return run_id

    def plan(self, job: JobSpec) -> Plan:
        """The plan for a whole job. Raises NoPlan."""
        return first_plan(job, DATA, self.catalog(), self.time.now())

    def elsewhere(self, name: str = "runner") -> World:
        """Another machine with a launcher, a state directory of its own, and nothing in it: the same cloud."""
        other = replace(self, folder=self.folder / name)
        other.store, other.provider = self.store, self.provider
        other.connector, other.timer, other.prices = self.connector, self.timer, self.prices
        other.host = name
        for port in (self.store, self.provider, self.connector):
            port.after_call = other._counted
        return other

    def adopt(self, run_id: str) -> None:
        """`gpucost resume URL`, up to where the run is known here."""
        context = Context(self.home, self.time, self.updates.append, self.folder)
        adopt(run_id, self.store, context)

    def drive(
        self,
        run_id: str,
        *,
        cut: Cut | None = None,
        report: Callable[[Update], None] | None = None,
        by_force: bool = False,
        first: Callable[[Run], Event | None] = lambda _run: None,
    ) -> Run:
        """One launcher process, from the journal to the end of the run or to its own: `app.go_on`."""
        journal = self.journal_class(self.home.run(run_id).journal.path, cut)
        interrupts = Interrupts()
        with journal.writing(), heard(interrupts):
            self._listening = True
            services = self.services(replay(journal.events()[:1], str(journal.path)), interrupts, report)
            try:
                run = take_up(journal, services.mirror, self.time, services.report, by_force=by_force)
                event = first(run)
                if event is not None:
                    services.mirror.add(journal.append(event))
                    run = advance(run, event)
                with leaving(services.mirror):
                    return drive(run, journal, services)
            finally:
                self._listening = False
                services.hang_up()

    def drive_until_killed(self, run_id: str, *, cut: Cut | None = None, by_force: bool = False) -> Run:
        """A process that may be killed; the run as its journal has it afterwards."""
        try:
            self.drive(run_id, cut=cut, by_force=by_force)
        except Killed:
            self.die_after_effect = None
        return self.run(run_id)

    def stop(self, run_id: str) -> Run:
        """`gpucost stop` from another process, while nobody drives the run."""
        run = self.run(run_id)
        ends = run.state is State.STOPPING and verdict(run).outcome is not None
        if run.state is not State.SETTLED and not ends:
            self.home.run(run_id).journal.append(Cancelled(at=self.time.now(), message="stopped"))
        return self.drive(run_id, by_force=True)

    def claim(self, run_id: str) -> Run:
        """A launcher takes the run up, even from one that is alive, and then does nothing."""
        journal = self.home.run(run_id).journal
        services = self.services(self.run(run_id), Interrupts())
        with journal.writing():
            return take_up(journal, services.mirror, self.time, services.report, by_force=True)

    def reopen(self, run_id: str, *, budget: str) -> Run:
        """`gpucost resume --budget` of a settled run."""
        run, now = self.run(run_id), self.clock.now()
        placeholder = Reopened(at=now, budget_usd=Decimal(budget), ends_by=None, selection=run.selection)
        chosen = next_plan(advance(run, placeholder), self.job(run), self.catalog(), now)
        self.home.run(run_id).journal.append(replace(placeholder, selection=chosen))
        return self.drive(run_id)

    def run(self, run_id: str) -> Run:
        """The run as its journal has it."""
        journal = self.home.run(run_id).journal
        return replay(journal.events(), str(journal.path))

    def events(self, run_id: str) -> list[str]:
        """Names of the events so far."""
        return [type(event).__name__ for event in self.home.run(run_id).journal.events()]

    def job(self, run: Run) -> JobSpec:
        """The job in the run's first record."""
        return parse(run.opened.job, {}, run.run_id)

    def catalog(self) -> Catalog:
        """What is on sale."""
        speed = ProbedThroughput(self.images_per_second, 2 * self.images_per_second, 1.5)
        return Catalog(self.offers, self.rates, speed, OVERHEADS, ("aws",), self.bucket_region)

    def services(self, run: Run, interrupts: Interrupts, report: Callable[[Update], None] | None = None) -> Services:
        """The ports of one launcher process."""

        def told(update: Update) -> None:
            self.updates.append(update)
            if report is not None:
                report(update)

        return Services(
            provider=self.provider,
            timer=self.timer,
            prices=self.prices,
            facts=self.facts,
            store=self.store,
            mirror=Mirror(
                self.store,
                run.run_id,
                Launcher(f"{self.host}/4242", self.home.place()),
                self.time,
                self.folder / "scratch",
            ),
            storage=StorageSpec(self.store.url, "us-east-1", credentials="file"),
            credentials=self.credentials,
            connect=self.connector,
            bundle=bundle,
            rates=self.rates,
            replan=lambda stopped: next_plan(stopped, self.job(stopped), self.catalog(), self.time.now()),
            folder=self.home.run(run.run_id),
            clock=self.time,
            report=told,
            interrupts=interrupts,
        )

    # -- what happens to it -------------------------------------------------------------------------------------------

    def signal_at(self, elapsed: float, number: signal.Signals = signal.SIGINT) -> None:
        """The launcher, if there is one then, gets a signal."""
        self.clock.at(elapsed, lambda: self.signal(number))

    def signal(self, number: signal.Signals = signal.SIGINT) -> None:
        """The launcher, if there is one, gets a signal now."""
        if self._listening:
            signal.raise_signal(number)

    def kill_at(self, elapsed: float) -> None:
        """`kill -9` of the launcher, if there is one then."""

        def kill() -> None:
            if self._listening:
                raise Killed

        self.clock.at(elapsed, kill)

    def on(self, kind: type[Event], action: Callable[[], None]) -> Callable[[Update], None]:
        """A reporter that does `action` right after the first event of this kind was journaled."""
        waiting = [action]

        def report(update: Update) -> None:
            if isinstance(update, Happened) and isinstance(update.event, kind) and waiting:
                waiting.pop()()

        return report

    def place_machine(self, run: Run) -> FakeMachine:
        """The machine of a run's open lease, launched by a process that nobody here saw."""
        assert run.lease is not None
        request = LaunchRequest(
            run_id=run.run_id,
            lease_id=run.lease.lease_id,
            token=run.lease.token,
            offer=run.lease.selection.offer,
            disk_gib=run.lease.disk_gib,
            user_data=user_data(run.lease.deadline),
            deadline=run.lease.deadline,
            ssh_public_key=make_key_pair(self.home.run(run.run_id).private_key),
            tags={},
        )
        return self.provider.place(request, run.attempt)

    def machine(self) -> FakeMachine:
        """The newest one."""
        return self.provider.newest()

    def preempt_at(self, elapsed: float, notice_seconds: float = 120) -> None:
        """The machine that lives then gets its notice."""
        self.clock.at(elapsed, lambda: self._each_alive(lambda m: self.provider.preempt(m, notice_seconds)))

    def lose_at(self, elapsed: float) -> None:
        """The machine that lives then is gone without a word."""
        self.clock.at(elapsed, lambda: self._each_alive(self.provider.lose))

    def _each_alive(self, action: Callable[[FakeMachine], None]) -> None:
        for machine in self.provider.alive():
            action(machine)

    def notes(self) -> str:
        """Everything that was noted, a line each."""
        return "\n".join(update.text for update in self.updates if isinstance(update, Note))

    def _counted(self, _name: str) -> None:
        if not self._listening:
            return
        self.effects += 1
        if self.effects == self.die_after_effect:
            raise Killed

    # -- what must hold -----------------------------------------------------------------------------------------------

    def check(self, run_id: str, *, late_seconds: float = 60) -> Run:
        """Everything that holds for a settled run, whatever happened; an end may be seen `late_seconds` late."""
        run = self.run(run_id)
        assert run.state is State.SETTLED
        assert run.lease is None
        assert self.provider.alive() == [], "something is still billed"
        assert self.provider.most_alive <= 1, "two machines at one time"
        leases = [machine.request.lease_id for machine in self.provider.machines]
        assert len(set(leases)) == len(leases), "two machines for one lease"
        assert self.provider.resources == set(), "key pair and security group are left"
        self.check_timers(run_id)
        self.check_ledger(run, late_seconds)
        self.check_commands()
        if run.budget_usd is not None:
            assert run.spent_usd <= run.budget_usd
        return run

    def check_timers(self, run_id: str) -> None:
        """Each machine was launched with the power-off at the deadline of its lease (C11)."""
        history = self.home.run(run_id).journal.events()
        deadlines = {e.lease.lease_id: e.lease.deadline for e in history if isinstance(e, LaunchRequested)}
        for machine in self.provider.machines:
            assert power_off_at(machine.request) == deadlines[machine.request.lease_id].replace(microsecond=0)

    def check_ledger(self, run: Run, late_seconds: float) -> None:
        """One entry for each machine that ran, never for less time than it lived, and their sum."""
        entries = {entry.lease_id: entry for entry in run.entries}
        assert len(entries) == len(run.entries)
        assert sorted(entries) == sorted(machine.request.lease_id for machine in self.provider.machines)
        for machine in self.provider.machines:
            entry = entries[machine.request.lease_id]
            assert machine.ended_at is not None
            assert abs((entry.started_at - machine.launched_at).total_seconds()) <= 1
            late = (entry.ended_at - machine.ended_at).total_seconds()
            assert -1 <= late <= late_seconds, f"{machine.ref.instance_id} is billed {late:.0f} s too long"
        assert run.spent_usd == sum((entry.usd for entry in run.entries), Decimal(0)) + total(run.storage)

    def check_commands(self) -> None:
        """The fake machine understood everything that was asked of it."""
        for machine in self.provider.machines:
            assert machine.unknown_commands == []
