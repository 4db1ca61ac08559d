"""Chooses and builds the adapters: the one place that knows which class stands behind which port.

SDKs and the sandbox are imported inside, so that a command that does not need them stays quick.
"""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING

from launcher.bundle import pack_remote
from launcher.clock import Clock
from launcher.clouds import AWS, CloudFacts, sandbox_facts
from launcher.errors import BadInput, ProviderError
from launcher.estimating import PROVISIONABLE, full_catalog
from launcher.history import recent_refusals
from launcher.home import Home
from launcher.interrupts import Interrupts
from launcher.jobspec import JobSpec, parse
from launcher.mirror import Launcher, Mirror
from launcher.planning import Catalog, next_plan
from launcher.providers.interface import CloudTimer, ComputeProvider, PriceFeed, RefusedError, UnreachableError
from launcher.report import Reporter
from launcher.run import Run
from launcher.services import Services
from launcher.storage.interface import ObjectStore
from pricing.phases import Overheads
from pricing.sources.tables import load_offers, load_rates
from pricing.throughput import ProbedThroughput
from remote.protocol import StorageSpec

if TYPE_CHECKING:
    from launcher.providers.aws.account import AwsAccount, Patience
    from launcher.sandbox import SandboxInfo

WHAT_IS_MY_ADDRESS = "https://checkip.amazonaws.com"
_PROBED_BATCH = 8
"""Where the job says `auto`: the trainer will choose by the size of the set."""
STATED_SPEED = "GPUCOST_SANDBOX_IMAGES_PER_SECOND"
_SANDBOX_OVERHEADS = Overheads(
    boot_seconds=3,
    environment_seconds=8,
    staging_mib_per_second=50,
    sync_seconds=4,
    shutdown_seconds=2,
    spread=2.0,
    source="the embedded cloud on this host",
)


@dataclass(slots=True)
class Cloud:
    """One cloud, ready to plan and to launch on."""

    facts: CloudFacts
    account: AwsAccount
    provider: ComputeProvider
    timer: CloudTimer
    prices: PriceFeed
    store: ObjectStore
    journal_store: ObjectStore
    """The same prefix with a short patience: a copy of the journal is not worth a long wait."""
    storage: StorageSpec
    catalog: Callable[[JobSpec], Catalog]
    credentials: Callable[[float], bytes | None]
    close: Callable[[], None] = lambda: None
    """Give back what `connect` took; the embedded cloud ends where nobody needs it any more."""

    def store_for(self, url: str) -> ObjectStore:
        """The store that a data URL names, reached like the run's own."""
        from launcher.storage.s3 import S3Store

        return S3Store(self.account, url, self.region_of(url) or self.storage.region)

    def region_of(self, url: str) -> str | None:
        """Where the bucket of a URL is; None where that cannot be found out. Raises StorageError for no such bucket."""
        bucket = _bucket(url)
        if bucket == _bucket(self.storage.url) or self.storage.endpoint_url is not None:
            return self.storage.region
        try:
            return _bucket_region(self.account, bucket)
        except (RefusedError, UnreachableError):
            return None

    def services(self, run: Run, home: Home, *, clock: Clock, report: Reporter, interrupts: Interrupts) -> Services:
        """What the steps of `run` need."""
        from launcher.ssh import FabricSession

        job = parse(run.opened.job, {}, run.run_id)
        folder = home.run(run.run_id)
        return Services(
            provider=self.provider,
            timer=self.timer,
            prices=self.prices,
            facts=self.facts,
            store=self.store,
            mirror=Mirror(self.journal_store, run.run_id, this_launcher(home), clock, folder.scratch),
            storage=self.storage,
            credentials=self.credentials,
            connect=FabricSession,
            bundle=pack_remote,
            rates=load_rates(),
            replan=lambda stopped: next_plan(
                stopped, job, self.catalog(job), clock.now(), elsewhere=recent_refusals(home, clock.now(), run.run_id)
            ),
            folder=folder,
            clock=clock,
            report=report,
            interrupts=interrupts,
        )


def this_launcher(home: Home) -> Launcher:
    """This process, as launchers elsewhere are told of it."""
    return Launcher(f"{socket.gethostname()}/{os.getpid()}", home.place())


