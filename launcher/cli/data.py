"""Commands for data sets, before any of them costs something."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.cli.common import json_option, make_context, print_json
from launcher.units import show_gib

if TYPE_CHECKING:
    from remote.dataset import Dataset, Note

_NOTES_PER_KIND = 20
"""More than before a training: whoever checks wants to correct. All of them are in the document."""


@click.group("data")
def data_command() -> None:
    """Data sets: check one before it costs anything, make one of Pascal VOC or COCO."""


@data_command.command("check")
@click.argument("data")
@click.option("--quick", is_flag=True, help="Read the header of each picture instead of decoding it.")
@json_option
def check_command(data: str, *, quick: bool, as_json: bool) -> None:
    """Say whether DATA can be trained on: a folder, a data.yaml or an archive, here or in a bucket.

    Here every label is read and every picture decoded, as it will be in the training. An s3:// URL of a .zip, a .tar
    or a prefix ending in / is checked where it is, by all of its names and a sample of its files.
    What is left out or changed is told with its reason; what cannot be trained on is one error with a way out, and exit
    code 2.
    """
    if "://" in data:
        _check_elsewhere(data, as_json=as_json)
        return
    from launcher import localdata
    from remote.dataset import PictureCheck

    with localdata.opened(data, PictureCheck.HEADERS if quick else PictureCheck.PIXELS) as dataset:
        _tell(dataset, as_json=as_json)


def _check_elsewhere(url: str, *, as_json: bool) -> None:
    from launcher import bucketdata
    from launcher.cli.documents import sampled_document

    found = bucketdata.sampled(url, make_context().home)
    if as_json:
        print_json("data", sampled_document(found, url))
        return
    _show(found.lines(), found.notes)
    read, whole = show_gib(found.traffic.bytes_read), show_gib(found.traffic.bytes_there)
    click.echo(f"a sample: {read} of {whole} read, in {found.traffic.requests} requests")


@data_command.command("import")
@click.argument("source")
@click.argument("output", type=click.Path(path_type=Path))
@json_option
def import_command(source: str, output: Path, *, as_json: bool) -> None:
    """Make a data set in the new folder OUTPUT of SOURCE, a folder or archive of Pascal VOC or COCO.

    Splits come from ImageSets/Main, from the names of the JSON files, or from folders called train, val and test.
    Pictures are linked where the file system can, else copied. Whatever is not taken over is told with its reason.
    """
    from launcher import localdata
    from launcher.cli.documents import imported_document

    made = localdata.imported(source, output)
    if as_json:
        print_json("import", imported_document(made))
        return
    click.echo(f"{made.layout.value}, taken over to {made.root}")
    _show(made.summary.lines(), made.notes)


def _tell(dataset: Dataset, *, as_json: bool) -> None:
    from launcher.cli.documents import data_document
    from remote.dataset import summary

    if as_json:
        print_json("data", data_document(dataset))
    else:
        _show(summary(dataset).lines(), dataset.notes)


def _show(lines: list[str], notes: tuple[Note, ...]) -> None:
    from remote.dataset import brief

    for line in (*lines, *(f"note: {note}" for note in brief(notes, _NOTES_PER_KIND))):
        click.echo(line)
