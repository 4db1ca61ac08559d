"""`python3 -m remote.agent LEASE_FOLDER`: start the supervisor of one lease. A second agent of a folder leaves."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import IO

from remote import protocol
from remote.agent.forward import ForwardClock, not_before
from remote.agent.preemption import Metadata, NoNotices, Notices
from remote.agent.processes import MachinePrograms
from remote.agent.supervise import Ports, Supervisor
from remote.clock import Clock, SystemClock
from remote.protocol import EXIT_BAD_INPUT, AgentJob, AgentStatus, LeasePaths, Phase

log = logging.getLogger("remote.agent")


def main(argv: list[str]) -> int:
    """Run an agent to the end of the machine. Returns at once for bad arguments, a second agent, a lease that ended."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(level=logging.INFO, format="%(asctime)sZ %(levelname)s %(message)s", stream=sys.stderr)
    if len(argv) != 1:
        log.error("usage: python3 -m remote.agent LEASE_FOLDER")
        return EXIT_BAD_INPUT
    paths = LeasePaths(Path(argv[0]).resolve())
    try:
        job = protocol.read(paths.job, AgentJob)
    except (OSError, ValueError, protocol.ProtocolError) as error:
        log.error("no usable job: %s", error)
        return EXIT_BAD_INPUT
    lock = _lock(paths)
    before = _last_status(paths)
    if lock is None or (before is not None and before.phase is Phase.ENDED):
        log.info("another agent has this lease, or it has ended")
        return 0
    return _supervise(job, paths, ForwardClock(SystemClock(), not_before(job, before)))


def _supervise(job: AgentJob, paths: LeasePaths, clock: Clock) -> int:
    programs = MachinePrograms(job.lease_id, paths.bundle, paths.root)
    left = programs.end_left_behind(SystemClock())
    if left:
        log.warning("ended %d programs of an agent that died", left)
    try:
        supervisor = Supervisor(job, paths, Ports(programs, clock, _notices(job)), os.getpid())
    except protocol.ProtocolError as error:
        log.error("no usable job: %s", error)
        return EXIT_BAD_INPUT
    signal.signal(signal.SIGTERM, lambda _number, _frame: supervisor.terminate())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    supervisor.run()
    return 0


def _notices(job: AgentJob) -> Notices:
    """Where this machine's notices are; the environment variable is botocore's and moves the service elsewhere."""
    if job.metadata_base is None:
        return NoNotices()
    return Metadata(os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or job.metadata_base)


def _lock(paths: LeasePaths) -> IO[str] | None:
    """The lock of the folder, held as long as the file is open, or None if another agent has it."""
    handle = paths.agent_lock.open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    return handle


def _last_status(paths: LeasePaths) -> AgentStatus | None:
    """What an agent of this lease said last, if there was one before."""
    try:
        return protocol.read(paths.status, AgentStatus)
    except (OSError, ValueError, protocol.ProtocolError):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
