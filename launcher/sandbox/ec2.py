"""The one place that knows moto's EC2 and IAM models: hooks into its life of an instance, and what moto leaves out.

moto keeps the records (and answers the API); whether an instance really runs is the hypervisor's business, which is
told here of every launch, start, stop and end, and says through here what the API shall show.
"""

from __future__ import annotations

import base64
import copy
from datetime import UTC, datetime
from typing import Any, TypeAlias

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.exceptions import DependencyViolationError, EC2ClientError, InvalidSubnetIdError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.elastic_network_interfaces import NetworkInterfaceBackend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.models.instances import Instance, InstanceBackend, InstanceState, Reservation, StateReason
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.ec2.utils import filter_dict_attribute_mapping
from moto.iam.models import iam_backends

from launcher.sandbox.instances import BY_USER, FROM_INSIDE, INTERRUPTED, LOST, Cause, Guests, Launch, State
from launcher.sandbox.spot import SpotRequest, install_cancellation

ACCOUNT = DEFAULT_ACCOUNT_ID
Model: TypeAlias = Any
"""Anything of moto's own: it ships no types."""


class Ec2:
    """moto's EC2, with the hooks installed. One per process: moto's classes are changed."""

    def __init__(self) -> None:
        self._requests: dict[str, SpotRequest] = {}
        self._regions: dict[str, str] = {}

    def install(self, guests: Guests) -> None:
        """Tell `guests` of everything from now on."""
        filter_dict_attribute_mapping.setdefault("client-token", "client_token")
        filter_dict_attribute_mapping.setdefault("instance-lifecycle", "lifecycle")
        self._hook_launch(guests)
        self._hook_life(guests)
        self._hook_groups()
        self._hook_interfaces()
        install_cancellation()

    def _hook_launch(self, guests: Guests) -> None:
        original = InstanceBackend.run_instances

        def run_instances(
            backend: EC2Backend, image_id: Model, count: int, *args: Model, **kwargs: Model
        ) -> Reservation:
            _place(backend, kwargs)
            profile = _role(kwargs)
            tags = kwargs.get("tags", {})
            spot = bool(kwargs.get("instance_market_options"))
            reservation = original(backend, image_id, count, *args, **kwargs)
            for instance in reservation.instances:
                if spot:
                    self._request(backend, instance, dict(tags.get("spot-instances-request", {})))
                _own_interfaces(instance, kwargs.get("nics", []), tags.get("network-interface", {}))
                _set_state(instance, State.PENDING)
                self._address(instance, None)  # moto has made one up, and it may be somebody's
                self._regions[instance.id] = backend.region_name
                guests.launched(_launch(backend, instance, profile))
            return reservation

        InstanceBackend.run_instances = run_instances  # type: ignore[method-assign,assignment]

    def _hook_life(self, guests: Guests) -> None:
        self._terminate, stop, start = Instance.terminate, Instance.stop, Instance.start

        def hooked_terminate(instance: Instance) -> InstanceState:
            if instance.state in (State.TERMINATED.label, State.SHUTTING_DOWN.label):
                return copy.copy(instance._state)
            previous = copy.copy(instance._state)
            self._ending(instance, State.SHUTTING_DOWN, BY_USER)
            guests.ended(instance.id, State.TERMINATED)
            return previous

        def hooked_stop(instance: Instance) -> InstanceState:
            if instance.lifecycle == "spot":
                raise EC2ClientError(
                    "UnsupportedOperation",
                    f"You can't stop the Spot Instance '{instance.id}' because it is associated with a one-time Spot "
                    "Instance request. You can only stop Spot Instances associated with persistent requests.",
                )
            if instance.state in (State.STOPPED.label, State.STOPPING.label):
                return copy.copy(instance._state)
            _refuse_unless(instance, "stopped", State.RUNNING, State.PENDING)
            previous = stop(instance)
            self._ending(instance, State.STOPPING, BY_USER)
            guests.ended(instance.id, State.STOPPED)
            return previous

        def hooked_start(instance: Instance) -> InstanceState:
            if instance.state in (State.RUNNING.label, State.PENDING.label):
                return copy.copy(instance._state)
            _refuse_unless(instance, "started", State.STOPPED)
            previous = start(instance)
            _set_state(instance, State.PENDING)
            guests.started(instance.id)
            return previous

        def reboot(instance: Instance) -> None:
            _refuse_unless(instance, "rebooted", State.RUNNING)
            guests.rebooted(instance.id)

        Instance.terminate = hooked_terminate  # type: ignore[method-assign,assignment]
        Instance.stop = hooked_stop  # type: ignore[method-assign,assignment]
        Instance.start = hooked_start  # type: ignore[method-assign,assignment]
        Instance.reboot = reboot  # type: ignore[method-assign,assignment]

    def _hook_groups(self) -> None:
        original = SecurityGroupBackend.delete_security_group

        def delete_security_group(backend: EC2Backend, name: str | None = None, group_id: str | None = None) -> None:
            for instance in backend.all_instances():
                used = {value for group in instance.security_groups for value in (group.id, group.name)}
                if instance.state != State.TERMINATED.label and (group_id or name) in used:
                    raise DependencyViolationError(f"resource {group_id or name} has a dependent object")
            original(backend, name, group_id)

        SecurityGroupBackend.delete_security_group = delete_security_group  # type: ignore[method-assign,assignment]

    def _hook_interfaces(self) -> None:
        original = NetworkInterfaceBackend.delete_network_interface
        ending = {State.SHUTTING_DOWN.label, State.TERMINATED.label}

        def delete_network_interface(backend: EC2Backend, eni_id: str) -> None:
            interface = backend.enis.get(eni_id)
            if interface is not None and interface.instance and interface.instance.state not in ending:
                raise EC2ClientError("InvalidParameterValue", f"Network interface '{eni_id}' is currently in use.")
            original(backend, eni_id)

        NetworkInterfaceBackend.delete_network_interface = delete_network_interface  # type: ignore[method-assign,assignment]

    def _request(self, backend: EC2Backend, instance: Instance, tags: dict[str, str]) -> None:
        request = SpotRequest(instance, tags)
        backend.spot_instance_requests[request.id] = request
        instance.spot_instance_request_id = request.id  # type: ignore[attr-defined] # the API's field of that name
        self._requests[instance.id] = request

    def _ending(self, instance: Instance, state: State, cause: Cause) -> None:
        _set_state(instance, state)
        instance._reason = cause.transition_at(datetime.now(UTC))
        instance.state_reason = StateReason(f"{cause.code}: {cause.text}", cause.code)
        self._address(instance, None)

    def show(self, instance_id: str, state: State) -> None:
        """Let the API say this state."""
        instance = self._instance(instance_id)
        if state is State.TERMINATED:
            self._release(instance)
        _set_state(instance, state)
        if state is State.TERMINATED and instance_id in self._requests:
            self._requests[instance_id].end(_spot_code(instance))

    def _release(self, instance: Instance) -> None:
        """Let go of volumes and interfaces, as EC2 does when an instance is gone and not before."""
        why = instance._reason, instance.state_reason
        self._terminate(instance)  # moto's own: deletes what goes with the instance, and thinks that a user ended it
        instance._reason, instance.state_reason = why
        for interface in instance.nics.values():
            interface.instance = interface.attachment_id = interface.attach_time = None
            interface.status = "available"

    def end(self, instance_id: str, final: State, cause: Cause) -> None:
        """Begin an end that no caller of the API asked for. `final` is STOPPED or TERMINATED."""
        state = State.SHUTTING_DOWN if final is State.TERMINATED else State.STOPPING
        self._ending(self._instance(instance_id), state, cause)

    def give_address(self, instance_id: str, address: str) -> None:
        """Let the API say that this is the public address."""
        self._address(self._instance(instance_id), address)

    def _address(self, instance: Instance, address: str | None) -> None:
        if 0 in instance.nics:
            instance.nics[0].public_ip = address

    def notice(self, instance_id: str) -> None:
        """As soon as a notice is out, the spot request says so while the instance still runs."""
        self._requests[instance_id].notice(INTERRUPTED.spot_status)

    def shutdown_behavior(self, instance_id: str) -> State:
        """What a power-off from inside leads to."""
        behavior = self._instance(instance_id).instance_initiated_shutdown_behavior
        return State.TERMINATED if behavior == "terminate" else State.STOPPED

    def state(self, instance_id: str) -> str:
        """As the API says it."""
        return str(self._instance(instance_id).state)

    def subnet_zone(self, region: str, subnet: str) -> str | None:
        """The zone of a subnet, or None for one that does not exist."""
        try:
            return str(ec2_backends[ACCOUNT][region].get_subnet(subnet).availability_zone)
        except InvalidSubnetIdError:
            return None

    def zones(self, region: str) -> tuple[str, ...]:
        """Names of the zones of a region."""
        return tuple(zone.name for zone in ec2_backends[ACCOUNT][region].describe_availability_zones())

    def zone_ids(self, region: str) -> tuple[str, ...]:
        """Ids of the zones of a region, the same in every account."""
        return tuple(zone.zone_id for zone in ec2_backends[ACCOUNT][region].describe_availability_zones())

    def _instance(self, instance_id: str) -> Instance:
        return ec2_backends[ACCOUNT][self._regions[instance_id]].get_instance(instance_id)


