"""`python -m remote.transfer stage|sync|post|outcome LEASE_FOLDER`: the four things that the agent asks for.

argv names a verb and a folder; everything else, and nothing secret, comes from job.json. Exit code 0: done; 1: failed,
the outcome file says why; 2: called wrongly.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

from remote import protocol
from remote.clock import Clock, SystemClock
from remote.dataset.values import DatasetError
from remote.protocol import EXIT_BAD_INPUT, AgentJob, LeasePaths, ProtocolError, StoredRun, TransferOutcome
from remote.transfer.posting import Posting
from remote.transfer.report import Report
from remote.transfer.s3 import BRIEF, open_store
from remote.transfer.staging import Staging, StagingError, announced, stage, worth_again
from remote.transfer.store import RemoteStore, StoreError
from remote.transfer.syncing import Sync

log = logging.getLogger("remote.transfer")

STAGE_PAUSES = (5.0, 20.0)
"""Before the second and third try of a staging whose storage did not answer."""


def main(argv: list[str]) -> int:
    """Run one verb; its exit code."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(level=logging.INFO, format="%(asctime)sZ %(levelname)s %(message)s", stream=sys.stderr)
    verbs = {"stage": _stage, "sync": _sync, "post": _post, "outcome": _outcome}
    if len(argv) != 2 or argv[0] not in verbs:
        log.error("usage: python -m remote.transfer %s LEASE_FOLDER", "|".join(verbs))
        return EXIT_BAD_INPUT
    paths = LeasePaths(Path(argv[1]).resolve())
    try:
        job = protocol.read(paths.job, AgentJob)
    except (OSError, ValueError, ProtocolError) as error:
        log.error("no usable job: %s", error)
        return EXIT_BAD_INPUT
    return verbs[argv[0]](job, paths)


def _stage(job: AgentJob, paths: LeasePaths) -> int:
    clock = SystemClock()
    report = Report(paths.stage_outcome, clock)
    work = Staging(job, paths, lambda url: open_store(job.storage, url, paths.credentials), report)
    outcome = staged(work, clock)
    report.write(outcome)
    return 0 if outcome.ok else 1


def staged(work: Staging, clock: Clock) -> TransferOutcome:
    """Stage, again after a pause where the storage did not answer; a failure is an outcome too."""
    for pause in (*STAGE_PAUSES, None):
        try:
            return stage(work)
        except (StoreError, StagingError, DatasetError, OSError) as error:
            log.warning("%s", error)
            if pause is None or not worth_again(error):
                return announced(work.report.outcome, error)
            clock.sleep(pause)
    raise AssertionError("the last round returns")


def _sync(job: AgentJob, paths: LeasePaths) -> int:
    clock = SystemClock()
    report = Report(paths.sync_outcome, clock)
    try:
        store = _results(job, paths)
    except StoreError as error:
        report.write(TransferOutcome(ok=False, message=str(error)))
        return 1
    return Sync(job, paths, store, report, clock).run()


def _post(job: AgentJob, paths: LeasePaths) -> int:
    agent = os.getppid()

    def opened() -> RemoteStore:
        return open_store(job.storage, job.storage.url, paths.credentials, BRIEF)

    return Posting(job, paths, opened, SystemClock(), lambda: os.getppid() == agent).run()


def _outcome(job: AgentJob, paths: LeasePaths) -> int:
    try:
        _results(job, paths).put(paths.outcome, StoredRun(job.run_id).outcome(job.lease_id))
    except (StoreError, OSError) as error:
        log.error("%s", error)
        return 1
    return 0


def _results(job: AgentJob, paths: LeasePaths) -> RemoteStore:
    return open_store(job.storage, job.storage.url, paths.credentials)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
