"""Files of data sets: only regular ones are read, a pipe would be waited for for ever; folders that appear whole."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from remote.dataset.values import DatasetError


def open_regular(path: Path) -> BinaryIO:
    """Open for reading, through links. Raises OSError: what `open` raises, and EINVAL for a pipe, socket or device."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a folder: `open` has its own words
        raise OSError(errno.EINVAL, "is a pipe, socket or device, not a file", str(path))
    return path.open("rb")


def read_regular(path: Path) -> bytes:
    """The whole content. Raises OSError as `open_regular` does."""
    with open_regular(path) as file:
        return file.read()


@contextmanager
def new_folder(target: Path, hint: str) -> Iterator[Path]:
    """A folder to fill, which becomes `target` when the block has ended well, and is gone otherwise.

    Raises DatasetError with `hint` where `target` is there already, unless it is an empty folder.
    """
    _refuse_taken(target, hint)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        _refuse_taken(target, hint)  # somebody else may have been quicker
        partial.replace(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _refuse_taken(target: Path, hint: str) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DatasetError(f"{target}: is already there", hint)
