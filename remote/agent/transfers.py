"""The transfer program as the agent sees it: started, watched, its outcome files read.

Owns its argv (which carries no secret) and its restarts. All object storage is behind it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from remote import protocol
from remote.agent.processes import Child, Programs
from remote.agent.retry import ending
from remote.clock import Clock
from remote.protocol import AgentJob, LeasePaths, TransferOutcome

log = logging.getLogger(__name__)

RESTART_SECONDS = 5.0
FINAL_FAILURES = 3


class Transfers:
    """Starts one verb of the transfer program at a time and reads what it leaves behind."""

    def __init__(self, job: AgentJob, paths: LeasePaths, programs: Programs) -> None:
        self._job = job
        self._paths = paths
        self._programs = programs

    def start(self, verb: str) -> Child:
        """Start `stage`, `sync` or `outcome`. Raises OSError."""
        argv = [*self._job.python, "-m", "remote.transfer", verb, str(self._paths.root)]
        return self._programs.start(f"transfer/{verb}", argv, self._paths.transfer_log(verb), {})

    def outcome(self, path: Path) -> TransferOutcome | None:
        """The outcome file, or None while there is none that can be read."""
        try:
            return protocol.read(path, TransferOutcome)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, protocol.ProtocolError) as error:
            log.warning("%s", error)
            return None

    def failure(self, verb: str, code: int, outcome: TransferOutcome | None) -> str:
        """Why a verb failed: its own message, or the last line that it logged."""
        if outcome is not None and not outcome.ok and outcome.message:
            return outcome.message
        try:
            lines = self._paths.transfer_log(verb).read_text("utf-8", "replace").split("\n")
        except OSError:
            lines = []
        said = next((line for line in reversed(lines) if line.strip()), "nothing in its log")
        return f"transfer {verb}: {ending(code)}: {said.strip()[:300]}"


class Silence:
    """How long a file has not changed: the watchdog of a transfer."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._text = self._read()
        self._since = clock.monotonic()

    def seconds(self) -> float:
        """Since the last change, or since the watch began."""
        text = self._read()
        if text != self._text:
            self._text, self._since = text, self._clock.monotonic()
        return self._clock.monotonic() - self._since

    def _read(self) -> str:
        try:
            return self._path.read_text("utf-8", "replace")
        except OSError:
            return ""


class SyncProgram:
    """`sync`, kept alive as long as trainings write, and asked for its last pass at the end."""

    def __init__(self, transfers: Transfers, paths: LeasePaths, clock: Clock) -> None:
        self._transfers = transfers
        self._paths = paths
        self._clock = clock
        self._child: Child | None = None
        self._next_start = clock.monotonic()
        self._silence = Silence(paths.sync_outcome, clock)
        self.failures = 0
        self.message = ""
        """Why it last failed; empty while it works."""
        self.done = False
        """The last pass is complete."""

    def keep(self) -> TransferOutcome | None:
        """Start it if it does not run, note its end, and return its newest outcome."""
        code = None if self._child is None else self._child.poll()
        outcome = self._transfers.outcome(self._paths.sync_outcome)  # after the poll: its last word is there by then
        if code is not None:
            self._ended(code, outcome)
        elif self._child is None and not self.done and self._clock.monotonic() >= self._next_start:
            self._start()
        elif outcome is not None:
            self.message = "" if outcome.ok else outcome.message
        return outcome

    def silent_seconds(self) -> float:
        """How long it has reported nothing."""
        return self._silence.seconds()

    def kill(self) -> None:
        """End it now."""
        if self._child is not None:
            self._child.kill()

    def _start(self) -> None:
        try:
            self._child = self._transfers.start("sync")
        except OSError as error:
            self._failed(f"transfer sync cannot be started: {error}")
        self._silence = Silence(self._paths.sync_outcome, self._clock)

    def _ended(self, code: int, outcome: TransferOutcome | None) -> None:
        self._child = None
        if code == 0 and outcome is not None and outcome.final and outcome.ok:
            self.done, self.message = True, ""
        else:
            self._failed(self._transfers.failure("sync", code, outcome))

    def _failed(self, message: str) -> None:
        self.failures += 1
        self.message = message
        self._next_start = self._clock.monotonic() + RESTART_SECONDS
        log.warning("%s", message)
