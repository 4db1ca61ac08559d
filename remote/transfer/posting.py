"""A copy of the agent's status in the storage, and commands from there: for those who cannot reach the machine.

Owns the two objects of a lease that are exchanged while it lives. A program of its own, so that no upload delays a beat
and no dead storage delays anything else. What cannot be done is logged when it changes, and tried again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from remote import protocol
from remote.clock import Clock
from remote.protocol import AgentJob, AgentStatus, LeasePaths, Phase, ProtocolError, Reason, StopCommand, StoredRun
from remote.transfer.store import RemoteStore, StoreError, StoreMissing

log = logging.getLogger(__name__)

OpenStore = Callable[[], RemoteStore]
"""Opens the place of the run's results. Raises StoreError."""

LOOK_SECONDS = 1.0
"""Between two looks at the status on the disk: a new phase or reason goes at once."""
AGAIN_SECONDS = 15.0
"""After a copy that failed."""
FETCHED = "command.fetched.json"

Turn = tuple[Phase, Reason | None]


class Posting:
    """One post program. `run` ends after the last status was posted, or once `agent_lives` says no."""

    def __init__(
        self, job: AgentJob, paths: LeasePaths, open_store: OpenStore, clock: Clock, agent_lives: Callable[[], bool]
    ) -> None:
        stored = StoredRun(job.run_id)
        self._pace = job.post_seconds
        self._paths = paths
        self._open_store = open_store
        self._store: RemoteStore | None = None
        self._clock = clock
        self._agent_lives = agent_lives
        self._status_key = stored.posted_status(job.lease_id)
        self._command_key = stored.posted_command(job.lease_id)
        self._tried: Turn | None = None
        self._next_at = clock.monotonic()
        self._complaint = ""

    def run(self) -> int:
        """Round after round; the exit code, which is 0."""
        while self._agent_lives():
            if self.round() is Phase.ENDED:
                log.info("the last status is posted")
                break
            self._clock.sleep(LOOK_SECONDS)
        return 0

    def round(self) -> Phase | None:
        """Post the status and look for a command, if it is time to; the phase that was posted."""
        status, complaint = self._status()
        turn = None if status is None else (status.phase, status.reason)
        if self._clock.monotonic() < self._next_at and turn in (None, self._tried):
            return None
        self._tried = turn
        unposted = self._post(status)
        self._say("; ".join(said for said in (complaint, unposted, self._fetch_command()) if said))
        self._next_at = self._clock.monotonic() + (min(self._pace, AGAIN_SECONDS) if unposted else self._pace)
        return None if status is None or unposted else status.phase

    def _status(self) -> tuple[AgentStatus | None, str]:
        """The status on the disk, or None and what is wrong with it."""
        try:
            return protocol.read(self._paths.status, AgentStatus), ""
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError, ProtocolError) as error:
            return None, str(error)

    def _post(self, status: AgentStatus | None) -> str:
        """Why it is not posted, or nothing."""
        try:
            if status is not None:
                self._opened().put(protocol.encode(status).encode(), self._status_key)
        except StoreError as error:
            self._store = None
            return str(error)
        return ""

    def _fetch_command(self) -> str:
        """Put a stored command where the agent looks for one, where none is yet; what is wrong with it, or nothing."""
        try:
            text = self._opened().read(self._command_key).decode("utf-8")
            command = protocol.decode(text, StopCommand, self._command_key)
            fetched = self._paths.transfer / FETCHED
            protocol.write(fetched, command)
            os.link(fetched, self._paths.command)
        except (StoreMissing, FileExistsError):
            return ""
        except StoreError as error:
            self._store = None
            return str(error)
        except (OSError, ValueError, ProtocolError) as error:
            return str(error)
        log.info("a command came from the storage: %s", command.reason.value)
        return ""

    def _opened(self) -> RemoteStore:
        """Opened again after each failure: credentials that were not there yet are looked for only then."""
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def _say(self, complaint: str) -> None:
        """Log what is wrong when it changes, and when it is over."""
        if complaint == self._complaint:
            return
        self._complaint = complaint
        if complaint:
            log.warning("%s", complaint)
        else:
            log.info("all is well again")
