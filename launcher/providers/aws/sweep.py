"""An AWS account behind the sweep port: EC2 by tag, EventBridge schedules by group, unfinished uploads by prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from launcher.providers.aws import leftovers
from launcher.providers.aws.account import AwsAccount, Clients
from launcher.providers.aws.calls import ask, ask_unless
from launcher.providers.aws.errors import ABSENT, IN_USE, NO_SCHEDULE, code_of
from launcher.providers.aws.tags import RUN_TAG, Filter, of_run
from launcher.providers.aws.timer import GROUP, schedule_name
from launcher.providers.interface import CapacityError, RefusedError, UnreachableError
from launcher.providers.sweep import Found, Gap, InUseError, Kind, Listing
from pricing.standing import StandingPrices

HOME_REGION = "us-east-1"
"""Where the list of regions, and buckets of any region, are asked for when the profile names no region."""
_OURS: Filter = {"Name": "tag-key", "Values": [RUN_TAG]}
_ALIVE: Filter = {
    "Name": "instance-state-name",
    "Values": ["pending", "running", "shutting-down", "stopping", "stopped"],
}
_OPEN: Filter = {"Name": "state", "Values": ["open"]}
_NEVER_CUT = 28
"""So many letters of a schedule's name are those of its run's id, however long that is: `gpucost-TIME-RANDOM`."""
_NO_UPLOAD = frozenset({"NoSuchUpload", "404"})


@dataclass(frozen=True, slots=True)
class _Source:
    """One Describe call of EC2, and what to make of its answer."""

    kind: Kind
    call: str
    keys: tuple[str, ...]
    """The way to the items in the answer."""
    read: Callable[[leftovers.Item, str, StandingPrices], Found]
    filters: tuple[Filter, ...] = ()


_SOURCES = (
    _Source(Kind.INSTANCE, "describe_instances", ("Reservations", "Instances"), leftovers.instance, (_ALIVE,)),
    _Source(
        Kind.SPOT_REQUEST,
        "describe_spot_instance_requests",
        ("SpotInstanceRequests",),
        leftovers.spot_request,
        (_OPEN,),
    ),
    _Source(Kind.VOLUME, "describe_volumes", ("Volumes",), leftovers.volume),
    _Source(Kind.INTERFACE, "describe_network_interfaces", ("NetworkInterfaces",), leftovers.interface),
    _Source(Kind.KEY_PAIR, "describe_key_pairs", ("KeyPairs",), leftovers.key_pair),
    _Source(Kind.SECURITY_GROUP, "describe_security_groups", ("SecurityGroups",), leftovers.security_group),
    _Source(Kind.LAUNCH_TEMPLATE, "describe_launch_templates", ("LaunchTemplates",), leftovers.launch_template),
)


class AwsSweep:
    """Everything of ours in one account."""

    def __init__(self, account: AwsAccount, prices: StandingPrices, *, home_region: str = HOME_REGION) -> None:
        """`home_region` is asked for what belongs to no region."""
        self._clients = Clients(account)
        self._prices = prices
        self._home_region = home_region
        self._removers: Mapping[Kind, Callable[[Found], bool]] = {
            Kind.INSTANCE: self._terminate,
            Kind.SPOT_REQUEST: self._cancel,
            Kind.VOLUME: self._delete_volume,
            Kind.INTERFACE: lambda one: self._delete(one, "delete_network_interface", NetworkInterfaceId=one.id),
            Kind.KEY_PAIR: lambda one: self._delete(one, "delete_key_pair", KeyName=one.id),
            Kind.SECURITY_GROUP: lambda one: self._delete(one, "delete_security_group", GroupId=one.id),
            Kind.LAUNCH_TEMPLATE: lambda one: self._delete(one, "delete_launch_template", LaunchTemplateId=one.id),
            Kind.SCHEDULE: self._delete_schedule,
            Kind.UPLOAD: self._abort,
        }

    def regions(self) -> list[str]:
        """See the port. DescribeRegions leaves out what is not enabled unless it is asked for all."""
        answer = ask(self._ec2(self._home_region).describe_regions)
        return sorted(str(region["RegionName"]) for region in answer["Regions"])

    def find(self, region: str, run_id: str | None = None) -> Listing:
        """See the port. Instances that are gone are not listed: EC2 shows them for another hour."""
        ours = _OURS if run_id is None else of_run(run_id)
        found: list[Found] = []
        gaps: list[Gap] = []
        for source in _SOURCES:
            _collect(found, gaps, (region, f"{source.kind}s"), self._described(source, ours, region))
        _collect(found, gaps, (region, f"{Kind.SCHEDULE}s"), self._schedules(region, run_id))
        return Listing(tuple(found), tuple(gaps))

    def uploads(self, output: str, run_id: str | None = None) -> Listing:
        """See the port."""
        found: list[Found] = []
        gaps: list[Gap] = []
        _collect(found, gaps, (output, "unfinished uploads"), self._unfinished(output, run_id))
        return Listing(tuple(found), tuple(gaps))

    def remove(self, found: Found) -> bool:
        """See the port. An instance and a disk are gone when a later call says so, the others at once."""
        if found.kind not in self._removers:
            raise RefusedError(f"a {found.kind} is never removed", hint="remove it by hand if it is of no use")
        return self._removers[found.kind](found)

    def close(self) -> None:
        """Let go of all connections."""
        self._clients.close()

    def _described(self, source: _Source, ours: Filter, region: str) -> Iterator[Found]:
        ec2 = self._ec2(region)
        filters = [ours, *source.filters]
        if ec2.can_paginate(source.call):
            pages = ask(lambda: list(ec2.get_paginator(source.call).paginate(Filters=filters)))
        else:
            pages = [ask(getattr(ec2, source.call), Filters=filters)]
        for page in pages:
            yield from (source.read(item, region, self._prices) for item in _items(page, source.keys))

    def _schedules(self, region: str, run_id: str | None) -> Iterator[Found]:
        scheduler = self._clients.get("scheduler", region)
        prefix = {} if run_id is None else {"NamePrefix": schedule_name(run_id)[:_NEVER_CUT]}
        pages = scheduler.get_paginator("list_schedules")
        answer = ask_unless(NO_SCHEDULE, lambda: list(pages.paginate(GroupName=GROUP, **prefix)))
        for summary in _items({"pages": answer or []}, ("pages", "Schedules")):
            known = ask_unless(NO_SCHEDULE, scheduler.get_schedule, Name=summary["Name"], GroupName=GROUP)
            one = leftovers.schedule(known, region) if known is not None else None
            if one is not None and run_id in {None, one.run_id}:
                yield one

    def _unfinished(self, output: str, run_id: str | None) -> Iterator[Found]:
        bucket, prefix = _place(output)
        below = "".join(f"{part}/" for part in (prefix, run_id) if part)
        pages = self._s3().get_paginator("list_multipart_uploads")
        answer = ask(lambda: list(pages.paginate(Bucket=bucket, Prefix=below)))
        for item in _items({"pages": answer}, ("pages", "Uploads")):
            yield leftovers.upload(item, bucket, output, self._part_sizes(bucket, item), self._prices)

    def _part_sizes(self, bucket: str, item: leftovers.Item) -> list[int] | None:
        pages = self._s3().get_paginator("list_parts")
        try:
            answer = ask(lambda: list(pages.paginate(Bucket=bucket, Key=item["Key"], UploadId=item["UploadId"])))
        except (RefusedError, UnreachableError):
            return None
        return [int(part["Size"]) for part in _items({"pages": answer}, ("pages", "Parts"))]

    def _terminate(self, found: Found) -> bool:
        ec2 = self._ec2(found.region)
        seen = ask_unless(ABSENT, ec2.describe_instances, InstanceIds=[found.id]) or {}
        if all(one["State"]["Name"] == "terminated" for one in _items(seen, ("Reservations", "Instances"))):
            return True
        ask_unless(ABSENT, ec2.terminate_instances, InstanceIds=[found.id])
        return False

    def _cancel(self, found: Found) -> bool:
        cancel = self._ec2(found.region).cancel_spot_instance_requests
        answer = ask_unless(ABSENT, cancel, SpotInstanceRequestIds=[found.id])
        return all(one["State"] != "open" for one in (answer or {}).get("CancelledSpotInstanceRequests", []))

    def _delete_volume(self, found: Found) -> bool:
        """DeleteVolume begins the deletion; once it is done, the volume is not known any more."""
        return self._asked(self._ec2(found.region).delete_volume, VolumeId=found.id) is None

    def _delete(self, found: Found, call: str, **parameters: str) -> bool:
        self._asked(getattr(self._ec2(found.region), call), **parameters)
        return True

    def _delete_schedule(self, found: Found) -> bool:
        delete = self._clients.get("scheduler", found.region).delete_schedule
        ask_unless(NO_SCHEDULE, delete, Name=found.id, GroupName=GROUP)
        return True

    def _abort(self, found: Found) -> bool:
        bucket, key = _place(found.id)
        abort = self._s3().abort_multipart_upload
        ask_unless(_NO_UPLOAD, abort, Bucket=bucket, Key=key, UploadId=found.handle)
        return True

    def _asked(self, function: Callable[..., Any], **parameters: str) -> Any:  # noqa: ANN401 - as boto3 has them
        """The answer; None where there is no such thing any more. Raises InUseError, RefusedError, UnreachableError."""
        try:
            return ask(function, **parameters)
        except (RefusedError, UnreachableError, CapacityError) as error:
            cause = error.__cause__
            if isinstance(cause, ClientError):
                if _is_absent(cause):
                    return None
                if _is_in_use(cause):
                    raise InUseError(str(error)) from cause
            raise

    def _ec2(self, region: str) -> Any:  # noqa: ANN401 - a boto3 client
        return self._clients.get("ec2", region)

    def _s3(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self._clients.get("s3", self._home_region)


def _is_absent(error: ClientError) -> bool:
    """EC2 has a code for each kind: `InvalidVolume.NotFound`, `InvalidLaunchTemplateName.NotFoundException`."""
    code = code_of(error)
    return code in ABSENT or ".NotFound" in code


def _is_in_use(error: ClientError) -> bool:
    """An interface that is attached is answered as a bad parameter, with the cause in the text."""
    code = code_of(error)
    text = str(error.response.get("Error", {}).get("Message", ""))
    return code in IN_USE | {"VolumeInUse", "InvalidNetworkInterface.InUse", "IncorrectState"} or "in use" in text


def _collect(found: list[Found], gaps: list[Gap], where: tuple[str, str], answers: Iterable[Found]) -> None:
    """What comes before a failure counts; the failure is a gap."""
    try:
        found.extend(answers)
    except (RefusedError, UnreachableError, CapacityError) as error:
        gaps.append(Gap(*where, str(error)))


def _items(page: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    if not keys:
        yield page
        return
    for inner in page.get(keys[0]) or []:
        yield from _items(inner, keys[1:])


def _place(url: str) -> tuple[str, str]:
    """Bucket and the rest of an `s3://` URL. Raises RefusedError for any other."""
    scheme, _, path = url.partition("://")
    bucket, _, rest = path.partition("/")
    if scheme != "s3" or not bucket:
        raise RefusedError(f"{url!r} is no s3:// URL", hint="write s3://bucket/prefix")
    return bucket, rest.strip("/")
