"""Packages that only some commands need: imported where they are used, one clear error where they are missing."""

from __future__ import annotations

import importlib
from typing import Any


class MissingPackage(Exception):
    """A package that is not installed; the message says how to get it."""


def required(module: str, extra: str) -> Any:  # noqa: ANN401 - a module, typed or not, that need not be there
    """A module of one of our extras. Raises MissingPackage."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingPackage(f"{package} cannot be imported ({error}): pip install 'gpucost[{extra}]'") from error
