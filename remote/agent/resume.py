"""Whether a training goes on where its restored checkpoint was. Pure: knows no files and no processes."""

from __future__ import annotations

from collections.abc import Mapping

from remote.protocol import TaskProgress, TaskStatus


class ResumeCheck:
    """Holds what trainings say of their beginning against what staging restored; each disagreement is said once."""

    def __init__(self, restored: Mapping[str, int]) -> None:
        self._restored = dict(restored)

    def look(self, status: TaskStatus) -> str | None:
        """What is wrong with the beginning of this training, the first time that it shows."""
        step, progress = self._restored.get(status.name), status.progress
        if step is None or progress is None or not _behind(progress, step):
            return None
        del self._restored[status.name]
        began = progress.resumed_step or 0
        return f"training of {status.name} began at step {began} although a checkpoint of step {step} was restored"


def _behind(progress: TaskProgress, restored: int) -> bool:
    """Where the trainer does not tell which step it saves, stored steps may be some too high: only zero is behind."""
    began = progress.resumed_step or 0
    exact = progress.saved_step is not None
    return began < restored if exact else began == 0 < restored
