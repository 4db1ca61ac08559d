"""EC2 as a `ComputeProvider`: launch, look, host keys from the console, termination.

What is asked of RunInstances is in `launch`; what lies beside a machine in `belongings` and `spot`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from launcher.clock import Clock, SystemClock
from launcher.providers.aws.account import LAUNCHING, AwsAccount, Clients
from launcher.providers.aws.belongings import Belongings
from launcher.providers.aws.calls import ask, ask_unless
from launcher.providers.aws.description import host_key_in, status_of, unknown
from launcher.providers.aws.errors import ABSENT, NO_CONSOLE, RequestLeftOpen, UnknownProfile
from launcher.providers.aws.launch import Surroundings, launch_parameters
from launcher.providers.aws.spot import SpotRequests
from launcher.providers.aws.tags import of_run
from launcher.providers.interface import (
    EndCause,
    InstanceRef,
    InstanceState,
    InstanceStatus,
    LaunchRequest,
    RefusedError,
)

PROFILE_TRIES = 24
PROFILE_WAIT_SECONDS = 5.0
"""EC2 knows a new instance profile after a minute or two (seen by packer and bottlerocket's tests)."""

log = logging.getLogger(__name__)


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
        clock: Clock | None = None,
    ) -> None:
        """`image_parameter` is the SSM name of the image; `ssh_cidr` is asked once, before the first launch."""
        self._clients = Clients(account)
        self._image_parameter = image_parameter
        self._instance_profile = instance_profile
        self._subnet = subnet
        self._clock = clock or SystemClock()
        self._belongings = Belongings(self._clients, subnet, ssh_cidr)
        self._spot = SpotRequests(self._clients, self._clock)
        self._host_keys: dict[str, str] = {}

    def launch(self, request: LaunchRequest) -> InstanceRef:
        """See the port. The token makes a repeat with the same request answer with the same machine."""
        region = request.offer.region
        parameters = launch_parameters(request, self._surroundings(request))
        try:
            answer = self._run_instances(region, parameters)
        except RequestLeftOpen:
            self._spot.cancel_open(request.run_id, region)
            raise
        return InstanceRef(region, answer["Instances"][0]["InstanceId"])

    def describe(self, ref: InstanceRef) -> InstanceStatus:
        """See the port."""
        answer = ask_unless(ABSENT, self._ec2(ref.region).describe_instances, InstanceIds=[ref.instance_id])
        groups = [] if answer is None else answer["Reservations"]
        found = [instance for group in groups for instance in group["Instances"]]
        return self._with_console(self._status(ref.region, found[0])) if found else unknown(ref)

    def find(self, run_id: str, region: str) -> list[InstanceStatus]:
        """See the port."""
        pages = self._ec2(region).get_paginator("describe_instances")
        answer = ask(lambda: list(pages.paginate(Filters=[of_run(run_id)])))
        return [
            self._status(region, instance)
            for page in answer
            for group in page["Reservations"]
            for instance in group["Instances"]
        ]

    def terminate(self, ref: InstanceRef) -> None:
        """See the port."""
        ask_unless(ABSENT, self._ec2(ref.region).terminate_instances, InstanceIds=[ref.instance_id])

    def clean_up(self, run_id: str, region: str) -> None:
        """See the port. Spot requests that still wait come first: they alone can cost something."""
        try:
            self._spot.cancel_open(run_id, region)
        finally:
            self._belongings.delete(run_id, region)

    def close(self) -> None:
        """Let go of all connections."""
        self._clients.close()

    def _ec2(self, region: str) -> Any:  # noqa: ANN401 - a boto3 client
        return self._clients.get("ec2", region)

    def _run_instances(self, region: str, parameters: dict[str, Any]) -> Mapping[str, Any]:
        """RunInstances; an instance profile that EC2 does not know is waited for, since it may have just been made."""
        run: Callable[..., Mapping[str, Any]] = self._clients.get("ec2", region, LAUNCHING).run_instances
        for _ in range(PROFILE_TRIES - 1):
            try:
                return ask(run, **parameters)
            except UnknownProfile as error:
                log.warning("waiting for the instance profile: %s", error)
                self._clock.sleep(PROFILE_WAIT_SECONDS)
        return ask(run, **parameters)

    def _surroundings(self, request: LaunchRequest) -> Surroundings:
        region = request.offer.region
        return Surroundings(
            image=self._image(region),
            key_name=self._belongings.key_pair(request),
            zone_name=self._zone_name(region, request.offer.zone) if request.offer.zone else None,
            security_group=self._belongings.security_group(request),
            subnet=self._subnet,
            instance_profile=self._instance_profile,
        )

    def _image(self, region: str) -> dict[str, Any]:
        parameter = ask(self._clients.get("ssm", region).get_parameter, Name=self._image_parameter)
        image_id = parameter["Parameter"]["Value"]
        images: list[dict[str, Any]] = ask(self._ec2(region).describe_images, ImageIds=[image_id])["Images"]
        if not images:
            raise RefusedError(f"{region} has no image {image_id}", hint="leave this region out with `regions:`")
        return images[0]

    def _zone_name(self, region: str, zone_id: str) -> str:
        # Prices are kept by zone id; the names (us-east-1a) are private to each account.
        zones = ask(self._ec2(region).describe_availability_zones)["AvailabilityZones"]
        return str(next((zone["ZoneName"] for zone in zones if zone["ZoneId"] == zone_id), zone_id))

    def _status(self, region: str, instance: Mapping[str, Any]) -> InstanceStatus:
        """As described; for a spot machine that was taken back EC2 says the end in its spot request alone."""
        status = status_of(region, instance)
        taken = status.state is InstanceState.GONE and status.ended_by is EndCause.PROVIDER
        if taken and status.ended_at is None and instance.get("InstanceLifecycle") == "spot":
            return replace(status, ended_at=self._spot.ended_at(status.ref))
        return status

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
        get = self._ec2(ref.region).get_console_output
        answer = ask_unless(ABSENT | NO_CONSOLE, get, InstanceId=ref.instance_id, Latest=True)
        text = "" if answer is None else str(answer.get("Output", ""))
        key = host_key_in(text)
        if key:
            self._host_keys[ref.instance_id] = key
        return key, "\n".join(text.splitlines()[-10:])
