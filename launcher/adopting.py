"""Runs that were begun elsewhere: brought here from nothing but their prefix in the storage, and kept up to date.

A run's URL is its output prefix with its id: `s3://bucket/prefix/RUN_ID`. What comes over is the journal and the newest
status of the agent; keys stay where they were made, and what they were for goes through the storage then.
"""

from __future__ import annotations

from launcher import wiring
from launcher.claim import agree, require_own
from launcher.context import Context
from launcher.errors import BadInput, ProviderError
from launcher.events import RunOpened
from launcher.history import folded, load_run
from launcher.home import RunFolder
from launcher.journal import JournalBusy
from launcher.mailbox import newest_status
from launcher.mirror import Mirror
from launcher.storage.interface import ObjectStore, StorageError


def find(reference: str | None, context: Context) -> str:
    """The id of the run that a user means: an id, the beginning of one, a name, a URL, or nothing (the newest).

    Raises BadInput, ProviderError, StorageError.
    """
    run_id = named(reference, context)
    if reference is not None and "://" in reference:
        with wiring.storage_at(reference.rstrip("/").removesuffix(f"/{run_id}"), context.home) as store:
            adopt(run_id, store, context)
    return run_id


def named(reference: str | None, context: Context) -> str:
    """The same without a look into the storage or a journal. Raises BadInput."""
    if reference is None or "://" not in reference:
        return context.home.find(reference)
    prefix, _, run_id = reference.rstrip("/").rpartition("/")
    if not prefix.startswith("s3://") or not run_id or "/" not in prefix.removeprefix("s3://") + "/":
        raise BadInput(f"{reference!r} is no run's URL", hint="write s3://bucket/prefix/RUN_ID")
    return run_id


def adopt(run_id: str, store: ObjectStore, context: Context, *, follow: bool = False) -> None:
    """Bring the journal here up to the one in the storage. Raises BadInput where there is none, StorageError.

    `follow`: even where records of this machine lost their numbers to another launcher's.
    """
    folder = context.home.run(run_id)
    mirror = Mirror(store, run_id, wiring.this_launcher(context.home), context.clock, folder.scratch)
    if not mirror.numbers():
        raise BadInput(f"there is no run at {store.url}/{run_id}", hint="look up its URL with `gpucost status --json`")
    known = folder.journal.path.exists()
    if not known:
        require_own(mirror.record(1), run_id)
    try:
        with folder.journal.writing():
            agree(folder.journal, mirror, context.report, only_forward=known and not follow)
    except JournalBusy:
        return  # a launcher of this machine drives it: what is here is the truth
    if not known:
        folder.adopted.write_text(f"{context.work_dir / 'runs' / _name(folder)}\n", encoding="utf-8")
    _keep_status(run_id, folder, store)


def refresh(run_id: str, context: Context, *, follow: bool = False) -> None:
    """Look into the storage for news of a run that is not driven from here; a silent storage changes nothing."""
    run = load_run(run_id, context)
    try:
        with wiring.storage_at(run.opened.storage_url, context.home, run) as store:
            adopt(run_id, store, context, follow=follow)
    except (BadInput, ProviderError, StorageError):
        return


def _name(folder: RunFolder) -> str:
    first = folder.journal.events()[0]
    assert isinstance(first, RunOpened)  # noqa: S101 - `agree` wrote what a launcher had written
    return first.name


def _keep_status(run_id: str, folder: RunFolder, store: ObjectStore) -> None:
    lease = folded(folder).lease
    status = None if lease is None else newest_status(run_id, lease.lease_id, store)
    if status is not None:
        folder.keep_status(status)
