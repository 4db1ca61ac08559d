"""A lease folder, a store in memory, and a clock, for the logic of the transfer program."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from agent_ports import FakeClock
from remote_store import MemoryStore

from remote import protocol
from remote.protocol import AgentJob, DataSpec, LeasePaths, Manifest, StorageSpec, StoredRun, TaskProgress, TaskSpec
from remote.transfer.report import Report
from remote.transfer.staging import Staging
from remote.transfer.syncing import Sync

RUN = StoredRun("run")


@dataclass
class Folder:
    """One lease folder and where its results go. `data` is a second store, where the data set is."""

    paths: LeasePaths
    job: AgentJob
    clock: FakeClock
    store: MemoryStore
    data: MemoryStore

    def staging(self, **changes: object) -> Staging:
        def opened(url: str) -> MemoryStore:
            return self.store if url == self.job.storage.url else self.data

        job = replace(self.job, **changes)
        return Staging(job, self.paths, opened, Report(self.paths.stage_outcome, self.clock))

    def sync(self) -> Sync:
        return Sync(self.job, self.paths, self.store, Report(self.paths.sync_outcome, self.clock), self.clock)

    def save(self, step: int, content: str = "", task: str = "a") -> None:
        """What the trainer does: a checkpoint by rename, then progress."""
        paths = self.paths.task(task)
        protocol.write_text(paths.last, content or f"weights at {step}")
        protocol.write(paths.progress, TaskProgress(step // 10, 9, step, 90, 1.0))

    def manifests(self, task: str = "a") -> list[Manifest]:
        folder = RUN.checkpoints(task)
        keys = [key for key in self.store.objects if key.startswith(folder) and key.endswith(".json")]
        found = [protocol.decode(self.store.objects[key].decode(), Manifest, key) for key in keys]
        return sorted(found, key=lambda manifest: manifest.step)

    def objects(self, task: str = "a") -> set[str]:
        folder = RUN.checkpoints(task)
        return {key.removeprefix(folder) for key in self.store.objects if key.startswith(folder)}

    def read(self, key: str) -> dict:
        return json.loads(self.store.objects[key])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    storage = StorageSpec("s3://bucket/out", "us-east-1")
    data = DataSpec("s3://sets/digits.tar", files=3)
    job = AgentJob("run", "lease", 2e9, ["py"], storage, data, [TaskSpec("a", {}), TaskSpec("b", {})], ["off"])
    paths = LeasePaths(tmp_path / "lease")
    paths.transfer.mkdir(parents=True)
    return Folder(paths, job, FakeClock(), MemoryStore(storage.url), MemoryStore("s3://sets"))
