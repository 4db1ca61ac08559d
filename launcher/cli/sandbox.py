"""Commands for the embedded cloud."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict

import click

from launcher.cli.common import json_option, make_context, print_json
from launcher.errors import BadInput
from launcher.units import show_duration


@click.group("sandbox")
def sandbox_command() -> None:
    """The embedded cloud on this machine: real SSH, real S3, real billing arithmetic, no account."""


@sandbox_command.command("up")
@json_option
def up_command(*, as_json: bool) -> None:
    """Start it, or say where it is."""
    from launcher import embedded

    info = embedded.keep_up(make_context().home)
    if as_json:
        print_json("sandbox", {"ec2_endpoint": info.ec2_endpoint, "s3_endpoint": info.s3_endpoint, "pid": info.pid})
        return
    click.echo(f"EC2 {info.ec2_endpoint}  S3 {info.s3_endpoint}  process {info.pid}")
    click.echo(f"keys: AWS_SHARED_CREDENTIALS_FILE={info.credentials_file}")


@sandbox_command.command("down")
@click.option("--force", is_flag=True, help="Whatever needs it: machines and checkpoints of all its runs go too.")
def down_command(*, force: bool) -> None:
    """End it with all its machines and the contents of its bucket."""
    from launcher import embedded

    home = make_context().home
    running = embedded.unsettled(home)
    if running and not force:
        raise BadInput(
            f"run {running[-1]} needs the embedded cloud: its checkpoints are nowhere else",
            hint=f"`gpucost stop {running[-1]}` first, or end both with `gpucost sandbox down --force`",
        )
    damaged = embedded.unreadable(home)
    if damaged and not force:
        raise BadInput(
            f"the records of run {damaged[-1]} cannot be read: it may need the embedded cloud",
            hint=f"`gpucost stop {damaged[-1]}` ends what it has, `gpucost sandbox down --force` ends the cloud then",
        )
    lost = embedded.resumable(home)
    if lost and not force and not _may_be_lost(lost):
        click.echo("nothing was ended", err=True)
        return
    embedded.take_down(home)
    click.echo("the embedded cloud is down: no process, port or folder is left")
    for run_id in running:
        click.echo(f"the machine of {run_id} went with it: `gpucost stop {run_id}` closes its account", err=True)
    if lost:
        click.echo(f"{_runs(lost)} can no longer be resumed from checkpoints", err=True)


def _may_be_lost(lost: list[str]) -> bool:
    """Ask whether the checkpoints of stopped runs may go. Raises BadInput where nobody can be asked."""
    what = f"the checkpoints of {_runs(lost)} are nowhere else, and would be gone"
    if sys.stdin.isatty():
        return click.confirm(f"{what}; go on?", err=True)
    raise BadInput(
        f"{what}: {', '.join(lost[-3:])}{' and older ones' if len(lost) > 3 else ''}",
        hint=f"`gpucost resume {lost[-1]}` goes on with it; `gpucost sandbox down --force` gives them up",
    )


def _runs(ids: list[str]) -> str:
    return f"{len(ids)} stopped {'run' if len(ids) == 1 else 'runs'}"


@sandbox_command.command("status")
@json_option
def status_command(*, as_json: bool) -> None:
    """What runs in it."""
    from launcher import sandbox

    found = sandbox.status(make_context().home.root)
    if as_json:
        instances = [] if found is None else [asdict(instance) for instance in found.instances]
        print_json("sandbox", {"running": found is not None, "instances": instances})
        return
    if found is None:
        click.echo("not running; `gpucost sandbox up` starts it")
        return
    click.echo(f"EC2 {found.info.ec2_endpoint}  S3 {found.info.s3_endpoint}  process {found.info.pid}")
    click.echo(
        f"instances run as {found.runs_as} ({found.reason}); last EC2 request {show_duration(found.idle_seconds)} ago"
    )
    for instance in found.instances:
        click.echo(
            f"  {instance.instance_id}  {instance.instance_type}  {instance.market}  {instance.zone}  {instance.state}"
            f"  {instance.address or ''}"
        )


@sandbox_command.command("interrupt")
@click.argument("instance_id", required=False)
@click.option(
    "--notice",
    type=click.FloatRange(min=0, max=86400),
    default=120.0,
    show_default=True,
    help="Seconds between the notice and the end.",
)
def interrupt_command(instance_id: str | None, notice: float) -> None:
    """Take a spot machine back, as a cloud would: notice first, then the end. All of them, if none is named."""
    if math.isnan(notice):  # every comparison with it is false, so no range keeps it out
        raise click.BadParameter("nan is no number of seconds", param_hint="--notice")
    from launcher import sandbox

    taken = sandbox.interrupt(make_context().home.root, instance_id, notice)
    if not taken:
        raise BadInput("there is no spot machine to interrupt", hint="`gpucost sandbox status` lists them")
    click.echo(f"notice given to {', '.join(taken)}: the end comes in {notice:g} s")