@contextmanager
def storage_at(url: str, home: Home, run: Run | None = None) -> Iterator[ObjectStore]:
    """The storage under a URL, for who knows no more of a run: with its job's access where it is known, else the SDK's.

    Raises ProviderError, StorageError.
    """
    from launcher.sandbox.state import BUCKET
    from launcher.storage.s3 import S3Store

    bucket = _bucket(url)
    if bucket == BUCKET:
        from launcher.embedded import use_sandbox

        use = use_sandbox(home)
        try:
            yield S3Store(_sandbox_account(use.info), url, use.info.region)
        finally:
            use.close()
        return
    from launcher.providers.aws.account import HASTE, AwsAccount

    job = None if run is None else parse(run.opened.job, {}, run.run_id)
    account = AwsAccount(profile=None if job is None else job.aws.profile)
    try:
        yield S3Store(account, url, _bucket_region(account, bucket, HASTE), HASTE)
    except (RefusedError, UnreachableError) as error:
        raise ProviderError(str(error), hint=getattr(error, "hint", "check the network, then try again")) from error


def connect(job: JobSpec, cloud: str, home: Home) -> Cloud:
    """The cloud that a job runs on. Raises BadInput, RefusedError and StorageError; nothing is launched."""
    if cloud == "sandbox":
        from launcher.embedded import use_sandbox

        use = use_sandbox(home)
        return replace(_sandbox_cloud(job, use.info), close=use.close)
    if cloud == "aws":
        return _aws_cloud(job)
    raise BadInput(f"no machine can be started on {cloud!r} yet", hint="use `--cloud aws` or `--cloud sandbox`")


def _sandbox_account(info: SandboxInfo) -> AwsAccount:
    from launcher.providers.aws.account import AwsAccount

    return AwsAccount(
        endpoint_url=info.ec2_endpoint,
        s3_endpoint_url=info.s3_endpoint,
        access_key=info.access_key,
        secret_key=info.secret_key,
    )


def _sandbox_cloud(job: JobSpec, info: SandboxInfo) -> Cloud:
    from launcher.providers.aws.account import HASTE
    from launcher.providers.aws.compute import AwsCompute
    from launcher.providers.aws.prices import AwsPrices
    from launcher.providers.aws.timer import AwsTimer
    from launcher.storage.s3 import S3Store

    account = _sandbox_account(info)
    facts = sandbox_facts(info.ssh_port)
    url = (job.output or f"s3://{info.bucket}/runs").rstrip("/")
    provider = AwsCompute(
        account,
        image_parameter=facts.image_parameter,
        instance_profile=info.instance_profile,
        subnet=None,
        ssh_cidr=lambda: "127.0.0.0/8",
    )
    return Cloud(
        facts=facts,
        account=account,
        provider=provider,
        timer=AwsTimer(account, role=job.aws.stop_role, precision_seconds=1),
        prices=AwsPrices(account),
        store=S3Store(account, url, info.region),
        journal_store=S3Store(account, url, info.region, HASTE),
        storage=StorageSpec(url=url, region=info.region, endpoint_url=info.s3_endpoint),
        catalog=_SandboxCatalog(info),
        credentials=lambda _seconds: None,
    )


class _SandboxCatalog:
    """Real offers at their real prices, at this host's speed, which is probed once and only when asked for."""

    def __init__(self, info: SandboxInfo) -> None:
        self._info = info
        self._known: dict[tuple[object, ...], Catalog] = {}

    def __call__(self, job: JobSpec) -> Catalog:
        from launcher.probe import probe_host

        task = max(job.trainings(), key=lambda task: float(task.image_size or 0) * float(task.epochs or 0))
        batch = task.batch if isinstance(task.batch, int) else _PROBED_BATCH
        key = (task.model, task.image_size, batch, job.trainer.threads)
        if key not in self._known:
            offers = tuple(o for o in load_offers() if o.provider == "aws" and o.region in self._info.regions)
            speed = _stated_speed() or probe_host(task, batch, job.trainer)
            overheads = {"aws": _SANDBOX_OVERHEADS}
            self._known[key] = Catalog(offers, load_rates(), speed, overheads, PROVISIONABLE, self._info.region)
        return self._known[key]


def _stated_speed() -> ProbedThroughput | None:
    """The speed that the environment states instead of a probe: for drills that need a plan to be wrong, or quick."""
    stated = os.environ.get(STATED_SPEED)
    if not stated:
        return None
    try:
        return ProbedThroughput(float(stated), 2 * float(stated), source=f"stated in {STATED_SPEED}, not measured")
    except ValueError as error:
        raise BadInput(f"{STATED_SPEED}={stated!r} is no number of images per second", hint="unset it") from error


