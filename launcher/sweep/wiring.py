"""Chooses and builds the adapters of a sweep. SDKs and the sandbox are imported inside, as in `wiring`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from launcher.clouds import AWS, sandbox_facts
from launcher.context import Context
from launcher.errors import BadInput, ProviderError
from launcher.history import load_run
from launcher.providers.interface import RefusedError
from launcher.report import Note
from launcher.storage.interface import ObjectStore, StorageError
from launcher.sweep.looking import LocalRun, Sweeper
from pricing.sources.tables import load_offers, load_rates
from pricing.standing import StandingPrices

if TYPE_CHECKING:
    from launcher.clouds import CloudFacts
    from launcher.providers.aws.account import AwsAccount


def connect_sweeper(cloud: str, profile: str | None, context: Context) -> Sweeper | None:
    """A sweeper of one cloud's account; None where the embedded cloud does not run: nothing of it is left then.

    Raises ProviderError where there are no credentials to look with.
    """
    if cloud == "sandbox":
        return _of_the_sandbox(context)
    from launcher.providers.aws.account import AwsAccount

    account = AwsAccount(profile=profile)
    try:
        region = account.session(None).region_name
    except RefusedError as error:
        raise ProviderError(str(error), hint=error.hint) from error
    return _sweeper(account, AWS, region, context)


def _of_the_sandbox(context: Context) -> Sweeper | None:
    from launcher import sandbox
    from launcher.providers.aws.account import AwsAccount

    found = sandbox.status(context.home.root)
    if found is None:
        return None
    info = found.info
    account = AwsAccount(
        endpoint_url=info.ec2_endpoint,
        s3_endpoint_url=info.s3_endpoint,
        access_key=info.access_key,
        secret_key=info.secret_key,
    )
    return _sweeper(account, sandbox_facts(info.ssh_port), info.region, context)


def _sweeper(account: AwsAccount, facts: CloudFacts, region: str | None, context: Context) -> Sweeper:
    from launcher.providers.aws.sweep import HOME_REGION, AwsSweep

    prices = StandingPrices("aws", load_offers(), load_rates())
    home_region = region or HOME_REGION
    return Sweeper(
        port=AwsSweep(account, prices, home_region=home_region),
        facts=facts,
        prices=prices,
        store_for=_stores(account, home_region),
        local=lambda run_id: local_run(run_id, context),
        clock=context.clock,
        report=context.report,
    )


def _stores(account: AwsAccount, region: str) -> Callable[[str], ObjectStore]:
    """One store for each URL. The SDK finds the region of a bucket by itself, from any other."""
    from launcher.storage.s3 import S3Store

    known: dict[str, ObjectStore] = {}

    def store_for(url: str) -> ObjectStore:
        if not url.startswith("s3://"):
            raise StorageError(f"{url!r} is no place that gpucost can read yet", hint="write s3://bucket/prefix")
        if url not in known:
            known[url] = S3Store(account, url, region)
        return known[url]

    return store_for


def local_run(run_id: str, context: Context) -> LocalRun:
    """What the journal here says of a run; nothing where there is none, or none that can be read."""
    if run_id not in context.home.run_ids():
        return LocalRun()
    pid = context.home.run(run_id).journal.writer()
    driven_by = f"process {pid} on this machine" if pid is not None else ""
    try:
        return LocalRun(load_run(run_id, context).opened.storage_url, driven_by)
    except BadInput as error:
        context.report(Note(f"left out: {error}"))
        return LocalRun(driven_by=driven_by)
