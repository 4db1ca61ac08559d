"""The tags by which everything that is made for a run is found again, in the shapes of the EC2 API."""

from __future__ import annotations

from typing import TypeAlias

from launcher.providers.interface import LaunchRequest

RUN_TAG = "gpucost-run"
LEASE_TAG = "gpucost-lease"
OUTPUT_TAG = "gpucost-output"
DEADLINE_TAG = "gpucost-deadline"

Tags: TypeAlias = list[dict[str, str]]
Filter: TypeAlias = dict[str, object]


def machine_tags(request: LaunchRequest) -> Tags:
    """Of the machine, its disk, its network interface and its spot request."""
    identity = {RUN_TAG: request.run_id, LEASE_TAG: request.lease_id, "Name": f"gpucost {request.run_id}"}
    return _tags({**request.tags, **identity})


def run_tags(request: LaunchRequest) -> Tags:
    """Of what the machines of a run share: key pair and security group."""
    known = {key: request.tags[key] for key in (OUTPUT_TAG, DEADLINE_TAG) if key in request.tags}
    return _tags({RUN_TAG: request.run_id, **known})


def equals(name: str, value: str) -> Filter:
    """A filter of the Describe calls."""
    return {"Name": name, "Values": [value]}


def of_run(run_id: str) -> Filter:
    """The filter for all that belongs to a run."""
    return equals(f"tag:{RUN_TAG}", run_id)


def _tags(values: dict[str, str]) -> Tags:
    return [{"Key": key, "Value": value} for key, value in values.items()]
