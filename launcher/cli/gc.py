"""The sweep command: what gpucost left anywhere in an account, what it costs, and its removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli.common import columns, json_option, make_context, print_json
from launcher.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.sweep.looking import Sweep, Sweeper
    from launcher.sweep.removing import Done


@click.command("gc")
@click.option("--yes", is_flag=True, help="Remove the orphans; without it they are listed.")
@click.option("--dry-run", is_flag=True, help="List only, which is also what is done without --yes.")
@click.option("--region", "regions", multiple=True, help="Look in this region only (repeatable); else in all.")
@click.option("--output", "outputs", multiple=True, help="Look below this s3:// prefix too (repeatable).")
@click.option("--cloud", type=click.Choice(["aws", "sandbox"]), default="aws", show_default=True, help="Where to look.")
@click.option("--profile", help="AWS profile; else as the SDK finds it.")
@json_option
def gc_command(
    regions: tuple[str, ...],
    outputs: tuple[str, ...],
    cloud: str,
    profile: str | None,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Find everything that gpucost ever made, by its tags, and with --yes remove what is orphaned.

    Orphaned is what is past its deadline by half an hour and belongs to no run that lives. Buckets are listed and never
    deleted.
    """
    from launcher.interrupts import Interrupts
    from launcher.sweep import looking, removing
    from launcher.sweep.wiring import connect_sweeper

    if yes and dry_run:
        raise click.UsageError("--yes removes and --dry-run does not: give one of them")
    if profile is not None and cloud != "aws":
        raise click.UsageError(f"--profile is for --cloud aws, not for {cloud}")
    context = make_context()
    scope = looking.Scope(regions, tuple(_checked(output) for output in outputs))
    sweeper = connect_sweeper(cloud, profile, context)
    if sweeper is None:
        return _nothing_runs(as_json=as_json)
    sweep = looking.look(sweeper, scope)
    _warn(sweep)
    if not yes:
        return _listed(sweep, _again(regions, outputs, cloud, profile), as_json=as_json)
    interrupts = Interrupts()
    if not as_json:
        _show(sweep)
    done = removing.remove_orphans(sweep, sweeper, interrupts)
    code = removing.exit_code(sweep, done, interrupted=interrupts.count > 0)
    return _ended(sweep, done, sweeper, code, as_json=as_json)


def _checked(output: str) -> str:
    bucket = output.removeprefix("s3://").partition("/")[0]
    if not output.startswith("s3://") or not bucket:
        raise BadInput(f"{output!r} is no place for results", hint="write --output s3://bucket/prefix")
    return output.rstrip("/")


def _nothing_runs(*, as_json: bool) -> int:
    said = "the embedded cloud is not running: no machine, disk or key of it is left"
    if as_json:
        print_json("gc", {"running": False, "complete": True, "items": [], "orphans": 0, "dry_run": True})
    click.echo(said, err=as_json)
    return ExitCode.DONE


def _warn(sweep: Sweep) -> None:
    from launcher.sweep.render import show_gaps

    for line in show_gaps(sweep.gaps):
        click.secho(line, err=True, fg="red", bold=True)


def _show(sweep: Sweep) -> None:
    from launcher.sweep.render import show_sweep

    click.echo(show_sweep(sweep, width=columns()))


def _listed(sweep: Sweep, again: str, *, as_json: bool) -> int:
    from launcher.sweep.render import sweep_document

    if as_json:
        print_json("gc", sweep_document(sweep, None))
        return ExitCode.DONE
    _show(sweep)
    if sweep.orphans:
        click.echo(f"nothing was removed; this removes the orphans: {again}")
    return ExitCode.DONE


def _again(regions: tuple[str, ...], outputs: tuple[str, ...], cloud: str, profile: str | None) -> str:
    """The command that was typed, with the consent."""
    words = ["gpucost", "gc", *([] if cloud == "aws" else ["--cloud", cloud])]
    words += ["--profile", profile] if profile else []
    words += [word for region in regions for word in ("--region", region)]
    words += [word for output in outputs for word in ("--output", output)]
    return " ".join([*words, "--yes"])


def _ended(sweep: Sweep, done: Sequence[Done], sweeper: Sweeper, code: ExitCode, *, as_json: bool) -> int:
    from launcher.sweep.render import show_done, sweep_document

    if as_json:
        print_json("gc", {**sweep_document(sweep, done), "exit_code": int(code)})
    elif done:
        click.echo(show_done(done, sweeper.facts))
    if code is not ExitCode.DONE:
        said, hint = _last_words(code, sum(one.is_left for one in done))
        click.secho(f"error: {said}", err=True, fg="red", bold=code is ExitCode.NOT_CONFIRMED_GONE)
        click.echo(f"  try: {hint}", err=True)
    return code


def _last_words(code: ExitCode, left: int) -> tuple[str, str]:
    """What is to be said, and the next action."""
    things = "1 thing" if left == 1 else f"{left} things"
    again = "`gpucost gc` in a few minutes; what is still there then, end by hand"
    if code is ExitCode.NOT_CONFIRMED_GONE:
        return f"NOT CONFIRMED GONE, AND MAY STILL BE BILLED: {things}, see above", again
    if code is ExitCode.INTERRUPTED:
        return f"interrupted: not removed, or not confirmed gone: {things}", "the same command again: it goes on"
    if left:
        return f"not removed: {things}, see above; nothing of it is billed", again
    return "not everything could be looked at, see above", "grant the permissions of templates/aws-launcher-policy.json"
