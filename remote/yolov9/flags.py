"""What the commands' flags have in common: those that mean nothing here, and folders that are numbered on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import count
from pathlib import Path


def ignore(parser: argparse.ArgumentParser, switches: Sequence[str], valued: Sequence[str]) -> None:
    """Accept flags of the reference that mean nothing here, alone or with a value, and note them in `ignored`."""
    for flag in switches:
        parser.add_argument(flag, action=_Ignored, nargs=0, help=argparse.SUPPRESS)
    for flag in valued:
        parser.add_argument(flag, action=_Ignored, help=argparse.SUPPRESS)
    parser.set_defaults(ignored=())


class _Ignored(argparse.Action):
    """Notes that a flag without effect was given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        del parser, values
        namespace.ignored = (*namespace.ignored, option_string)


def next_folder(project: Path, name: str, *, exist_ok: bool) -> Path:
    """A new folder called `name` in `project`, or with the first free number from 2 on behind it."""
    numbered = (f"{name}{number if number > 1 else ''}" for number in count(1))
    folder = (
        project / name if exist_ok else next(each for each in (project / one for one in numbered) if not each.exists())
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder
