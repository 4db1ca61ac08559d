"""What is made in an account beside the machines of a run: key pairs and a security group. Neither is billed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

from launcher.providers.aws.account import Clients
from launcher.providers.aws.calls import ask, ask_unless
from launcher.providers.aws.errors import ABSENT, DUPLICATE, IN_USE
from launcher.providers.aws.tags import Tags, equals, of_run, run_tags
from launcher.providers.interface import LaunchRequest


class Belongings:
    """Key pairs and security groups of runs, in any region of one account."""

    def __init__(self, clients: Clients, subnet: str | None, ssh_cidr: Callable[[], str]) -> None:
        self._clients = clients
        self._subnet = subnet
        self._find_cidr = ssh_cidr

    def key_pair(self, request: LaunchRequest) -> str:
        """The name of this launcher's key for the run; imported unless it is there."""
        name = key_name(request.run_id, request.ssh_public_key)
        ask_unless(
            DUPLICATE,
            self._ec2(request.offer.region).import_key_pair,
            KeyName=name,
            PublicKeyMaterial=request.ssh_public_key.encode(),
            TagSpecifications=_specification("key-pair", run_tags(request)),
        )
        return name

    def security_group(self, request: LaunchRequest) -> str:
        """The id of the run's group, which lets this launcher in and nobody else; made unless it is there."""
        ec2 = self._ec2(request.offer.region)
        named = equals("group-name", f"gpucost-{request.run_id}")
        existing = ask(ec2.describe_security_groups, Filters=[named])["SecurityGroups"]
        group = str(existing[0]["GroupId"]) if existing else self._new_group(request)
        rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": self._cidr}]}
        ask_unless(DUPLICATE, ec2.authorize_security_group_ingress, GroupId=group, IpPermissions=[rule])
        return group

    def delete(self, run_id: str, region: str) -> None:
        """Delete those of all launchers of the run. A group that a dying machine still holds stays for a later call.

        They are listed first: deleting what is not there may be answered as a missing permission, for want of its tag.
        """
        ec2 = self._ec2(region)
        for pair in ask(ec2.describe_key_pairs, Filters=[of_run(run_id)])["KeyPairs"]:
            ask_unless(ABSENT, ec2.delete_key_pair, KeyName=pair["KeyName"])
        for group in ask(ec2.describe_security_groups, Filters=[of_run(run_id)])["SecurityGroups"]:
            ask_unless(ABSENT | IN_USE, ec2.delete_security_group, GroupId=group["GroupId"])

    def _new_group(self, request: LaunchRequest) -> str:
        ec2 = self._ec2(request.offer.region)
        parameters: dict[str, Any] = {
            "GroupName": f"gpucost-{request.run_id}",
            "Description": "gpucost: SSH from the launcher only",
            "TagSpecifications": _specification("security-group", run_tags(request)),
        }
        if self._subnet:
            subnets = ask(ec2.describe_subnets, SubnetIds=[self._subnet])["Subnets"]
            parameters["VpcId"] = subnets[0]["VpcId"]
        return str(ask(ec2.create_security_group, **parameters)["GroupId"])

    @cached_property
    def _cidr(self) -> str:
        return self._find_cidr()

    def _ec2(self, region: str) -> Any:  # noqa: ANN401 - a boto3 client
        return self._clients.get("ec2", region)


def key_name(run_id: str, public_key: str) -> str:
    """One name for each key: a launcher on another machine, which has another key, makes a pair of its own."""
    material = " ".join(public_key.split()[:2])
    return f"gpucost-{run_id}-{hashlib.sha256(material.encode()).hexdigest()[:8]}"


def _specification(kind: str, tags: Tags) -> list[dict[str, object]]:
    return [{"ResourceType": kind, "Tags": tags}]
