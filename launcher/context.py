"""What every command has: the state directory, the time, someone to tell, and the user's folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from launcher.clock import Clock
from launcher.home import Home
from launcher.report import Reporter


@dataclass(frozen=True, slots=True)
class Context:
    """Made once by the command line."""

    home: Home
    clock: Clock
    report: Reporter
    work_dir: Path