def _set_state(instance: Instance, state: State) -> None:
    instance._state = InstanceState(state.label, state.value)


def _spot_code(instance: Instance) -> str:
    causes = {cause.code: cause.spot_status for cause in (BY_USER, FROM_INSIDE, INTERRUPTED, LOST)}
    return causes.get(instance.state_reason.code, BY_USER.spot_status)


def _refuse_unless(instance: Instance, verb: str, *allowed: State) -> None:
    if instance.state not in {state.label for state in allowed}:
        raise EC2ClientError(
            "IncorrectInstanceState",
            f"The instance '{instance.id}' is not in a state from which it can be {verb}.",
        )


def _place(backend: EC2Backend, kwargs: dict[str, Model]) -> None:
    """Refuse a type that the asked zone does not have; without a zone take one that has it, as EC2 does."""
    wanted = kwargs.get("instance_type")
    offered = [
        offer["Location"]
        for offer in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(backend.region_name, [])
        if offer["InstanceType"] == wanted
    ]
    subnet = kwargs.get("subnet_id") or next(
        (nic["SubnetId"] for nic in kwargs.get("nics", []) if "SubnetId" in nic), None
    )
    zone = backend.get_subnet(subnet).availability_zone if subnet else kwargs.get("placement")
    if not offered:
        return
    if zone is None:
        kwargs["placement"] = min(offered)
    elif zone not in offered:
        raise EC2ClientError(
            "Unsupported",
            f"Your requested instance type ({wanted}) is not supported in your requested Availability Zone ({zone}). "
            "Please retry your request by not specifying an Availability Zone or choosing "
            f"{', '.join(sorted(offered))}.",
        )


