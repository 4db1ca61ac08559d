"""Watching a run that another process drives, here or elsewhere, and taking it on where nobody does any more."""

from __future__ import annotations

from launcher import adopting, app, asking
from launcher.claim import HeldElsewhere
from launcher.context import Context
from launcher.errors import Undriven
from launcher.follower import LOOK_SECONDS, Follower
from launcher.journal import JournalBusy
from launcher.mirror import Fenced
from launcher.report import Note
from launcher.run import Run, State
from remote.protocol import Phase

_ASK_SECONDS = 30.0
"""Between two looks into the storage, for news from a launcher elsewhere."""


def attach(run_id: str, context: Context) -> Run:
    """Watch a run until it is settled; nothing is done to it.

    Raises Undriven where it never will be, since no launcher lives and its agent has ended, and Fenced where the
    journal here is out of date.
    """
    follower = Follower(run_id, context)
    run = follower.look(silent=True)
    told = False
    while run.state is not State.SETTLED:
        if not _driven_here(run_id, context):
            run = _news(follower, run_id, context)
            if run.state is State.SETTLED:
                return run
            if not told:
                context.report(Note(f"no launcher of this machine drives {run_id}; looking into the storage for news"))
            told = True
            _pause(context, _ASK_SECONDS, run_id)
        context.clock.sleep(LOOK_SECONDS)
        run = follower.look()
    return run


def _news(follower: Follower, run_id: str, context: Context) -> Run:
    """What the storage knows more. Raises Undriven, Fenced."""
    word = asking.ask(run_id, context)
    if word is not None and word.overtaken:
        raise Fenced(
            f"run {run_id} was taken over by {word.run.driven_by}: what is known of it here is out of date",
            hint=f"look at it with `gpucost status {word.run.url}`",
        )
    run = follower.look()
    driven = (word is not None and word.driver is not None) or _driven_here(run_id, context)
    why = "" if driven or run.state is State.SETTLED else _stands_still(run, word, context)
    if why:
        raise Undriven(
            f"no launcher drives run {run_id} any more, and {why}: it does not end by itself",
            hint=f"go on with it: `gpucost resume {run_id}`; or end it: `gpucost stop {run_id}`",
        )
    return run


def _stands_still(run: Run, word: asking.Word | None, context: Context) -> str:
    """Why nothing happens to a run that nobody drives; empty where its agent may still train."""
    lease, status = run.lease, None if word is None else word.status
    if word is not None and lease is None:
        return "it has no machine"
    if lease is not None and status is not None and status.lease_id == lease.lease_id and status.phase is Phase.ENDED:
        return "its agent has ended"
    if lease is not None and context.clock.now() > lease.deadline:
        return "its machine's time is over"
    return ""


def wait(run_id: str, context: Context) -> Run:
    """Watch a run until it is settled; where no launcher is alive any more, drive it from here. Raises as `go_on`."""
    follower = Follower(run_id, context)
    run = follower.look(silent=True)
    if run.state is State.SETTLED:
        adopting.refresh(run_id, context)  # a launcher elsewhere may have taken it up again
        run = follower.look()
    holder = ""
    while run.state is not State.SETTLED:
        if not _driven_here(run_id, context):
            try:
                return app.go_on(run_id, context, first=lambda run: _tell_taken(run, context))
            except HeldElsewhere as held:
                if held.holder != holder:
                    context.report(Note(str(held)))
                holder = held.holder
                _pause(context, _ASK_SECONDS, run_id)
                adopting.refresh(run_id, context)
            except JournalBusy:
                continue  # somebody was quicker
        context.clock.sleep(LOOK_SECONDS)
        run = follower.look()
    return run


def _tell_taken(run: Run, context: Context) -> None:
    if run.state is not State.SETTLED:
        context.report(Note(f"nobody drove {run.run_id} any more: it is driven from here, and Ctrl-C ends it, saved"))


def _driven_here(run_id: str, context: Context) -> bool:
    return context.home.run(run_id).journal.writer() is not None


def _pause(context: Context, seconds: float, run_id: str) -> None:
    """So long, or until a launcher of this machine takes the run."""
    give_up = context.clock.monotonic() + seconds
    while context.clock.monotonic() < give_up and not _driven_here(run_id, context):
        context.clock.sleep(LOOK_SECONDS)
