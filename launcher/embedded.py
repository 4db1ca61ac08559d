"""Who uses the embedded cloud of a home: the launcher that started it ends it, unless another one still needs it.

Each launcher holds a shared lock while it uses the sandbox; taking it down needs the lock alone. An unfinished run
keeps it up, since its machine and its bucket are all that is left of it.
"""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from typing import IO

from launcher import sandbox
from launcher.events import Outcome
from launcher.home import Home
from launcher.journal import replay
from launcher.run import Run, State
from launcher.sandbox import SandboxInfo


@dataclass(slots=True)
class SandboxUse:
    """A running sandbox, held up by this process."""

    info: SandboxInfo
    home: Home
    started_here: bool
    lock: IO[str]

    def close(self) -> None:
        """Let go; end the sandbox where this process started it and no machine of an unfinished run needs it.

        The bucket is kept as long as a run can be resumed from it.
        """
        try:
            if self.started_here and self._alone():
                self._end()
        finally:
            self.lock.close()

    def _end(self) -> None:
        runs = _runs(self.home)
        if any(run.state is not State.SETTLED for run in runs):
            return
        if all(run.outcome is Outcome.DONE for run in runs):
            sandbox.down(self.home.root)
        else:
            sandbox.suspend(self.home.root)

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
            sandbox.suspend(home.root)
        lock.close()
        raise


def _runs(home: Home) -> list[Run]:
    journals = [home.run(run_id).journal for run_id in home.run_ids()]
    runs = [replay(journal.events(), str(journal.path)) for journal in journals]
    return [run for run in runs if run.opened.cloud == "sandbox"]