def _aws_cloud(job: JobSpec) -> Cloud:
    from launcher.providers.aws.account import HASTE, AwsAccount
    from launcher.providers.aws.compute import AwsCompute
    from launcher.providers.aws.prices import AwsPrices
    from launcher.providers.aws.timer import AwsTimer
    from launcher.storage.s3 import S3Store

    if job.output is None:
        raise BadInput(
            "`output` is missing: checkpoints must outlive the machine", hint="add output: s3://your-bucket/gpucost"
        )
    account = AwsAccount(profile=job.aws.profile)
    url = job.output.rstrip("/")
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    region = _bucket_region(account, bucket)
    provider = AwsCompute(
        account,
        image_parameter=AWS.image_parameter,
        instance_profile=job.aws.instance_profile,
        subnet=job.aws.subnet,
        ssh_cidr=(lambda: str(job.aws.ssh_cidr)) if job.aws.ssh_cidr else public_cidr,
    )
    by_role = job.aws.instance_profile is not None
    return Cloud(
        facts=AWS,
        account=account,
        provider=provider,
        timer=AwsTimer(account, role=job.aws.stop_role, precision_seconds=60),
        prices=AwsPrices(account),
        store=S3Store(account, url, region),
        journal_store=S3Store(account, url, region, HASTE),
        storage=StorageSpec(url=url, region=region, credentials="role" if by_role else "file"),
        catalog=AwsCatalog(account, region),
        credentials=(lambda _seconds: None) if by_role else _machine_keys(account, bucket, prefix, region, job),
    )


class AwsCatalog:
    """What is on sale in the regions that an account has enabled; everywhere, where that cannot be found out.

    A launch in any other region is answered as if the credentials were wrong.
    """

    def __init__(self, account: AwsAccount, storage_region: str) -> None:
        self._account = account
        self._storage_region = storage_region
        self._enabled: frozenset[str] | None = None

    def __call__(self, _job: JobSpec) -> Catalog:
        """The offers for any job; the account is asked until it has answered once."""
        catalog = replace(full_catalog(), provisionable=PROVISIONABLE, storage_region=self._storage_region)
        enabled = self._enabled or self._ask()
        if enabled is None:
            return catalog
        self._enabled = enabled
        regions = {offer.region for offer in catalog.offers if offer.provider in PROVISIONABLE}
        offers = tuple(o for o in catalog.offers if o.provider not in PROVISIONABLE or o.region in enabled)
        return replace(catalog, offers=offers, not_enabled=tuple(sorted(regions - enabled)))

    def _ask(self) -> frozenset[str] | None:
        from launcher.providers.aws.calls import ask

        try:
            answer = ask(self._account.client("ec2", self._storage_region).describe_regions)
        except (RefusedError, UnreachableError):
            return None
        return frozenset(str(region["RegionName"]) for region in answer["Regions"])


def _machine_keys(account: AwsAccount, bucket: str, prefix: str, region: str, job: JobSpec) -> Callable[[float], bytes]:
    from launcher.providers.aws.credentials import machine_credentials

    data_url = None if job.is_local else job.data
    return lambda seconds: machine_credentials(account, bucket, prefix, region, seconds, data_url=data_url)


def _bucket(url: str) -> str:
    return url.removeprefix("s3://").partition("/")[0]


def _bucket_region(account: AwsAccount, bucket: str, patience: Patience | None = None) -> str:
    from xml.etree.ElementTree import ParseError

    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    from launcher.providers.aws.errors import code_of, translate
    from launcher.storage.interface import StorageError

    try:
        answer = account.client("s3", None, patience).get_bucket_location(Bucket=bucket)
    except ClientError as error:
        if code_of(error) == "NoSuchBucket":
            raise StorageError(f"the bucket {bucket!r} does not exist", hint="create it, or correct the URL") from error
        raise translate(error) from error
    except (BotoCoreError, ResponseParserError) as error:
        raise translate(error) from error
    except ParseError as error:  # the SDK reads this one answer in a way of its own
        raise UnreachableError(f"the answer about the bucket {bucket!r} cannot be read: {error}") from error
    return str(answer.get("LocationConstraint") or "us-east-1")


def public_cidr() -> str:
    """The caller's public address as a network of one. Raises RefusedError where it cannot be found out."""
    hint = "name it in the job file: aws: {ssh_cidr: 203.0.113.7/32}"
    try:
        with urllib.request.urlopen(WHAT_IS_MY_ADDRESS, timeout=5) as answer:
            text = answer.read(64).decode().strip()
        return f"{ip_address(text)}/32"
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise RefusedError(f"this machine's public address cannot be found out: {error}", hint=hint) from error
