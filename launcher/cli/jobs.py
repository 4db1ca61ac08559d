"""Commands that begin with a job file: init, estimate, train."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.cli.common import columns, job_options, json_option, make_context, overrides, print_json
from launcher.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from launcher.context import Context
    from launcher.jobspec import JobSpec
    from pricing.planner import Plan


@click.command("init")
@click.argument("path", type=click.Path(path_type=Path), default=Path("job.yaml"))
@click.option("--force", is_flag=True, help="Overwrite the file.")
def init_command(path: Path, *, force: bool) -> None:
    """Write a commented job file to PATH (job.yaml)."""
    from launcher.templating import template_text

    if path.exists() and not force:
        raise BadInput(f"{path} is already there", hint="choose another name, or overwrite it with --force")
    try:
        path.write_text(template_text("job.yaml"), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}", hint="choose a folder that exists") from error
    click.echo(f"wrote {path}; edit it, then: gpucost estimate {path}")


@click.command("estimate")
@click.argument("job_file", type=click.Path(path_type=Path))
@job_options
@click.option("--rows", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Offers to list.")
@json_option
def estimate_command(job_file: Path, rows: int, *, as_json: bool, **flags: object) -> None:
    """Rank the offers for JOB_FILE by cost and time. Nothing is started and no account is needed."""
    from launcher import estimating, jobspec, render
    from launcher.cli.documents import plan_document

    context = make_context()
    wanted = jobspec.load(job_file, overrides(flags))
    job = estimating.with_builtin_data(wanted, context.home, context.report)
    if "sandbox" in job.clouds:
        plan, notes = _sandbox_estimate(job, context)
    else:
        plan, notes = estimating.estimate(job, context.clock.now())
    if as_json:
        print_json("estimate", plan_document(plan, rows))
        return
    for note in notes:
        click.echo(f"data:   {note}", err=True)
    click.echo(render.show_plan(plan, rows=rows, width=columns(), startable=estimating.PROVISIONABLE))
    click.echo(f"cap:    {render.show_cap(job.budget, job.deadline)}")


def _sandbox_estimate(job: JobSpec, context: Context) -> tuple[Plan, tuple[str, ...]]:
    from launcher import opening

    prepared = opening.prepare(job, context)
    prepared.cloud.close()
    return prepared.plan, prepared.notes


@click.command("train")
@click.argument("job_file", type=click.Path(path_type=Path))
@job_options
@click.option("--yes", is_flag=True, help="Do not ask before spending.")
@click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
@click.option("--detach", is_flag=True, help="Go on in the background and return; `gpucost wait` collects.")
@json_option
def train_command(job_file: Path, *, yes: bool, dry_run: bool, detach: bool, as_json: bool, **flags: object) -> int:
    """Train JOB_FILE on the best machine, within the budget, and leave nothing running."""
    from launcher import app, estimating, jobspec, opening, render
    from launcher.cli.documents import plan_document
    from launcher.cli.outcome import finish

    context = make_context()
    wanted = jobspec.load(job_file, overrides(flags))
    job = estimating.with_builtin_data(wanted, context.home, context.report)
    going_on = opening.unfinished(job, context)
    if going_on is not None and not dry_run:
        click.echo(f"going on with the unfinished run {going_on}", err=True)
        if detach:
            return _go_on_detached(going_on, context, as_json=as_json)
        return finish(app.go_on(going_on, context), as_json=as_json)
    if not (yes or dry_run or sys.stdin.isatty()):
        raise BadInput(
            "nobody can be asked here whether to spend money: standard input is no terminal",
            hint="start without being asked with --yes, or see the plan with --dry-run",
        )
    prepared = opening.prepare(job, context)
    try:
        for note in prepared.notes:
            click.echo(f"data:   {note}", err=True)
        if dry_run and as_json:
            print_json("plan", plan_document(prepared.plan, 10))
            return ExitCode.DONE
        click.echo(render.show_plan(prepared.plan, width=columns()), err=as_json)
        click.echo(f"cap:    {render.show_cap(job.budget, job.deadline)}", err=as_json)
        if dry_run:
            return ExitCode.DONE
        if not yes and not click.confirm("start?", err=True):
            click.echo("nothing was started", err=True)
            return ExitCode.DONE
        run = opening.open_run(prepared, context)
        if detach:
            return _go_on_detached(run.run_id, context, as_json=as_json)
        return finish(app.go_on(run.run_id, context, cloud=prepared.cloud), as_json=as_json)
    finally:
        prepared.cloud.close()


def _go_on_detached(run_id: str, context: Context, *, as_json: bool) -> int:
    from launcher import detaching, history

    try:
        pid = detaching.supervise(run_id, context)
    except KeyboardInterrupt:
        click.echo(f"{run_id} may go on in the background: `gpucost stop {run_id}` ends it", err=True)
        return ExitCode.INTERRUPTED
    run = history.load_run(run_id, context)
    if as_json:
        print_json("detached", {"run_id": run_id, "pid": pid, "storage_url": run.url})
    else:
        click.echo(f"{run_id} goes on in the background (process {pid})")
        click.echo(f"  watch: gpucost attach {run_id}   collect: gpucost wait {run_id}   end: gpucost stop {run_id}")
        if run.opened.cloud != "sandbox":
            click.echo(f"  from any machine: gpucost status {run.url}")
    return ExitCode.DONE
