"""The use cases of a run that exists, each read as a paragraph: go on, resume, stop, logs. Renders nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from launcher import wiring
from launcher.adopting import refresh
from launcher.claim import HeldElsewhere, take_up
from launcher.clouds import AWS
from launcher.context import Context
from launcher.drive import drive
from launcher.errors import BadInput, StopUnconfirmed
from launcher.events import Cancelled, Event, LimitsChanged, Outcome, Reopened
from launcher.follower import Follower
from launcher.history import load_run
from launcher.interrupts import STOPPED, Interrupts, ask_to_stop
from launcher.jobspec import parse
from launcher.journal import Journal, JournalBusy, JournalUnwritable
from launcher.opening import no_place, provider_error, require_place
from launcher.planning import next_plan, no_plan
from launcher.providers.interface import RefusedError, UnreachableError
from launcher.recovery import epochs_done, verdict
from launcher.report import Happened, Note
from launcher.results import collect, kept_results
from launcher.run import Run, State, advance
from launcher.services import Services
from launcher.ssh import SshError, drop_unusable_key
from launcher.trainlog import kept_log, stored_log
from launcher.units import show_usd
from pricing.planner import NoOfferFits

STOP_LIMIT_SECONDS = AWS.drain_seconds + AWS.stop_limit_seconds
"""A launcher may take so long itself to save, end and confirm; only then is it said to hang."""

STOP_ROUNDS = 3
"""So often another process may take a run up between two looks of a `stop`."""


def go_on(
    run_id: str,
    context: Context,
    *,
    cloud: wiring.Cloud | None = None,
    by_force: bool = False,
    first: Callable[[Run], Event | None] = lambda _run: None,
) -> Run:
    """Drive a run to its end from where its journal is, here or in the storage.

    `by_force`: even if a launcher on another machine is alive and drives it. `first` may give an event to begin with.
    Raises JournalBusy, HeldElsewhere, Fenced, ProviderError, StopUnconfirmed.
    """
    journal = context.home.run(run_id).journal
    interrupts = Interrupts()
    with _held(journal, run_id, context), interrupts.installed():
        run = load_run(run_id, context)
        if drop_unusable_key(context.home.run(run_id).private_key):
            context.report(
                Note("the key file of this run held no key, and is gone: its machine cannot be logged in to")
            )
        given = nullcontext(cloud) if cloud is not None else _connected(run, context)
        with given as connected, _serving(run, connected, context, interrupts) as services:
            claimed = take_up(journal, services.mirror, context.clock, context.report, by_force=by_force)
            event = first(claimed)
            if event is not None:
                services.mirror.add(journal.append(event))
                claimed = advance(claimed, event)
                context.report(Happened(event, claimed))
            try:
                return drive(claimed, journal, services)
            finally:
                services.mirror.leave()


@contextmanager
def _held(journal: Journal, run_id: str, context: Context) -> Iterator[None]:
    """The right to drive a run. Where nothing can be recorded, a machine that it has is loud."""
    with ExitStack() as stack:
        try:
            stack.enter_context(journal.writing())
        except JournalUnwritable as error:
            if load_run(run_id, context).lease is None:
                raise
            raise StopUnconfirmed(f"{error}; A MACHINE OF THIS RUN MAY STILL BE BILLED", hint=error.hint) from error
        yield


@contextmanager
def _serving(run: Run, cloud: wiring.Cloud, context: Context, interrupts: Interrupts) -> Iterator[Services]:
    """What the steps of a run need; its connection is dropped when the block ends."""
    services = cloud.services(run, context.home, clock=context.clock, report=context.report, interrupts=interrupts)
    try:
        yield services
    finally:
        services.hang_up()


@contextmanager
def _connected(run: Run, context: Context) -> Iterator[wiring.Cloud]:
    """The cloud of a run, given back when the block ends."""
    job = parse(run.opened.job, {}, run.run_id)
    try:
        cloud = wiring.connect(job, run.opened.cloud, context.home)
    except (RefusedError, UnreachableError) as error:
        raise provider_error(error) from error
    try:
        yield cloud
    finally:
        cloud.close()


@dataclass(frozen=True, slots=True)
class Limits:
    """What `resume` changes: a budget for the whole run, or so much more than the present one; a deadline from now."""

    budget: Decimal | None = None
    more: Decimal | None = None
    deadline: float | None = None

    def budget_for(self, run: Run) -> Decimal | None:
        """The new cap of a run."""
        if self.more is not None:
            return (run.budget_usd or run.spent_usd) + self.more
        return self.budget or run.budget_usd

    @property
    def given(self) -> bool:
        """There is something to change."""
        return any(value is not None for value in (self.budget, self.more, self.deadline))


def resume(run_id: str, context: Context, limits: Limits, *, by_force: bool = False) -> Run:
    """Go on with a run that lost its launcher, or with a settled one from its checkpoints. Raises BadInput, NoPlan."""
    refresh(run_id, context, follow=True)  # a launcher elsewhere may have gone on, or ended it
    run = load_run(run_id, context)
    if run.state is not State.SETTLED:
        trouble = no_place(Path(run.results_dir))
        if trouble:  # the machine counts first; what it makes is in the storage all the same
            context.report(Note(f"{trouble}; they stay in the storage"))
        return go_on(run_id, context, by_force=by_force, first=lambda found: _new_limits(found, limits, context))
    if run.outcome is Outcome.DONE:
        return _collect_again(run, context)
    require_place(Path(run.results_dir))
    journal = context.home.run(run_id).journal
    with _connected(run, context) as cloud:
        with journal.writing():
            run = load_run(run_id, context)  # another process may have been quicker
            if run.state is State.SETTLED:
                journal.append(_reopen(run, cloud, context, limits))
        return go_on(run_id, context, cloud=cloud, by_force=by_force)


def _new_limits(run: Run, limits: Limits, context: Context) -> Event | None:
    if not limits.given or run.state is State.SETTLED:
        return None
    now = context.clock.now()
    ends_by = run.ends_by if limits.deadline is None else now + timedelta(seconds=limits.deadline)
    return LimitsChanged(at=now, budget_usd=limits.budget_for(run), ends_by=ends_by)


def _collect_again(run: Run, context: Context) -> Run:
    """Copy the results of a run that is done. Raises BadInput where they were copied at its end, StorageError."""
    kept = kept_results(run)
    if run.collected and kept is not None:
        raise BadInput(f"run {run.run_id} is done", hint=f"its results are in {kept}")
    tasks = parse(run.opened.job, {}, run.run_id).task_names
    with _connected(run, context) as cloud:
        try:
            collect(run, tasks, cloud.store)
        except OSError as error:
            raise BadInput(
                f"the results cannot be copied: {error}", hint="make room for them, then try again"
            ) from error
    return replace(run, collected=True)


def _reopen(run: Run, cloud: wiring.Cloud, context: Context, limits: Limits) -> Reopened:
    now = context.clock.now()
    job = parse(run.opened.job, {}, run.run_id)
    ends_by = run.ends_by if run.ends_by is not None and run.ends_by > now else None
    if limits.deadline is not None:
        ends_by = now + timedelta(seconds=limits.deadline)
    lost = _lost(run, cloud)
    if lost:
        context.report(Note(f"the checkpoints of {', '.join(lost)} are gone from the storage: training begins again"))
    budget = limits.budget_for(run)
    reopened = Reopened(at=now, budget_usd=budget, ends_by=ends_by, selection=run.selection, lost=lost)
    planned = advance(run, reopened)
    try:
        chosen = next_plan(planned, job, cloud.catalog(job), now)
    except NoOfferFits as error:
        raise no_plan(error, planned) from error
    done = epochs_done(planned, job.task_names)
    context.report(Note(f"going on after epoch {done} on {chosen.offer.key}, about {show_usd(chosen.estimate.usd)}"))
    return replace(reopened, selection=chosen)


def _lost(run: Run, cloud: wiring.Cloud) -> tuple[str, ...]:
    """Tasks of which the storage has no checkpoint any more, neither the newest nor one before it."""

    def kept(key: str) -> bool:
        folder = key.removeprefix(f"{cloud.store.url}/").rpartition("/")[0]
        there = {found.key for found in cloud.store.list(f"{folder}/")}
        return any(name.endswith(".json") and f"{name.removesuffix('.json')}.pt" in there for name in there)

    return tuple(known.task for known in run.checkpoints if not kept(known.key))


def stop(run_id: str, context: Context) -> Run:
    """End a run, through the launcher that drives it or from here; the settled run.

    Raises StopUnconfirmed, JournalUnwritable.
    """
    for _ in range(STOP_ROUNDS - 1):
        try:
            return _stop(run_id, context)
        except HeldElsewhere:
            raise
        except JournalBusy:
            context.report(Note("another process of this machine was quicker: it is followed"))
    return _stop(run_id, context)


def _stop(run_id: str, context: Context) -> Run:
    journal = context.home.run(run_id).journal
    pid = journal.writer()
    if pid is not None and pid > 0:
        follower = Follower(run_id, context)
        run = follower.look(silent=True)
        if run.state is not State.STOPPING or _would_go_on(run):  # a second signal would skip the last upload
            ask_to_stop(pid)
        context.report(Note(f"the launcher (process {pid}) is asked to save, to end the machine and to confirm it"))
        if not follower.until_left(STOP_LIMIT_SECONDS):
            raise _hangs(run_id, journal)
    elif load_run(run_id, context).state is State.SETTLED:
        refresh(run_id, context)  # a launcher elsewhere may have taken it up again
    with journal.writing():
        run = load_run(run_id, context)
        wish = _cancelled(run, context)
        if wish is not None:
            journal.append(wish)  # whatever becomes of this process, the next one goes on with the stop
    if run.state is State.SETTLED:
        return run
    # A launcher elsewhere may have written other records meanwhile; then the wish is written again behind them.
    return go_on(run_id, context, by_force=True, first=lambda found: _cancelled(found, context))


def _would_go_on(run: Run) -> bool:
    """Another machine would follow the one that is being ended."""
    return verdict(run).outcome is None


def _cancelled(run: Run, context: Context) -> Event | None:
    if run.state is State.SETTLED or (run.state is State.STOPPING and not _would_go_on(run)):
        return None
    return Cancelled(at=context.clock.now(), message=STOPPED)


def _hangs(run_id: str, journal: Journal) -> StopUnconfirmed:
    return StopUnconfirmed(
        f"THE LAUNCHER OF {run_id} HAS NOT CONFIRMED THE STOP IN {STOP_LIMIT_SECONDS:.0f} s",
        hint=f"end it (`kill -9 {journal.writer()}`), then run `gpucost stop {run_id}` again",
    )


def log_text(run_id: str, task: str | None, context: Context) -> str:
    """The end of a training's log: from the machine while it lets us in, else what the storage or the results have.

    Raises BadInput.
    """
    run = load_run(run_id, context)
    names = parse(run.opened.job, {}, run_id).task_names
    if task is not None and task not in names:
        raise BadInput(f"run {run_id} has no training {task!r}", hint=f"it has {', '.join(names)}")
    name = task or names[0]
    if run.lease is None or run.lease.address is None:
        return kept_log(run, name, names, context)
    if not context.home.run(run_id).private_key.exists():
        context.report(Note("the key to the machine is where it was launched: this is what it copied to the storage"))
        return stored_log(run, name, context)
    with _connected(run, context) as cloud, _serving(run, cloud, context, Interrupts()) as services:
        try:
            return services.machine(run).log_tail(name)
        except SshError as error:
            context.report(Note(f"the machine does not answer ({error}): this is what it copied to the storage"))
    return stored_log(run, name, context)
