"""How a command ends that drove a run: receipt, results, next action, exit code."""

from __future__ import annotations

from contextlib import suppress

import click

from launcher import render
from launcher.cli.common import print_json
from launcher.cli.documents import run_document
from launcher.errors import ExitCode
from launcher.events import Outcome
from launcher.recovery import EXIT_CODES, resume_command
from launcher.results import kept_results
from launcher.run import Run


def finish(run: Run, *, as_json: bool, watcher: str = "") -> int:
    """Print how a settled run ended; its exit code. `watcher`: our own name, where others may have driven it."""
    assert run.outcome is not None  # noqa: S101 - only settled runs come here
    with suppress(BrokenPipeError):  # nobody reads any more: the exit code still tells
        _print(run, as_json=as_json)
    if run.outcome is Outcome.DONE and not run.collected:
        click.secho("error: training is done, but its results were not copied", err=True, fg="red")
        click.echo(f"  try: gpucost resume {run.run_id}", err=True)
        return int(ExitCode.TRAINING_FAILED)
    if watcher and run.outcome is Outcome.CANCELLED and run.driven_by != watcher:
        return int(ExitCode.STOPPED)
    return int(EXIT_CODES[run.outcome])


def _print(run: Run, *, as_json: bool) -> None:
    if as_json:
        print_json("run", run_document(run))
    else:
        click.echo(render.show_receipt(run))
        results = kept_results(run)
        if results is not None:
            click.echo(f"results: {results}")
    if run.outcome is not Outcome.DONE:
        code = f" (the trainer's code: {run.exit_code})" if run.exit_code is not None else ""
        click.secho(f"error: the run ended as {run.outcome}: {run.message}{code}", err=True, fg="red")
        click.echo(f"  try: {resume_command(run)}", err=True)
