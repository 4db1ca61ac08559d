"""What RunInstances is asked: everything that makes a machine end by itself and be found again. Pure.

Facts about the API (tokens, one-time spot, shutdown behaviour) are explained where they are used; their sources are the
botocore service model and the EC2 user guide, read on 2026-11-30.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.providers.aws.tags import machine_tags
from launcher.providers.interface import LaunchRequest
from pricing.offers import CapacityType


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a machine is launched from and into."""

    image: Mapping[str, Any]
    """As DescribeImages has it."""
    key_name: str
    security_group: str
    zone_name: str | None
    subnet: str | None
    instance_profile: str | None


def launch_parameters(request: LaunchRequest, around: Surroundings) -> dict[str, Any]:
    """The parameters of RunInstances."""
    parameters: dict[str, Any] = {
        "ClientToken": request.token,
        "ImageId": around.image["ImageId"],
        "InstanceType": request.offer.instance.name,
        "MinCount": 1,
        "MaxCount": 1,
        "KeyName": around.key_name,
        "UserData": request.user_data,
        # A power-off inside the machine must end it, not park it with its disk still billed.
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1},
        "BlockDeviceMappings": [_root_disk(around.image, request.disk_gib)],
        "SecurityGroupIds": [around.security_group],
        **_market(request),
    }
    if around.instance_profile:
        parameters["IamInstanceProfile"] = {"Name": around.instance_profile}
    if around.zone_name:
        parameters["Placement"] = {"AvailabilityZone": around.zone_name}
    if around.subnet:
        parameters["SubnetId"] = around.subnet
    return parameters


def _market(request: LaunchRequest) -> dict[str, Any]:
    """How the machine is bought, and the tags of all that is bought with it."""
    kinds = ["instance", "volume", "network-interface"]
    market: dict[str, Any] = {}
    if request.offer.capacity_type is CapacityType.SPOT:
        # No MaxPrice: AWS advises against it. One-time: a persistent request would launch again after the end.
        market["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
        kinds.append("spot-instances-request")
    tags = machine_tags(request)
    return {**market, "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in kinds]}


def _root_disk(image: Mapping[str, Any], disk_gib: int) -> dict[str, Any]:
    mappings = [m for m in image.get("BlockDeviceMappings", []) if "Ebs" in m]
    device = image.get("RootDeviceName") or (mappings[0]["DeviceName"] if mappings else "/dev/sda1")
    floor = max((m["Ebs"].get("VolumeSize", 0) for m in mappings if m["DeviceName"] == device), default=0)
    ebs = {"VolumeSize": max(disk_gib, floor), "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    return {"DeviceName": device, "Ebs": ebs}
