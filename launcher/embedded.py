"""Who uses the embedded cloud of a home: the launcher that started it ends it, unless another one still needs it.

Each launcher holds a shared lock while it uses the sandbox; taking it down needs the lock alone. An unfinished run
keeps it up, since its machine and its bucket are all that is left of it.
"""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from typing import IO

from launcher import sandbox
from launcher.home import Home
from launcher.journal import replay
from launcher.run import State
from launcher.sandbox import SandboxInfo


@dataclass(slots=True)
class SandboxUse:
    """A running sandbox, held up by this process."""

    info: SandboxInfo
    home: Home
    started_here: bool
    lock: IO[str]

    def close(self) -> None:
        """Let go; take the sandbox down where this process started it and nothing unfinished needs it."""
        try:
            if self.started_here and self._alone() and not _unfinished(self.home):
                sandbox.down(self.home.root)
        finally:
            self.lock.close()

    def _alone(self) -> bool:
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def use_sandbox(home: Home) -> SandboxUse:
    """Start the sandbox, or use the one that runs. Raises BadInput where its parts are not installed."""
    lock = (home.root / "sandbox-users.lock").open("a")
    fcntl.flock(lock, fcntl.LOCK_SH)
    started_here = sandbox.status(home.root) is None
    try:
        return SandboxUse(sandbox.up(home.root), home, started_here, lock)
    except BaseException:
        if started_here:
            sandbox.down(home.root)
        lock.close()
        raise


def _unfinished(home: Home) -> bool:
    for run_id in home.run_ids():
        journal = home.run(run_id).journal
        run = replay(journal.events(), str(journal.path))
        if run.opened.cloud == "sandbox" and run.state is not State.SETTLED:
            return True
    return False
