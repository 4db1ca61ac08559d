"""The report command: what the runs really cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.cli.common import json_text, make_context
from launcher.errors import BadInput

if TYPE_CHECKING:
    from launcher.context import Context


@click.command("report")
@click.argument("run", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How the rows are written.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file instead of stdout.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Same as --format csv --output FILE.")
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
def report_command(run: str | None, form: str, output: Path | None, csv_file: Path | None, *, as_json: bool) -> None:
    """One row for each machine that was paid for, and for the objects of each run (of RUN alone, if named)."""
    from launcher import accounts, history
    from launcher.cli.documents import entry_document, storage_document

    if csv_file is not None and (as_json or form == "json" or output is not None):
        raise click.UsageError("--csv FILE cannot be combined with --json, --format json or --output")
    context = make_context()
    runs = history.all_runs(context) if run is None else [history.load_run(_find(run, context), context)]
    if csv_file is not None:
        form, output = "csv", csv_file
    if as_json or form == "json":
        leases = [entry_document(found, entry) for found in runs for entry in found.entries]
        storage = [storage_document(found) for found in runs if found.storage]
        text = json_text("report", {"leases": leases, "storage": storage, "usd": accounts.total_usd(runs)})
    else:
        text = accounts.csv_text(runs) if form == "csv" else accounts.table_text(runs)
    if output is None:
        click.echo(text, nl=False)
        return
    if not output.name or output.is_dir():
        raise BadInput(f"{str(output)!r} is no file name", hint="name the file to write")
    try:
        accounts.write_whole(output, text)
    except OSError as error:
        raise BadInput(f"{output} cannot be written: {error.strerror}", hint="choose a folder that exists") from error
    rows = accounts.row_count(runs)
    click.echo(f"wrote {rows} {'row' if rows == 1 else 'rows'} to {output}", err=True)


def _find(run: str, context: Context) -> str:
    """Its id, which needs no SDK where it is known here."""
    if "://" not in run:
        return context.home.find(run)
    from launcher import adopting

    return adopting.find(run, context)
