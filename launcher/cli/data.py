"""Commands for data sets, before any of them costs something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli.common import json_option, print_json

if TYPE_CHECKING:
    from remote.dataset import Dataset

_NOTES_PER_KIND = 20
"""More than before a training: whoever checks wants to correct. All of them are in the document."""


@click.group("data")
def data_command() -> None:
    """Data sets: check one before it costs anything."""


@data_command.command("check")
@click.argument("data")
@click.option("--quick", is_flag=True, help="Read the header of each picture instead of decoding it.")
@json_option
def check_command(data: str, *, quick: bool, as_json: bool) -> None:
    """Say whether DATA can be trained on: a folder, a data.yaml or an archive.

    Every label is read and every picture decoded, as it will be in the training. What is left out or changed is told
    with its reason; what cannot be trained on is one error with a way out, and exit code 2.
    """
    from launcher import localdata
    from remote.dataset import PictureCheck

    with localdata.opened(data, PictureCheck.HEADERS if quick else PictureCheck.PIXELS) as dataset:
        _show(dataset, as_json=as_json)


def _show(dataset: Dataset, *, as_json: bool) -> None:
    from launcher.cli.documents import data_document
    from remote.dataset import brief, summary

    counted = summary(dataset)
    if as_json:
        print_json("data", data_document(dataset, counted))
        return
    for line in (*counted.lines(), *(f"note: {note}" for note in brief(dataset.notes, _NOTES_PER_KIND))):
        click.echo(line)
