"""The spot request behind an instance that RunInstances made: moto makes none. One-time requests only."""

from __future__ import annotations

from datetime import UTC, datetime

from moto.ec2.models.instances import Instance
from moto.ec2.models.spot_requests import SpotInstanceRequest
from moto.ec2.utils import random_spot_request_id


class SpotRequest(SpotInstanceRequest):
    """The spot request behind an instance that RunInstances made; moto makes none."""

    def __init__(self, instance: Instance, tags: dict[str, str]) -> None:
        self._adopted = instance
        self._changed = datetime.now(UTC)
        self._created = self._changed
        super().__init__(
            instance.ec2_backend,
            random_spot_request_id(),
            price="",
            image_id=instance.image_id,
            spot_instance_type="one-time",
            valid_from=None,
            valid_until=None,
            launch_group=None,
            availability_zone_group=None,
            key_name=instance.key_name or "",
            security_groups=[group.id for group in instance.security_groups],
            user_data=None,
            instance_type=instance.instance_type,
            placement=instance.placement.zone,
            kernel_id=None,
            ramdisk_id=None,
            monitoring_enabled=False,
            subnet_id=instance.subnet_id or "",
            tags={"spot-instances-request": tags},
            spot_fleet_id=None,
            instance_interruption_behaviour="terminate",
        )

    def launch_instance(self) -> Instance:
        """moto would launch one here; this one runs already."""
        return self._adopted

    @property
    def create_time(self) -> str:
        """When it was made, as the API writes it."""
        return self._created.strftime("%Y-%m-%dT%H:%M:%S.000Z")

    @property
    def status(self) -> dict[str, str]:
        """The code and when it last changed."""
        changed = self._changed.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return {"Code": self._status_code, "Message": self.status_message, "UpdateTime": changed}

    def change(self, state: str, code: str) -> None:
        """Show another state and status code from now on."""
        self.state = state
        self._status_code = code
        self._changed = datetime.now(UTC)

    def get_filter_value(self, filter_name: str, method_name: str | None = None) -> object:
        """Also by the instance, which moto does not know."""
        if filter_name == "instance-id":
            return self._adopted.id
        return super().get_filter_value(filter_name, method_name)
