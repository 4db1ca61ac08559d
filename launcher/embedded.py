"""Who uses the embedded cloud of a home: the last launcher to let it go ends it, unless a user started it by hand.

Each launcher holds a shared lock while it uses the sandbox; taking it down needs the lock alone. An unfinished run
keeps it up, since its machine and its bucket are all that is left of it.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from launcher import sandbox
from launcher.errors import GpucostError, Unreadable
from launcher.events import Outcome
from launcher.history import folded
from launcher.home import Home
from launcher.run import Run, State
from launcher.sandbox import SandboxInfo, SpotPrice
from pricing.offers import CapacityType
from pricing.sources.tables import load_offers

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SandboxUse:
    """A running sandbox, held up by this process."""

    info: SandboxInfo
    home: Home
    lock: IO[str]

    def close(self) -> None:
        """Let go; the last to do so ends the sandbox, unless an unfinished run needs it or a user started it by hand.

        The bucket is kept as long as a run can be resumed from it.
        """
        try:
            if self._alone() and not _by_hand(self.home).exists():
                self._end()
        except GpucostError as error:  # a run has ended by now, and its exit code counts
            log.warning("the embedded cloud stays up: %s", error)
        finally:
            self.lock.close()

    def _end(self) -> None:
        if unsettled(self.home) or unreadable(self.home):  # of the latter nobody can say that it has no machine
            return
        if resumable(self.home):
            sandbox.suspend(self.home.root)
        else:
            sandbox.down(self.home.root)

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
        return SandboxUse(sandbox.up(home.root, spot_prices=_spot_prices()), home, lock)
    except BaseException:
        if started_here:
            sandbox.suspend(home.root)
        lock.close()
        raise


def keep_up(home: Home) -> SandboxInfo:
    """Start the sandbox by hand: it stays until `take_down`, or until nobody has used it for long."""
    info = sandbox.up(home.root, spot_prices=_spot_prices())
    _by_hand(home).touch()
    return info


def take_down(home: Home) -> None:
    """End the sandbox with the data of its bucket, whatever needs it."""
    _by_hand(home).unlink(missing_ok=True)
    sandbox.down(home.root)


def unsettled(home: Home) -> list[str]:
    """Ids of the runs on this sandbox whose machine may be alive."""
    return [run.run_id for run in _runs(home) if run.state is not State.SETTLED]


def resumable(home: Home) -> list[str]:
    """Ids of the runs that ended early, or whose results are only in the sandbox's bucket."""
    settled = [run for run in _runs(home) if run.state is State.SETTLED]
    return [run.run_id for run in settled if run.outcome is not Outcome.DONE or not run.collected]


def unreadable(home: Home) -> list[str]:
    """Ids of the runs whose records cannot be read, of which nobody can say whether they are on this sandbox."""
    return [run_id for run_id in home.run_ids() if _run(home, run_id) is None]


def _spot_prices() -> Iterator[SpotPrice]:
    """The shipped table's, so that the embedded cloud asks what its plans expect."""
    for offer in load_offers():
        if offer.provider == "aws" and offer.capacity_type is CapacityType.SPOT and offer.zone:
            yield SpotPrice(offer.instance.name, offer.zone, offer.usd_per_hour)


def _by_hand(home: Home) -> Path:
    return home.root / "sandbox-by-hand"


def _runs(home: Home) -> list[Run]:
    """Those that can be read; see `unreadable`."""
    found = (_run(home, run_id) for run_id in home.run_ids())
    return [run for run in found if run is not None and run.opened.cloud == "sandbox"]


def _run(home: Home, run_id: str) -> Run | None:
    try:
        return folded(home.run(run_id))
    except Unreadable:
        return None
