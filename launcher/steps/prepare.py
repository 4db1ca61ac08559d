"""Planned: put the data where the machine can fetch it, then write down the intent to launch. Nothing is paid yet."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from launcher import localdata
from launcher.events import Event, LaunchRequested, Lease
from launcher.jobspec import parse
from launcher.limits import lease_deadline
from launcher.report import Note
from launcher.run import Run
from launcher.services import Services
from launcher.staging_archive import pack
from launcher.units import show_gib


def prepare(run: Run, services: Services) -> Event:
    """Upload a local data set unless it is there already; then `LaunchRequested`.

    Raises StorageError, BadInput, DatasetError, Exhausted and RefusedError; nothing was launched then.
    """
    staged = _staged(run, services)
    services.credentials(0)  # a refusal is met now, not beside a machine that is paid for
    lease = next_lease(staged, services)
    assert staged.data_url is not None  # noqa: S101 - `_staged` sets it
    return LaunchRequested(
        at=services.clock.now(),
        lease=lease,
        data_url=staged.data_url,
        data_sha256=staged.data_sha256,
        data_files=staged.data_files,
        data_bytes=staged.data_bytes,
    )


def next_lease(run: Run, services: Services) -> Lease:
    """The lease that the run's selection asks for, with its idempotency token and deadline. Raises Exhausted."""
    job = parse(run.opened.job, {}, run.run_id)
    now = services.clock.now()
    deadline, basis = lease_deadline(run, run.selection, job.disk, now, services.rates, services.facts)
    lease_id = f"{run.run_id}-{run.attempt + 1}"
    return Lease(
        lease_id=lease_id,
        token=_token(lease_id, run.selection.offer.key),
        selection=run.selection,
        deadline=deadline,
        deadline_basis=basis,
        disk_gib=job.disk,
        requested_at=now,
    )


def _token(lease_id: str, offer_key: str) -> str:
    # EC2 takes 64 ASCII characters and holds a token per zone: place, type and market are part of it.
    return hashlib.sha256(f"{lease_id} {offer_key}".encode()).hexdigest()[:48]


def _staged(run: Run, services: Services) -> Run:
    if run.opened.data_url is not None:
        return replace(run, data_url=run.opened.data_url)
    if run.data_url is not None and services.store.list(run.data_url.removeprefix(f"{services.store.url}/")):
        return run
    with localdata.opened(str(run.opened.job["data"])) as dataset:
        packed = pack(dataset, services.folder.scratch / "data.tar")
    key = f"data/{packed.sha256}.tar"
    if not any(found.key == key and found.size == packed.size for found in services.store.list(key)):
        services.report(
            Note(f"uploading {packed.files} pictures ({show_gib(packed.size)}) to {services.store.url}/data")
        )
        services.store.upload(packed.path, key)
    packed.path.unlink()
    return replace(
        run,
        data_url=f"{services.store.url}/{key}",
        data_sha256=packed.sha256,
        data_files=packed.files,
        data_bytes=packed.size,
    )
