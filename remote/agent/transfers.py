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
SYNC_SILENCE_SECONDS = 150.0
"""A sync that works reports each second or two; its longest wait for a storage that does not answer is shorter too."""
KILL_SECONDS = 5.0
"""How long a killed process may take to be gone; longer means it hangs in the kernel and is left."""
FINISH_LOOK_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 300.0
"""Between two starts of a post program that keeps dying; one that lived as long starts from the short pause again."""


class Transfers:
    """Starts one verb of the transfer program at a time and reads what it leaves behind."""

    def __init__(self, job: AgentJob, paths: LeasePaths, programs: Programs) -> None:
        self._job = job
        self._paths = paths
        self._programs = programs

    def start(self, verb: str) -> Child:
        """Start `stage`, `sync`, `post` or `outcome`. Raises OSError."""
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
        self._mark = self._look()
        self._since = clock.monotonic()

    def seconds(self) -> float:
        """Since the last change, or since the watch began."""
        mark = self._look()
        if mark != self._mark:
            self._mark, self._since = mark, self._clock.monotonic()
        return self._clock.monotonic() - self._since

    def _look(self) -> tuple[int, int] | None:
        try:
            state = self._path.stat()
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns


class SyncProgram:
    """`sync`, kept alive as long as trainings write, and asked for its last pass at the end."""

    def __init__(self, transfers: Transfers, paths: LeasePaths, clock: Clock) -> None:
        self._transfers = transfers
        self._paths = paths
        self._clock = clock
        self._child: Child | None = None
        self._next_start = clock.monotonic()
        self._silence = Silence(paths.sync_outcome, clock)
        self._killed_at: float | None = None
        self.failures = 0
        self.message = ""
        """What is wrong: why it last failed, what it warns of; empty while all is well."""
        self.done = False
        """The last pass is complete."""
        self.bytes = 0
        """Sent by all the programs that there were."""
        self._bytes_before = 0

    def keep(self) -> TransferOutcome | None:
        """Start it if it does not run, end it if it hangs, note its end, and return its newest outcome."""
        code = None if self._child is None else self._child.poll()
        outcome = self._transfers.outcome(self._paths.sync_outcome)  # after the poll: its last word is there by then
        if outcome is not None and self._child is not None:
            self.bytes = self._bytes_before + outcome.bytes
        if code is not None:
            self._ended(code, outcome)
        elif self._child is None:
            if not self.done and self._clock.monotonic() >= self._next_start:
                self._start()
        elif self._silence.seconds() > SYNC_SILENCE_SECONDS:
            self._end_the_silent(self._child)
        elif outcome is not None:
            self.message = outcome.message
        return outcome

    def begin_last_pass(self) -> None:
        """Failures of before do not count any more, and nothing is put off."""
        self.failures = 0
        self._next_start = self._clock.monotonic()

    def kill(self) -> None:
        """End it now."""
        if self._child is not None:
            self._child.kill()

    def _start(self) -> None:
        self._bytes_before = self.bytes
        try:
            self._paths.sync_outcome.unlink(missing_ok=True)
            self._child = self._transfers.start("sync")
        except OSError as error:
            self._failed(f"transfer sync cannot be started: {error}")
        self._silence = Silence(self._paths.sync_outcome, self._clock)
        self._killed_at = None

    def _end_the_silent(self, child: Child) -> None:
        now = self._clock.monotonic()
        if self._killed_at is None:
            self._killed_at = now
            child.kill()
        elif now - self._killed_at > KILL_SECONDS:
            self._child = None
            self._failed(_SILENT)

    def _ended(self, code: int, outcome: TransferOutcome | None) -> None:
        self._child = None
        if self._killed_at is not None:
            self._failed(_SILENT)
        elif code == 0 and outcome is not None and outcome.final and outcome.ok:
            self.done, self.message = True, ""
        else:
            self._failed(self._transfers.failure("sync", code, outcome))

    def _failed(self, message: str) -> None:
        self.failures += 1
        self.message = message
        self._next_start = self._clock.monotonic() + RESTART_SECONDS
        log.warning("%s", message)


_SILENT = f"transfer sync reported nothing for {SYNC_SILENCE_SECONDS:.0f} s and was ended"


class PostProgram:
    """`post`, kept alive from the first beat to the last status. Nothing waits for it but the end of the agent."""

    def __init__(self, transfers: Transfers, clock: Clock) -> None:
        self._transfers = transfers
        self._clock = clock
        self._child: Child | None = None
        self._started = self._next_start = clock.monotonic()
        self._pause = RESTART_SECONDS

    def keep(self) -> None:
        """Start it if it does not run; after each death the pause before that doubles."""
        now = self._clock.monotonic()
        if self._child is not None and (code := self._child.poll()) is not None:
            log.warning("%s", self._transfers.failure("post", code, None))
            self._child = None
            self._put_off(now)
        if self._child is None and now >= self._next_start:
            self._start(now)

    def finish(self, until: float) -> None:
        """Wait for the last status to be posted, at most `until` (Unix seconds), and end the program."""
        while self._child is not None and self._child.poll() is None and self._clock.now() < until:
            self._clock.sleep(FINISH_LOOK_SECONDS)
        if self._child is not None:
            self._child.kill()

    def _start(self, now: float) -> None:
        self._started = now
        try:
            self._child = self._transfers.start("post")
        except OSError as error:
            log.warning("transfer post cannot be started: %s", error)
            self._put_off(now)

    def _put_off(self, now: float) -> None:
        if now - self._started >= LONGEST_PAUSE_SECONDS:
            self._pause = RESTART_SECONDS
        self._next_start = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
