"""For trainings of seconds: a set of pictures that nobody changes, configurations for it, and one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_training import make_squares

    return make_squares(tmp_path_factory.mktemp("squares"))


@pytest.fixture
def config(squares: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    from tiny_training import settings

    return lambda output="out", **changes: settings(squares, tmp_path / output, **changes)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
