"""The training log where the machine is not asked: the results, and the copy that its agent keeps in the storage."""

from __future__ import annotations

from launcher import wiring
from launcher.context import Context
from launcher.errors import BadInput, ProviderError
from launcher.machine import shown_log
from launcher.results import kept_results, task_folder
from launcher.run import Run
from launcher.storage.interface import StorageError
from remote.protocol import StoredRun

_LOG = "train.log"


def kept_log(run: Run, task: str, tasks: tuple[str, ...], context: Context) -> str:
    """The whole log from the results folder, else from the storage. Raises BadInput where neither has one."""
    folder = kept_results(run)
    kept = None if folder is None else task_folder(folder, task, tasks) / _LOG
    if kept is not None and kept.exists():
        return shown_log(kept.read_bytes().decode("utf-8", "replace"))
    if not run.attempt:
        raise BadInput(f"run {run.run_id} has no log yet", hint=f"results will be in {run.results_dir}")
    return stored_log(run, task, context)


def stored_log(run: Run, task: str, context: Context) -> str:
    """What the agent has copied to the storage so far, which is minutes behind. Raises BadInput where it has not."""
    try:
        with wiring.storage_at(run.opened.storage_url, context.home, run) as store:
            content = store.get(StoredRun(run.run_id).artifact(task, _LOG))
    except (ProviderError, StorageError) as error:
        raise BadInput(f"the log of {run.run_id} cannot be read: {error}", hint=error.hint) from error
    if content is None:
        hint = "the agent copies it there every few minutes; the machine that launched the run sees it live"
        raise BadInput(f"there is no log of {task} in {run.url} yet", hint=hint)
    return shown_log(content.decode("utf-8", "replace"))
