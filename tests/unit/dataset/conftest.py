"""A data set of a few pictures for each test that asks."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.fakes import data_sets

MakeSet = Callable[..., Path]


@pytest.fixture
def make_set(tmp_path: Path) -> MakeSet:
    return partial(data_sets.make_set, tmp_path / "set")
