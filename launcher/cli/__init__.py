"""The command line: parse, build a context, call one use case, print. Exit codes are set here and nowhere else.

Commands are imported when they are asked for, so that `gpucost --help` stays quick.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from typing import NoReturn

import click

from launcher import __version__
from launcher.errors import ExitCode, GpucostError
from launcher.interrupts import ASKED

COMMANDS = {
    "init": ("launcher.cli.jobs", "Write a commented job file to start from."),
    "estimate": ("launcher.cli.jobs", "Rank GPU offers for a job by cost and time."),
    "train": ("launcher.cli.jobs", "Plan, provision, train, stop, account."),
    "status": ("launcher.cli.runs", "Show one run."),
    "ls": ("launcher.cli.runs", "List the runs."),
    "logs": ("launcher.cli.runs", "Show a run's training log."),
    "stop": ("launcher.cli.runs", "End a run: checkpoint, sync, terminate, confirm."),
    "resume": ("launcher.cli.runs", "Go on with a run from its last checkpoint."),
    "attach": ("launcher.cli.runs", "Watch a run without driving it."),
    "wait": ("launcher.cli.runs", "Wait for the end of a run; drive it where nobody does."),
    "gc": ("launcher.cli.gc", "Find what was left behind anywhere; remove the orphans."),
    "data": ("launcher.cli.data", "Check a data set, or make one of Pascal VOC or COCO."),
    "report": ("launcher.cli.report", "What the runs really cost."),
    "sandbox": ("launcher.cli.sandbox", "The embedded cloud on this machine."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names in the order of a user's day."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list for `--help`, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpucost")
def cli() -> None:
    """Train YOLOv9 detectors on the cheapest cloud GPU that will do, within a hard budget, and leave nothing running.

    Shell completion: eval "$(_GPUCOST_COMPLETE=bash_source gpucost)" (or zsh_source, fish_source).
    """


def main() -> NoReturn:
    """Entry point: run a command, turn errors into one clear message and the documented exit code."""
    for number in (signal.SIGTERM, ASKED):
        signal.signal(number, signal.default_int_handler)
    try:
        code = cli.main(standalone_mode=False)
    except GpucostError as error:
        sys.exit(complain(error))
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; this command started nothing", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        logging.getLogger(__name__).exception("unexpected error")
        said = GpucostError(
            f"{type(error).__name__}: {error}"[:500], hint="gpucost.log of the state directory has more"
        )
        sys.exit(complain(said))
    sys.exit(code if isinstance(code, int) else ExitCode.DONE)


def complain(error: GpucostError) -> int:
    """Print an error and its hint, also as a document where one was asked for; the exit code."""
    loud = error.exit_code is ExitCode.NOT_CONFIRMED_GONE
    bar = "!" * 78
    if loud:
        click.secho(bar, err=True, fg="red", bold=True)
    click.secho(f"error: {error}", err=True, fg="red", bold=loud)
    if error.hint:
        click.echo(f"  try: {error.hint}", err=True)
    if loud:
        click.secho(bar, err=True, fg="red", bold=True)
    if "--json" in sys.argv:
        _print_error(error)
    return int(error.exit_code)


def _print_error(error: GpucostError) -> None:
    from launcher.cli.common import print_json

    try:
        print_json("error", {"message": str(error), "hint": error.hint, "exit_code": int(error.exit_code)})
    except OSError:  # stdout takes nothing more, not even what is still in its buffer
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
