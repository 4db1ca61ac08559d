"""What commands share: the context, options for the job file, JSON output."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

import click

from launcher.clock import SystemClock
from launcher.context import Context
from launcher.home import Home, find_home

JSON_SCHEMA = 1

Command = TypeVar("Command", bound=Callable[..., object])


def make_context() -> Context:
    """The state directory, the clock and a live view on stderr."""
    from launcher.live import LiveView

    home = find_home(os.environ)
    _log_to(home)
    clock = SystemClock()
    return Context(home, clock, LiveView(sys.stderr, clock), Path.cwd())


def _log_to(home: Home) -> None:
    """Warnings and tracebacks go to a file of the state directory: what a user sees is rendered, never logged."""
    form = "%(asctime)s %(levelname)s %(name)s %(message)s"
    try:
        logging.basicConfig(filename=home.root / "gpucost.log", level=logging.WARNING, format=form)
    except OSError:  # a folder of that name, or not to be written: no reason not to run
        logging.basicConfig(handlers=[logging.NullHandler()])


def columns() -> int:
    """Width of the terminal; a wide one where stdout is none."""
    return (shutil.get_terminal_size().columns or 80) if sys.stdout.isatty() else 1000


def print_json(kind: str, body: dict[str, object]) -> None:
    """One JSON document on stdout."""
    click.echo(json_text(kind, body), nl=False)


def json_text(kind: str, body: dict[str, object]) -> str:
    """A JSON document; its layout is a contract, numbered by `schema`."""
    return json.dumps({"schema": JSON_SCHEMA, "kind": kind, **body}, indent=2, default=_plain) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return str(value)
    return str(value)


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")

_JOB_OPTIONS = (
    click.option(
        "--cloud",
        "clouds",
        multiple=True,
        type=click.Choice(["aws", "gcp", "azure", "alibaba", "sandbox"]),
        help="Cloud to use (repeatable); machines are started on aws and sandbox only.",
    ),
    click.option("--budget", help="Hard cap in USD for the whole run: 50, $50."),
    click.option("--deadline", help="The machine is gone by then: 12h, 90m."),
    click.option("--gpu", "gpus", multiple=True, help="Exact GPU name (repeatable)."),
    click.option("--region", "regions", multiple=True, help="Region (repeatable)."),
    click.option("--market", type=click.Choice(["spot", "on-demand", "any"]), help="How the machine is sold."),
    click.option("--model", type=click.Choice([f"yolov9-{size}" for size in "tsmce"]), help="Size of the detector."),
    click.option("--epochs", type=int, help="Epochs of each training."),
    click.option("--image-size", type=int, help="Pixels, a multiple of 32."),
    click.option("--batch", help="Pictures of one step, or auto."),
    click.option("--seed", type=int, help="Of everything random in the training."),
    click.option("--data", help="Local folder or archive, or s3:// URL."),
    click.option("--output", help="s3://bucket/prefix for checkpoints and results."),
    click.option("--name", help="Name of the run and of its results folder."),
)


def job_options(command: Command) -> Command:
    """The flags that override a job file."""
    for option in reversed(_JOB_OPTIONS):
        command = option(command)
    return command


def overrides(flags: dict[str, object]) -> dict[str, object]:
    """The flags that were given, under their keys in the job file."""
    given = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in flags.items()
        if value not in (None, ())
    }
    batch = given.get("batch")
    if isinstance(batch, str) and batch.isascii() and batch.isdecimal() and len(batch) < 10:
        given["batch"] = int(batch)
    return given
