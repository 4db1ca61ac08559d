"""Opening a file that somebody else's data set names: only a regular one, since a pipe would be waited for for ever."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import BinaryIO


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