def _own_interfaces(instance: Instance, asked: list[dict[str, Model]], tags: dict[str, str]) -> None:
    """Interfaces made for a launch carry its tags and, unless it says otherwise, go with the instance."""
    for interface in instance.nics.values():
        request = next((one for one in asked if int(one["DeviceIndex"]) == interface.device_index), {})
        if "NetworkInterfaceId" not in request:
            interface.add_tags(tags)
            interface.delete_on_termination = request.get("DeleteOnTermination") is not False


def _role(kwargs: dict[str, Model]) -> str | None:
    """Name of the role behind the instance profile of a launch."""
    name = kwargs.get("iam_instance_profile_name")
    arn = kwargs.get("iam_instance_profile_arn")
    for profile in iam_backends[ACCOUNT]["aws"].get_instance_profiles():
        if profile.name == name or (arn and profile.arn == arn):
            return str(profile.roles[0].name) if profile.roles else None
    return None


def _launch(backend: EC2Backend, instance: Instance, role: str | None) -> Launch:
    pair = backend.key_pairs.get(instance.key_name or "")
    data = instance.user_data
    return Launch(
        instance_id=instance.id,
        instance_type=instance.instance_type,
        image_id=instance.image_id,
        region=backend.region_name,
        zone=instance.placement.zone or "",
        market="spot" if instance.lifecycle == "spot" else "on-demand",
        private_address=instance.private_ip or "",
        public_key=pair.material_public.decode().strip() if pair else "",
        role=role,
        user_data=_user_data(data),
    )


def _user_data(data: Model) -> bytes:
    """moto keeps user-data as it came: base64."""
    return base64.b64decode(str(data)) if data else b""
