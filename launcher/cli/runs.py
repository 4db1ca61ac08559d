"""Commands about runs that exist: status, ls, logs, stop, resume."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from launcher.cli.common import json_option, make_context, print_json
from launcher.errors import ExitCode, Unreadable

if TYPE_CHECKING:
    from launcher.app import Limits
    from launcher.context import Context

_run_argument = click.argument("run", required=False)


@click.command("ls")
@json_option
def ls_command(*, as_json: bool) -> None:
    """List the runs that this machine knows, the newest last."""
    from launcher import history, render
    from launcher.cli.documents import run_document

    context = make_context()
    runs = [
        (run, history.usd_now(run, context, context.home.run(run.run_id).last_status()))
        for run in history.all_runs(context)
    ]
    if as_json:
        print_json("runs", {"runs": [{**run_document(run), "usd_now": usd} for run, usd in runs]})
    elif runs:
        click.echo(render.show_runs(runs))
    else:
        click.echo("no run yet; start one: gpucost train job.yaml", err=True)


@click.command("status")
@_run_argument
@json_option
def status_command(run: str | None, *, as_json: bool) -> None:
    """Show RUN (an id, a name, a URL; the newest if left out). The storage is asked where nobody here drives it."""
    from launcher import adopting, asking, render
    from launcher.cli.documents import status_document

    context = make_context()
    view = asking.view(adopting.find(run, context), context, thoroughly="://" in (run or ""))
    if as_json:
        print_json("status", status_document(view))
        return
    shown = render.show_status(
        view.run, view.status, now=context.clock.now(), usd=view.usd, driver=view.driver, stops=view.stops
    )
    click.echo(shown)
    if view.word is not None and view.word.overtaken:
        click.echo(f"note     what is here is out of date: {view.run.driven_by} took the run over", err=True)


@click.command("logs")
@_run_argument
@click.option("--task", help="Which training, where a run has several.")
def logs_command(run: str | None, task: str | None) -> None:
    """Show the end of RUN's training log: from its machine while it lives, else from the results."""
    from launcher import adopting, app

    context = make_context()
    text = app.log_text(adopting.find(run, context), task, context)
    click.echo(text, nl=False)
    if not text:
        click.echo("the log is empty: training has not begun", err=True)


@click.command("stop")
@_run_argument
@json_option
def stop_command(run: str | None, *, as_json: bool) -> int:
    """End RUN: save a checkpoint, sync, terminate the machine, confirm that it is gone."""
    from launcher import adopting, app, render
    from launcher.cli.documents import run_document
    from launcher.cli.ending import end_by_tags
    from launcher.journal import JournalUnwritable

    context = make_context()
    run_id = adopting.named(run, context)
    try:
        settled = app.stop(adopting.find(run, context), context)
    except (Unreadable, JournalUnwritable) as damage:
        return end_by_tags(run_id, damage, context, as_json=as_json)
    except KeyboardInterrupt:
        click.echo(_unfinished_stop(run_id, context), err=True)
        sys.exit(ExitCode.INTERRUPTED)
    if as_json:
        print_json("run", run_document(settled))
    else:
        click.echo(render.show_receipt(settled))
    return ExitCode.DONE


def _unfinished_stop(run_id: str, context: Context) -> str:
    """What is still there after a stop that was interrupted, and how to go on with it."""
    from launcher import asking

    found = asking.view(run_id, context)
    lease = found.run.lease
    who = f"{found.driver.partition(';')[0]} drives it" if found.driven else "nobody ends it now"
    what = (
        "no machine is open"
        if lease is None
        else f"its machine {lease.instance_id or '(asked for)'} is not confirmed gone"
    )
    return f"the stop of {run_id} was interrupted: {what}, {who}\n  try: `gpucost stop {run_id}` goes on with it"


@click.command("resume")
@_run_argument
@click.option("--budget", help="New cap in USD for the whole run, what is spent included; +20: so much more.")
@click.option("--deadline", help="New deadline from now: 12h, 90m.")
@click.option("--take-over", is_flag=True, help="Even if a launcher on another machine drives the run.")
@json_option
def resume_command(run: str | None, budget: str | None, deadline: str | None, *, take_over: bool, as_json: bool) -> int:
    """Go on with RUN: one whose launcher died, or one that ended before it was done."""
    from launcher import adopting, app
    from launcher.cli.outcome import finish

    context = make_context()
    limits = _limits(budget, deadline)
    run_id = adopting.find(run, context)
    return finish(app.resume(run_id, context, limits, by_force=take_over), as_json=as_json)


def _limits(budget: str | None, deadline: str | None) -> Limits:
    from launcher.app import Limits
    from launcher.errors import BadInput
    from launcher.units import parse_duration, parse_usd

    try:
        usd = None if budget is None else parse_usd(budget.removeprefix("+"))
        seconds = None if deadline is None else parse_duration(deadline)
    except ValueError as error:
        raise BadInput(
            str(error), hint="--budget 50 is the whole run's, --budget +20 so much more; --deadline 12h"
        ) from error
    more = budget is not None and budget.startswith("+")
    return Limits(budget=None if more else usd, more=usd if more else None, deadline=seconds)


@click.command("wait")
@_run_argument
@json_option
def wait_command(run: str | None, *, as_json: bool) -> int:
    """Wait for the end of RUN, whoever drives it, and drive it where nobody does; answers its exit code."""
    from launcher import adopting, following
    from launcher.cli.outcome import finish
    from launcher.wiring import this_launcher

    context = make_context()
    run_id = adopting.find(run, context)
    with _left_alone(run_id, context):
        return finish(following.wait(run_id, context), as_json=as_json, watcher=this_launcher(context.home).name)


@click.command("attach")
@_run_argument
@json_option
def attach_command(run: str | None, *, as_json: bool) -> int:
    """Watch RUN until it ends, without driving it: Ctrl-C leaves it alone."""
    from launcher import adopting, following
    from launcher.cli.outcome import finish
    from launcher.wiring import this_launcher

    context = make_context()
    run_id = adopting.find(run, context)
    with _left_alone(run_id, context):
        return finish(following.attach(run_id, context), as_json=as_json, watcher=this_launcher(context.home).name)


@contextmanager
def _left_alone(run_id: str, context: Context) -> Iterator[None]:
    """Ctrl-C while only watching ends the watching."""
    try:
        yield
    except KeyboardInterrupt:
        pid = context.home.run(run_id).journal.writer()
        who = f"process {pid} drives it" if pid else "no launcher of this machine drives it"
        click.echo(f"not watching any more; {run_id} goes on ({who}): `gpucost stop {run_id}` ends it", err=True)
        sys.exit(ExitCode.INTERRUPTED)
