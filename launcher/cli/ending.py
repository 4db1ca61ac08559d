"""`gpucost stop` of a run whose records cannot be read or written: its end by tags, in every account at hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from launcher.cli.common import print_json
from launcher.errors import BadInput, ExitCode, GpucostError, Unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from launcher.context import Context
    from launcher.sweep.looking import Sweep
    from launcher.sweep.removing import Done

_ANYWHERE = (("sandbox", None), ("aws", None))
"""Where a run may be of which not even the first record can be read: the embedded cloud, and the account at hand."""


@dataclass(slots=True)
class _Ending:
    """What was done, and what is not known."""

    sweeps: list[tuple[Sweep, Sequence[Done]]] = field(default_factory=list)
    looked: bool = False
    """Some cloud could be looked at; an embedded one that does not run has nothing."""
    out_of_reach: list[str] = field(default_factory=list)
    """Clouds that could not be looked at, and why."""
    troubles: list[str] = field(default_factory=list)
    """What else leaves the end unconfirmed."""

    @property
    def done(self) -> list[Done]:
        """Everything that was found."""
        return [one for _, some in self.sweeps for one in some]

    @property
    def unknown(self) -> list[str]:
        """What is not known of the end. A run is in one account: where it was found, the others do not matter."""
        return [*([] if self.done else self.out_of_reach), *self.troubles]

    def confirmed(self, *, account_known: bool) -> bool:
        """All of the run is gone. Where nothing was found, only if that was the account in which the run was."""
        seen = bool(self.done) or (account_known and self.looked)
        return seen and not self.unknown and not any(one.is_left for one in self.done)


def end_by_tags(run_id: str, damage: BadInput, context: Context, *, as_json: bool) -> int:
    """Ask a launcher that drives the run to stop, then remove what carries its tag; the exit code.

    7 unless everything is known to be gone; else that of the damage.
    """
    click.secho(f"error: {damage}", err=True, fg="red", bold=True)
    click.echo(f"ending {run_id} by its tags instead; what it cost is then in no ledger", err=True)
    _ask_its_launcher(run_id, context)
    place = _place(run_id, context)
    ending = _end_everywhere(run_id, (place,) if place else _ANYWHERE, context)
    if context.home.run(run_id).journal.writer() is not None:
        ending.troubles.append("its launcher is still at work")
    confirmed = ending.confirmed(account_known=place is not None)
    code = damage.exit_code if confirmed else ExitCode.NOT_CONFIRMED_GONE
    if as_json:
        print_json("stop", _document(run_id, damage, ending, code))
    for trouble in ending.unknown:
        click.secho(f"not known: {trouble}", err=True, fg="red")
    kept = _set_aside(run_id, context) if confirmed else None
    _last_words(run_id, damage, len(ending.done), context, confirmed=confirmed, kept=kept)
    return int(code)


def _place(run_id: str, context: Context) -> tuple[str, str | None] | None:
    """Cloud and AWS profile of a run, where its first record can be read."""
    from launcher.events import RunOpened
    from launcher.journal import decode

    try:
        first = decode(next(iter(context.home.run(run_id).journal.lines()), ""), "the first record")
    except Unreadable:
        return None
    if not isinstance(first, RunOpened) or first.run_id != run_id:
        return None
    aws = first.job.get("aws")
    profile = aws.get("profile") if isinstance(aws, dict) else None
    return first.cloud, None if profile is None else str(profile)


def _set_aside(run_id: str, context: Context) -> Path | None:
    """The damaged records under another name: the run is over, and its name is free for the next one."""
    journal = context.home.run(run_id).journal
    try:
        return journal.set_aside() if journal.path.exists() else None
    except OSError:  # they cannot be written; the run is over all the same
        return None


def _ask_its_launcher(run_id: str, context: Context) -> None:
    """It holds the run in its memory and may still save and account for it."""
    from launcher.interrupts import ask_to_stop

    pid = context.home.run(run_id).journal.writer()
    if pid is not None and pid > 0:
        ask_to_stop(pid)
        click.echo(f"its launcher (process {pid}) is asked to stop, too", err=True)


def _end_everywhere(run_id: str, places: Sequence[tuple[str, str | None]], context: Context) -> _Ending:
    from launcher.interrupts import Interrupts
    from launcher.sweep.ending import end_run
    from launcher.sweep.render import show_done
    from launcher.sweep.wiring import connect_sweeper

    ending, interrupts = _Ending(), Interrupts()
    for cloud, profile in places:
        try:
            sweeper = connect_sweeper(cloud, profile, context)
            if sweeper is None:
                ending.looked = True
                continue
            sweep, done = end_run(run_id, sweeper, interrupts)
        except (GpucostError, OSError) as error:
            ending.out_of_reach.append(f"no access to {cloud}: {error}")
            continue
        ending.looked = True
        ending.sweeps.append((sweep, done))
        ending.troubles += [f"{gap.where}: {gap.what}: {gap.reason}" for gap in sweep.gaps]
        if done:
            click.echo(show_done(done, sweeper.facts), err=True)
    if interrupts.count:
        ending.troubles.append("interrupted before the second look: clouds answer late")
    return ending


def _document(run_id: str, damage: BadInput, ending: _Ending, code: int) -> dict[str, object]:
    from launcher.sweep.render import sweep_document

    return {
        "run_id": run_id,
        "damage": str(damage),
        "sweeps": [sweep_document(sweep, done) for sweep, done in ending.sweeps],
        "not_known": ending.unknown,
        "exit_code": int(code),
    }


def _last_words(
    run_id: str, damage: BadInput, things: int, context: Context, *, confirmed: bool, kept: Path | None
) -> None:
    if confirmed:
        gone = f"all {things} are confirmed gone" if things else "nothing carries its tag: no machine of it is there"
        where = f"; its damaged records are kept in {kept}" if kept else ""
        click.echo(f"{run_id}: {gone}{where}\n  try: {damage.hint}", err=True)
        return
    click.secho(f"{run_id} IS NOT CONFIRMED GONE, AND MAY STILL BE BILLED", err=True, fg="red", bold=True)
    again = "set AWS_PROFILE to the account of the run, then the same command again"
    click.echo(f"  try: {again}; if you know that it is gone: rm -r {context.home.run(run_id).root}", err=True)
