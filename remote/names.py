"""Every name that the launcher and the machine agree on: files of a lease, files of a task, objects of a run.

Standard library only, Python 3.10. What is in those files is in `remote.protocol`.
"""

from __future__ import annotations

from pathlib import Path


class LeasePaths:
    """Every name inside one lease folder on the machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.job = root / "job.json"
        self.status = root / "status.json"
        self.command = root / "command.json"
        self.budget = root / "budget.json"
        """A newer `Budget` than the one in the job: the launcher writes it when a price changes."""
        self.launcher_beat = root / "launcher.beat"
        """Touched by a launcher that watches; its age says whether one does."""
        self.credentials = root / "credentials"
        self.agent_log = root / "agent.log"
        self.agent_lock = root / "agent.lock"
        """Locked by the one agent of this lease for as long as it lives."""
        self.bundle = root / "bundle"
        """The unpacked `remote` package's parent: what PYTHONPATH names."""
        self.data = root / "data"
        self.transfer = root / "transfer"
        self.stage_outcome = self.transfer / "stage.json"
        self.sync_outcome = self.transfer / "sync.json"
        self.final_request = self.transfer / "final.request"
        """Made by the agent, with the `Reason` to stop, when nothing writes any more; sync then finishes and exits."""
        self.outcome = self.transfer / "outcome.json"
        """The last status as it goes to `StoredRun.outcome`, uploaded before `status.json` says the same."""
        self.tasks = root / "tasks"

    def transfer_log(self, verb: str) -> Path:
        """What the transfer program wrote to its terminal: `stage`, `sync`, `post` or `outcome`."""
        return self.transfer / f"{verb}.log"

    def task(self, name: str) -> TaskPaths:
        """The folder of one task."""
        return TaskPaths(self.tasks / name)


class TaskPaths:
    """Every name inside one task's folder: the trainer writes here, the transfer program reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.json"
        self.progress = root / "progress.json"
        self.log = root / "train.log"
        self.weights = root / "weights"
        self.last = self.weights / "last.pt"
        self.previous = self.weights / "last.previous.pt"
        """The checkpoint before, which the trainer takes where it cannot use the last one."""
        self.best = self.weights / "best.pt"
        self.results = root / "results.csv"
        self.settings = root / "opt.yaml"
        self.hyper_parameters = root / "hyp.yaml"
        self.save_request = root / "save.request"
        """Made by the agent where the machine is at risk: the trainer saves at its next step, and removes it."""


class StoredRun:
    """Every object name of a run, relative to the storage URL."""

    def __init__(self, run_id: str) -> None:
        self.prefix = run_id

    def checkpoints(self, task: str) -> str:
        """Folder of one task's checkpoints: `STEP-DIGEST.pt` objects and, later, `STEP-DIGEST.json` manifests."""
        return f"{self.prefix}/tasks/{task}/checkpoints/"

    def artifact(self, task: str, name: str) -> str:
        """A final file of a task: `best.pt`, `last.pt`, `results.csv`, `train.log`, plots."""
        return f"{self.prefix}/tasks/{task}/artifacts/{name}"

    def artifacts(self, task: str) -> str:
        """List of a task's final files with size and SHA-256: the commit point of the upload."""
        return f"{self.prefix}/tasks/{task}/artifacts.json"

    def outcome(self, lease_id: str) -> str:
        """The last status of one lease's agent."""
        return f"{self.prefix}/leases/{lease_id}/outcome.json"

    def posted_status(self, lease_id: str) -> str:
        """A copy of the agent's status, renewed about once a minute: for those who cannot reach the machine."""
        return f"{self.prefix}/leases/{lease_id}/status.json"

    def posted_command(self, lease_id: str) -> str:
        """A `StopCommand` for the agent from somebody who cannot reach the machine."""
        return f"{self.prefix}/leases/{lease_id}/command.json"

    @property
    def journal(self) -> str:
        """Folder of the journal's copy: one create-only object for each record, numbered from 1."""
        return f"{self.prefix}/journal/"

    def record(self, number: int) -> str:
        """One record of the journal."""
        return f"{self.journal}{number:06d}.json"

    @property
    def launcher_beat(self) -> str:
        """Which launcher drives the run, renewed about once a minute while it does."""
        return f"{self.prefix}/launcher.json"
