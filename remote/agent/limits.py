"""When this machine must be off, and why: the deadline of its lease, or sooner, what the budget pays for.

Owns the newest budget: the job's, replaced by any later one that the launcher puts beside it.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path

from remote import protocol
from remote.agent import budget as money
from remote.protocol import AgentJob, Budget, ProtocolError, Reason

log = logging.getLogger(__name__)

Mark = tuple[int, int, int]
"""Inode, time and size: a file that was replaced has another one."""


class Limits:
    """`off_at` is the hard end of the machine; `refresh` reads a newer budget."""

    def __init__(self, job: AgentJob, path: Path) -> None:
        """Raises ProtocolError: the job's own budget is no limit."""
        self._deadline = job.deadline
        self._path = path
        self._read: Mark | None = None
        self._complaint = ""
        self.budget: Budget | None = None
        self._budget_end = math.inf
        if job.budget is not None:
            self._take(job.budget)

    @property
    def off_at(self) -> float:
        """The machine is off by then (Unix seconds)."""
        return min(self._deadline, self._budget_end)

    @property
    def reason(self) -> Reason:
        """Which of the two limits comes first."""
        return Reason.BUDGET if self._budget_end < self._deadline else Reason.DEADLINE

    def words(self, now: float) -> str:
        """That limit as a message at `now`."""
        if self.reason is Reason.DEADLINE or self.budget is None:
            return "the deadline of this machine has come"
        owed, cap = money.owed_usd(self.budget, now), self.budget.cap_usd
        return f"the budget pays for no more training: ${owed:.4f} of ${cap:.4f} are owed after a stop now"

    def refresh(self) -> None:
        """Take a newer budget. One that cannot be used is logged once and changes nothing."""
        try:
            state = self._path.stat()
            mark = (state.st_ino, state.st_mtime_ns, state.st_size)
            if mark != self._read:
                self._read = mark
                self._take(protocol.read(self._path, Budget))
                log.info("a newer budget: training may be stopped until %.0f", self._budget_end)
        except FileNotFoundError:
            return
        except (OSError, ValueError, ProtocolError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("a newer budget is ignored: %s", error)

    def _take(self, budget: Budget) -> None:
        flaw = money.flaw(budget)
        if flaw is not None:
            raise ProtocolError(f"unusable budget: {flaw}")
        self.budget, self._budget_end = budget, money.ends_at(budget)
