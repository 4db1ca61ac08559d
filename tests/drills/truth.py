"""What the embedded cloud itself says of a run, asked over its own endpoints: never through the launcher."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from launcher import sandbox
from launcher.sandbox.state import InstanceStatus, SandboxInfo

_ALIVE = ("pending", "running", "shutting-down", "stopping", "stopped")
SCHEDULE_GROUP = "gpucost"


class Truth:
    """One running embedded cloud."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._info = self._status().info
        self._session = boto3.session.Session(
            aws_access_key_id=self._info.access_key, aws_secret_access_key=self._info.secret_key
        )

    def _status(self) -> sandbox.SandboxStatus:
        found = sandbox.status(self._home)
        assert found is not None, "the embedded cloud is gone"
        return found

    @property
    def info(self) -> SandboxInfo:
        """How to reach it."""
        return self._info

    def instances(self) -> list[InstanceStatus]:
        """All that ever were, in the order of their launch."""
        return list(self._status().instances)

    def living(self) -> list[InstanceStatus]:
        """Those that cost something."""
        return [one for one in self.instances() if one.state in _ALIVE]

    def instance(self) -> InstanceStatus:
        """The one that runs."""
        found = [one for one in self.instances() if one.state == "running"]
        assert len(found) == 1, f"expected one running machine, found {len(found)}"
        return found[0]

    def end_reason(self, instance: InstanceStatus) -> str:
        """`StateReason` of an instance, as its API says it."""
        answer = self._client("ec2", instance.region).describe_instances(InstanceIds=[instance.instance_id])
        why: dict[str, str] = answer["Reservations"][0]["Instances"][0].get("StateReason", {})
        return why.get("Code", "")

    def left_behind(self) -> list[str]:
        """Everything of ours that still exists beside instances."""
        return [thing for region in self._info.regions for thing in self._left_in(region)]

    def _left_in(self, region: str) -> Iterator[str]:
        ec2 = self._client("ec2", region)
        for pair in ec2.describe_key_pairs()["KeyPairs"]:
            yield f"key pair {pair['KeyName']}"
        for group in ec2.describe_security_groups()["SecurityGroups"]:
            if group["GroupName"] != "default":
                yield f"security group {group['GroupName']}"
        for request in ec2.describe_spot_instance_requests()["SpotInstanceRequests"]:
            if request["State"] in {"open", "active"}:
                yield f"spot request {request['SpotInstanceRequestId']} ({request['State']})"
        for volume in ec2.describe_volumes()["Volumes"]:
            yield f"volume {volume['VolumeId']}"
        for name in self._schedules(region):
            yield f"schedule {name}"

    def _schedules(self, region: str) -> list[str]:
        scheduler = self._client("scheduler", region)
        try:
            found = scheduler.list_schedules(GroupName=SCHEDULE_GROUP)["Schedules"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return []
            raise
        return [str(one["Name"]) for one in found]

    def stored_steps(self, run_id: str) -> list[int]:
        """Steps of the checkpoints that are complete in the bucket: those with a manifest."""
        names = [key.rpartition("/")[2] for key in self.objects(run_id) if "/checkpoints/" in key]
        return sorted(int(name.partition("-")[0]) for name in names if name.endswith(".json"))

    def objects(self, run_id: str) -> list[str]:
        """Keys of all objects of a run."""
        pages = self.s3().get_paginator("list_objects_v2").paginate(Bucket=self._info.bucket)
        keys = [str(item["Key"]) for page in pages for item in page.get("Contents", [])]
        return [key for key in keys if f"/{run_id}/" in f"/{key}"]

    def s3(self) -> Any:
        """A client of the bucket's store."""
        return self._client("s3", self._info.region, self._info.s3_endpoint)

    def _client(self, service: str, region: str, endpoint: str | None = None) -> Any:
        return self._session.client(
            service,
            region_name=region,
            endpoint_url=endpoint or self._info.ec2_endpoint,
            config=Config(retries={"total_max_attempts": 3}, connect_timeout=5, read_timeout=20),
        )
