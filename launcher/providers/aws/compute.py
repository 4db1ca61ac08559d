"""EC2 as a `ComputeProvider`: RunInstances, tags, host keys from the console, termination.

Facts about the API (tokens, one-time spot, shutdown behaviour, console keys) are explained where they are used; their
sources are the botocore service model and the EC2 user guide, read on 2026-11-30.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from launcher.providers.aws.account import AwsAccount
from launcher.providers.aws.errors import ABSENT, code_of, translate
from launcher.providers.interface import (
    EndCause,
    InstanceRef,
    InstanceState,
    InstanceStatus,
    LaunchRequest,
    RefusedError,
)
from pricing.offers import CapacityType

RUN_TAG = "gpucost-run"
LEASE_TAG = "gpucost-lease"

_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "shutting-down": InstanceState.STOPPING,
    "stopping": InstanceState.STOPPING,
    "stopped": InstanceState.STOPPED,
    "terminated": InstanceState.GONE,
}
_ENDED_BY = {
    "Client.UserInitiatedShutdown": EndCause.USER,
    "Client.InstanceInitiatedShutdown": EndCause.INSIDE,
    "Client.InstanceTerminated": EndCause.USER,
}
_HOST_KEYS = re.compile(r"-----BEGIN SSH HOST KEY KEYS-----(.*?)-----END SSH HOST KEY KEYS-----", re.DOTALL)
_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) GMT\)")

Answer = TypeVar("Answer")


class AwsCompute:
    """Machines of one AWS account, in any region."""

    def __init__(
        self,
        account: AwsAccount,
        *,
        image_parameter: str,
        instance_profile: str | None,
        subnet: str | None,
        ssh_cidr: Callable[[], str],
    ) -> None:
        """`image_parameter` is the SSM name of the image; `ssh_cidr` is asked once, before the first launch."""
        self._account = account
        self._image_parameter = image_parameter
        self._instance_profile = instance_profile
        self._subnet = subnet
        self._find_cidr = ssh_cidr
        self._clients: dict[str, Any] = {}
        self._host_keys: dict[str, str] = {}

    def launch(self, request: LaunchRequest) -> InstanceRef:
        """See the port. The token makes a repeat with the same request answer with the same machine."""
        region = request.offer.region
        answer = _call(self._ec2(region).run_instances, **self._launch_parameters(request))
        return InstanceRef(region, answer["Instances"][0]["InstanceId"])

    def describe(self, ref: InstanceRef) -> InstanceStatus:
        """See the port."""
        try:
            answer = self._ec2(ref.region).describe_instances(InstanceIds=[ref.instance_id])
        except ClientError as error:
            if code_of(error) in ABSENT:
                return InstanceStatus(ref, InstanceState.GONE, lease_id=None, reason="unknown to EC2")
            raise translate(error) from error
        except BotoCoreError as error:
            raise translate(error) from error
        found = [instance for group in answer["Reservations"] for instance in group["Instances"]]
        if not found:
            return InstanceStatus(ref, InstanceState.GONE, lease_id=None, reason="unknown to EC2")
        return self._with_console(self._status(ref.region, found[0]))

    def find(self, run_id: str, region: str) -> list[InstanceStatus]:
        """See the port."""
        filters = [{"Name": f"tag:{RUN_TAG}", "Values": [run_id]}]
        pages = _call(lambda: list(self._ec2(region).get_paginator("describe_instances").paginate(Filters=filters)))
        return [
            self._status(region, instance)
            for page in pages
            for group in page["Reservations"]
            for instance in group["Instances"]
        ]

    def terminate(self, ref: InstanceRef) -> None:
        """See the port."""
        _call_unless_absent(self._ec2(ref.region).terminate_instances, InstanceIds=[ref.instance_id])

    def clean_up(self, run_id: str, region: str) -> None:
        """See the port. A security group that a dying machine still holds stays for a later call."""
        ec2 = self._ec2(region)
        _call_unless_absent(ec2.delete_key_pair, KeyName=_resource_name(run_id))
        for group in self._groups(run_id, region):
            try:
                ec2.delete_security_group(GroupId=group)
            except ClientError as error:
                if code_of(error) not in ABSENT | {"DependencyViolation"}:
                    raise translate(error) from error
            except BotoCoreError as error:
                raise translate(error) from error

    def _ec2(self, region: str) -> Any:  # noqa: ANN401 - a boto3 client
        if region not in self._clients:
            self._clients[region] = self._account.client("ec2", region)
        return self._clients[region]

    def _launch_parameters(self, request: LaunchRequest) -> dict[str, Any]:
        region = request.offer.region
        image = self._image(region)
        tags = [{"Key": key, "Value": value} for key, value in {**request.tags, **_identity(request)}.items()]
        kinds = ["instance", "volume", "network-interface"]
        parameters: dict[str, Any] = {
            "ClientToken": request.token,
            "ImageId": image["ImageId"],
            "InstanceType": request.offer.instance.name,
            "MinCount": 1,
            "MaxCount": 1,
            "KeyName": self._key_pair(request),
            "UserData": request.user_data,
            # A power-off inside the machine must end it, not park it with its disk still billed.
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1},
            "BlockDeviceMappings": [_root_disk(image, request.disk_gib)],
        }
        if request.offer.capacity_type is CapacityType.SPOT:
            # No MaxPrice: AWS advises against it. One-time: a persistent request would launch again after the end.
            parameters["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
            }
            kinds.append("spot-instances-request")
        parameters["TagSpecifications"] = [{"ResourceType": kind, "Tags": tags} for kind in kinds]
        if self._instance_profile:
            parameters["IamInstanceProfile"] = {"Name": self._instance_profile}
        if request.offer.zone:
            parameters["Placement"] = {"AvailabilityZone": self._zone_name(region, request.offer.zone)}
        if self._subnet:
            parameters["SubnetId"] = self._subnet
        parameters["SecurityGroupIds"] = [self._security_group(request)]
        return parameters

    def _image(self, region: str) -> dict[str, Any]:
        ssm = self._account.client("ssm", region)
        parameter = _call(ssm.get_parameter, Name=self._image_parameter)
        image_id = parameter["Parameter"]["Value"]
        images: list[dict[str, Any]] = _call(self._ec2(region).describe_images, ImageIds=[image_id])["Images"]
        if not images:
            raise RefusedError(f"{region} has no image {image_id}", hint="leave this region out with `regions:`")
        return images[0]

    def _zone_name(self, region: str, zone_id: str) -> str:
        # Prices are kept by zone id; the names (us-east-1a) are private to each account.
        zones = _call(self._ec2(region).describe_availability_zones)["AvailabilityZones"]
        return str(next((zone["ZoneName"] for zone in zones if zone["ZoneId"] == zone_id), zone_id))

    def _key_pair(self, request: LaunchRequest) -> str:
        name = _resource_name(request.run_id)
        try:
            self._ec2(request.offer.region).import_key_pair(
                KeyName=name,
                PublicKeyMaterial=request.ssh_public_key.encode(),
                TagSpecifications=[_tag_specification("key-pair", request)],
            )
        except ClientError as error:
            if code_of(error) != "InvalidKeyPair.Duplicate":
                raise translate(error) from error
        except BotoCoreError as error:
            raise translate(error) from error
        return name

    def _groups(self, run_id: str, region: str) -> list[str]:
        filters = [{"Name": "group-name", "Values": [_resource_name(run_id)]}]
        answer = _call(self._ec2(region).describe_security_groups, Filters=filters)
        return [group["GroupId"] for group in answer["SecurityGroups"]]

    def _security_group(self, request: LaunchRequest) -> str:
        region = request.offer.region
        existing = self._groups(request.run_id, region)
        group = existing[0] if existing else self._new_group(request)
        rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": self._cidr}]}
        try:
            self._ec2(region).authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
        except ClientError as error:
            if code_of(error) != "InvalidPermission.Duplicate":
                raise translate(error) from error
        except BotoCoreError as error:
            raise translate(error) from error
        return group

    def _new_group(self, request: LaunchRequest) -> str:
        parameters: dict[str, Any] = {
            "GroupName": _resource_name(request.run_id),
            "Description": "gpucost: SSH from the launcher only",
            "TagSpecifications": [_tag_specification("security-group", request)],
        }
        ec2 = self._ec2(request.offer.region)
        if self._subnet:
            subnets = _call(ec2.describe_subnets, SubnetIds=[self._subnet])["Subnets"]
            parameters["VpcId"] = subnets[0]["VpcId"]
        return str(_call(ec2.create_security_group, **parameters)["GroupId"])

    @cached_property
    def _cidr(self) -> str:
        return self._find_cidr()

    def _status(self, region: str, instance: Mapping[str, Any]) -> InstanceStatus:
        ref = InstanceRef(region, instance["InstanceId"])
        state = _STATES.get(instance["State"]["Name"], InstanceState.PENDING)
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
        why = instance.get("StateReason") or {}
        transition = str(instance.get("StateTransitionReason", ""))
        ended = _ENDED_AT.search(transition)
        return InstanceStatus(
            ref=ref,
            state=state,
            lease_id=tags.get(LEASE_TAG),
            address=instance.get("PublicIpAddress") or None,
            launched_at=instance["LaunchTime"],
            ended_at=datetime.strptime(ended[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if ended else None,
            reason=str(why.get("Message") or transition),
            ended_by=_ended_by(str(why.get("Code", ""))),
        )

    def _with_console(self, status: InstanceStatus) -> InstanceStatus:
        """Host key and console of a running machine; a stop does without them, and without the permission."""
        if status.state is not InstanceState.RUNNING:
            return status
        host_key, console = self._console(status.ref)
        return replace(status, host_key=host_key, console_tail=console)

    def _console(self, ref: InstanceRef) -> tuple[str | None, str]:
        """Host key and last lines of the console. The key is kept: it does not change while the machine lives."""
        if ref.instance_id in self._host_keys:
            return self._host_keys[ref.instance_id], ""
        try:
            answer = self._ec2(ref.region).get_console_output(InstanceId=ref.instance_id, Latest=True)
        except ClientError as error:
            if code_of(error) in ABSENT | {"UnsupportedOperation", "Unsupported"}:
                return None, ""
            raise translate(error) from error
        except BotoCoreError as error:
            raise translate(error) from error
        text = str(answer.get("Output", ""))
        key = host_key_in(text)
        if key:
            self._host_keys[ref.instance_id] = key
        return key, "\n".join(text.splitlines()[-10:])


def host_key_in(console: str) -> str | None:
    """The machine's ed25519 public key, as cloud-init prints it between its markers; None until it is there."""
    block = _HOST_KEYS.findall(console)
    if not block:
        return None
    for line in block[-1].splitlines():
        words = line.split()
        if "ssh-ed25519" in words:
            at = words.index("ssh-ed25519")
            return " ".join(words[at : at + 2]) if len(words) > at + 1 else None
    return None


