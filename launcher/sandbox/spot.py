"""The spot request behind an instance that RunInstances made: moto makes none. One-time requests only.

Also what a cancellation does: on AWS it ends the request, not the instance; moto forgets the request.
"""

from __future__ import annotations

from datetime import UTC, datetime

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance
from moto.ec2.models.spot_requests import SpotInstanceRequest, SpotRequestBackend
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

    def notice(self, code: str) -> None:
        """The instance has its interruption notice."""
        self._change(self.state, code)

    def end(self, code: str) -> None:
        """The instance is gone."""
        self._change("cancelled" if self.state == "cancelled" else "closed", code)

    def cancel(self) -> None:
        """A caller wants no more of it; the instance goes on."""
        if self.state == "active":
            self._change("cancelled", "request-canceled-and-instance-running")

    def _change(self, state: str, code: str) -> None:
        self.state = state
        self._status_code = code
        self._changed = datetime.now(UTC)

    def get_filter_value(self, filter_name: str, method_name: str | None = None) -> object:
        """Also by what moto does not know."""
        if filter_name == "instance-id":
            return self._adopted.id
        if filter_name == "status-code":
            return self._status_code
        return super().get_filter_value(filter_name, method_name)


def install_cancellation() -> None:
    """Cancel as AWS does from now on."""

    def cancel_spot_instance_requests(self: SpotRequestBackend, request_ids: list[str]) -> list[SpotInstanceRequest]:
        for one in request_ids:
            if one not in self.spot_instance_requests:
                text = f"The spot instance request ID '{one}' does not exist"
                raise EC2ClientError("InvalidSpotInstanceRequestID.NotFound", text)
        requests = [self.spot_instance_requests[one] for one in request_ids]
        for request in requests:
            if isinstance(request, SpotRequest):
                request.cancel()
        return requests

    SpotRequestBackend.cancel_spot_instance_requests = cancel_spot_instance_requests  # type: ignore[method-assign]
