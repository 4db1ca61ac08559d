"""The questions that can be answered without a cloud: what a job's data is, and what training it would cost where.

Kept apart from `app`, so that `gpucost estimate` loads no SSH, no SDK and no torch.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from launcher import localdata
from launcher.errors import BadInput
from launcher.home import Home
from launcher.jobspec import JobSpec
from launcher.localdata import DataFacts
from launcher.planning import Catalog, first_plan
from launcher.report import Note, Reporter
from launcher.storage.interface import ObjectStore
from pricing.phases import DEFAULT_OVERHEADS
from pricing.planner import Plan
from pricing.sources.tables import load_offers, load_rates, load_throughput_model
from remote.dataset import Dataset, DatasetError, brief, summary

PROVISIONABLE = ("aws",)
"""Clouds with a provider adapter; offers of others are estimates only."""
BUILTIN = "builtin:"


def full_catalog() -> Catalog:
    """Everything that is on sale, with the modelled speed."""
    return Catalog(load_offers(), load_rates(), load_throughput_model(), DEFAULT_OVERHEADS, None)


def estimate(job: JobSpec, now: datetime) -> tuple[Plan, tuple[str, ...]]:
    """Rank everything on sale for a job; what was noticed in its data. Raises BadInput, NoPlan; contacts nobody."""
    data, notes = data_facts(job, None)
    return first_plan(job, data, full_catalog(), now), notes


def cloud_of(job: JobSpec) -> str:
    """The one cloud a job runs on. Raises BadInput for several, or one without a provider."""
    named = [cloud for cloud in job.clouds if cloud in {*PROVISIONABLE, "sandbox"}]
    if job.clouds and not named:
        raise BadInput(
            f"no machine can be started on {job.clouds[0]!r} yet",
            hint="`gpucost estimate` ranks it; train on aws or sandbox",
        )
    return named[0] if named else PROVISIONABLE[0]


def with_builtin_data(job: JobSpec, home: Home, report: Reporter) -> JobSpec:
    """The job with `builtin:digits` replaced by a folder, made on first use. Raises BadInput."""
    if not job.data.startswith(BUILTIN):
        return job
    if job.data != f"{BUILTIN}digits":
        raise BadInput(f"there is no built-in data set {job.data!r}", hint=f"the only one is {BUILTIN}digits")
    folder = home.root / "datasets" / "digits"
    if not folder.exists():
        report(Note(f"making the quickstart's pictures in {folder}"))
        _make_digits(folder)
    return job.model_copy(update={"data": str(folder)})


def _make_digits(folder: Path) -> None:
    try:
        from remote.dataset.digits import make_digits

        make_digits(folder)
    except ImportError as error:
        raise BadInput(f"the quickstart needs {error.name}", hint="pip install 'gpucost[sandbox,train]'") from error
    except DatasetError as error:
        raise BadInput(str(error), hint=error.hint) from error


def data_facts(job: JobSpec, store: ObjectStore | None) -> tuple[DataFacts, tuple[str, ...]]:
    """Count a job's data, and what was noticed in it; `store` is where s3:// data is. Raises BadInput, StorageError."""
    if job.is_local:
        with localdata.opened(job.data) as dataset:
            return localdata.facts(dataset), _data_notes(dataset)
    if job.images is None:
        raise BadInput(
            f"the pictures in {job.data} are not counted", hint="say how many there are: `images: 5000` in the job file"
        )
    size = 0
    if store is not None:
        size = sum(found.size for found in store.list(""))
        if size == 0:
            raise BadInput(
                f"there is nothing at {job.data}", hint="correct `data`: an archive, or a prefix ending in /"
            )
    validation = max(1, job.images // 5)
    return DataFacts(job.images, validation, size), (f"assumed: {validation} pictures for validation",)


def _data_notes(dataset: Dataset) -> tuple[str, ...]:
    return (*summary(dataset).lines(), *brief(dataset.notes))