def _ended_by(code: str) -> EndCause:
    if code.startswith("Server."):
        return EndCause.PROVIDER
    return _ENDED_BY.get(code, EndCause.UNKNOWN)


def _resource_name(run_id: str) -> str:
    return f"gpucost-{run_id}"


def _identity(request: LaunchRequest) -> dict[str, str]:
    return {RUN_TAG: request.run_id, LEASE_TAG: request.lease_id, "Name": f"gpucost {request.run_id}"}


def _tag_specification(kind: str, request: LaunchRequest) -> dict[str, Any]:
    return {"ResourceType": kind, "Tags": [{"Key": RUN_TAG, "Value": request.run_id}]}


def _root_disk(image: Mapping[str, Any], disk_gib: int) -> dict[str, Any]:
    mappings = [m for m in image.get("BlockDeviceMappings", []) if "Ebs" in m]
    device = image.get("RootDeviceName") or (mappings[0]["DeviceName"] if mappings else "/dev/sda1")
    floor = max((m["Ebs"].get("VolumeSize", 0) for m in mappings if m["DeviceName"] == device), default=0)
    ebs = {"VolumeSize": max(disk_gib, floor), "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    return {"DeviceName": device, "Ebs": ebs}


def _call(function: Callable[..., Answer], **parameters: Any) -> Answer:  # noqa: ANN401 - as boto3 has them
    try:
        return function(**parameters)
    except (ClientError, BotoCoreError) as error:
        raise translate(error) from error


def _call_unless_absent(function: Callable[..., object], **parameters: Any) -> None:  # noqa: ANN401
    try:
        function(**parameters)
    except ClientError as error:
        if code_of(error) not in ABSENT:
            raise translate(error) from error
    except BotoCoreError as error:
        raise translate(error) from error
