"""`python -m drills.noting HOME`: the embedded cloud's daemon, in the foreground, writing down which calls it is asked.

The launcher finds it as it finds its own: by the files in HOME and by the mark. Says `ready` when it answers.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from launcher.sandbox.daemon import Daemon, serve
from launcher.sandbox.faults import CallFacts, FaultPlan, Faults
from launcher.sandbox.s3proxy import StoreProxy
from launcher.sandbox.state import SandboxPaths


def noted_calls(home: Path) -> Path:
    """The file of the calls: action and key of an object, one call a line, in order."""
    return SandboxPaths(home).root / "calls.txt"


class NotingFaults(Faults):
    """Fault plans that see every call."""

    def __init__(self, notes: Path) -> None:
        super().__init__()
        self._notes = notes

    def take(self, call: CallFacts) -> FaultPlan | None:
        """See `Faults`."""
        with self._notes.open("a") as out:
            out.write(f"{call.action} {call.key or ''}\n")
        return super().take(call)


class NotingDaemon(Daemon):
    """A sandbox that notes its calls."""

    def _build(self) -> None:
        super()._build()
        self._cloud.faults = NotingFaults(noted_calls(self._paths.home))
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = StoreProxy(self.host, self._store.endpoint, self._cloud.faults)


def main(kind: type[Daemon]) -> None:
    """Serve until somebody ends it."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    serve(Path(sys.argv[1]), os.dup(1), kind)


if __name__ == "__main__":
    main(NotingDaemon)
