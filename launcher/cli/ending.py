"""`gpucost stop` of a run whose records cannot be read: it is ended by its tags, in every account that is at hand."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from launcher.cli.common import print_json
from launcher.errors import ExitCode, GpucostError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from launcher.context import Context
    from launcher.errors import Unreadable
    from launcher.sweep.looking import Sweep
    from launcher.sweep.removing import Done

_CLOUDS = ("sandbox", "aws")


def end_by_tags(run_id: str, damage: Unreadable, context: Context, *, as_json: bool) -> int:
    """Ask a launcher that drives the run to stop, then remove what carries its tag; the exit code.

    7 unless all that was found is confirmed gone, or nothing was, in any account at hand; else that of the damage.
    """
    click.secho(f"error: {damage}", err=True, fg="red", bold=True)
    click.echo(f"ending {run_id} by its tags instead; what it cost is then in no ledger", err=True)
    _ask_its_launcher(run_id, context)
    ended, troubles = _end_everywhere(run_id, context)
    done = [one for _, some in ended for one in some]
    gaps = [gap for sweep, _ in ended for gap in sweep.gaps]
    # A run is in one account: where that was found and emptied, the others do not matter.
    seen = bool(done) or (bool(ended) and not troubles)
    confirmed = seen and not gaps and not any(one.is_left for one in done)
    code = damage.exit_code if confirmed else ExitCode.NOT_CONFIRMED_GONE
    if as_json:
        print_json("stop", _document(run_id, damage, ended, troubles, code))
    unseen = [] if confirmed else [*troubles, *(f"{gap.where}: {gap.what}: {gap.reason}" for gap in gaps)]
    for trouble in unseen:
        click.secho(f"could not be looked at: {trouble}", err=True, fg="red")
    kept = _set_aside(run_id, context) if confirmed else None
    _last_words(run_id, damage, len(done), confirmed=confirmed, kept=kept)
    return int(code)


def _set_aside(run_id: str, context: Context) -> Path | None:
    """The damaged records under another name: the run is over, and its name is free for the next one."""
    journal = context.home.run(run_id).journal
    return journal.set_aside() if journal.path.exists() else None


def _ask_its_launcher(run_id: str, context: Context) -> None:
    """It holds the run in its memory and may still save and account for it."""
    from launcher.interrupts import ASKED

    pid = context.home.run(run_id).journal.writer()
    if pid is not None and pid > 0:
        with suppress(ProcessLookupError):
            os.kill(pid, ASKED)
        click.echo(f"its launcher (process {pid}) is asked to stop, too", err=True)


def _end_everywhere(run_id: str, context: Context) -> tuple[list[tuple[Sweep, Sequence[Done]]], list[str]]:
    from launcher.interrupts import Interrupts
    from launcher.sweep.ending import end_run
    from launcher.sweep.render import show_done
    from launcher.sweep.wiring import connect_sweeper

    ended: list[tuple[Sweep, Sequence[Done]]] = []
    troubles: list[str] = []
    for cloud in _CLOUDS:
        try:
            sweeper = connect_sweeper(cloud, None, context)
            if sweeper is None:
                continue
            sweep, done = end_run(run_id, sweeper, Interrupts())
        except GpucostError as error:
            troubles.append(f"{cloud}: {error}")
            continue
        ended.append((sweep, done))
        if done:
            click.echo(show_done(done, sweeper.facts), err=True)
    return ended, troubles


def _document(
    run_id: str, damage: Unreadable, ended: Sequence[tuple[Sweep, Sequence[Done]]], troubles: Sequence[str], code: int
) -> dict[str, object]:
    from launcher.sweep.render import sweep_document

    sweeps = [sweep_document(sweep, done) for sweep, done in ended]
    return {
        "run_id": run_id,
        "damage": str(damage),
        "sweeps": sweeps,
        "not_looked_at": list(troubles),
        "exit_code": int(code),
    }


def _last_words(run_id: str, damage: Unreadable, things: int, *, confirmed: bool, kept: Path | None) -> None:
    if confirmed:
        gone = f"all {things} are confirmed gone" if things else "nothing carries its tag: no machine of it is there"
        where = f"; its damaged records are kept in {kept}" if kept else ""
        click.echo(f"{run_id}: {gone}{where}\n  try: {damage.hint}", err=True)
        return
    click.secho(f"{run_id} IS NOT CONFIRMED GONE, AND MAY STILL BE BILLED", err=True, fg="red", bold=True)
    click.echo("  try: set AWS_PROFILE to the account of the run, then the same command again", err=True)
