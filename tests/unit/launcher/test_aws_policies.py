"""The policies that are handed out: what the adapters call is in them, and nothing wider."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from aws_cases import LAUNCH, RUN_TAGS
from botocore import xform_name

from launcher.providers.aws.timer import GROUP, STOP_ROLE

ROOT = Path(__file__).parents[3]
TEMPLATES = sorted((ROOT / "templates").glob("aws-*.json"))
CALLERS = [*sorted((ROOT / "launcher/providers/aws").glob("*.py")), ROOT / "launcher/storage/s3.py"]
SERVICES = ("ec2", "s3", "scheduler", "ssm", "sts")
CALLED_OTHERWISE = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "s3:ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:ListParts": "s3:ListMultipartUploadParts",
}
"""Actions that are not called as the operation is."""
FREE = {"sts:GetCallerIdentity"}
"""Allowed to everybody."""


def policy(name: str) -> list[dict[str, object]]:
    return json.loads((ROOT / "templates" / name).read_text(encoding="utf-8"))["Statement"]


def listed(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def actions(*statements: dict[str, object]) -> set[str]:
    return {action for statement in statements for action in listed(statement["Action"])}


@cache
def operations(service: str) -> dict[str, str]:
    """Names of the client's methods, and the operations behind them."""
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(name): name for name in model.operation_names}


def calls(path: Path) -> Iterator[set[str]]:
    """For each call in a file that some service has: the actions that it may be."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
        found = {f"{service}:{operations(service)[name]}" for service in SERVICES if name in operations(service)}
        if found:
            yield {CALLED_OTHERWISE.get(action, action) for action in found}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_policy_is_whole_and_says_each_action(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["Version"] == "2012-10-17"
    names = [statement["Sid"] for statement in document["Statement"]]
    assert len(set(names)) == len(names)
    assert all(name.isalnum() for name in names), "IAM takes letters and digits"
    for statement in document["Statement"]:
        assert set(statement) <= {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
        assert statement["Effect"] == "Allow" or path.name == "aws-machine-policy.json", "only that one takes back"
        assert not [action for action in listed(statement["Action"]) if "*" in action]
    assert len("".join(path.read_text(encoding="utf-8").split())) <= 6144, "a managed policy is no longer"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_action_exists(path):
    """IAM keeps a policy with a misspelt action without a word."""
    known = {f"{service}:{name}" for service in (*SERVICES, "iam") for name in operations(service).values()}
    known |= set(CALLED_OTHERWISE.values()) | {"iam:PassRole"}
    assert actions(*policy(path.name)) <= known


@pytest.mark.parametrize("path", CALLERS, ids=lambda path: path.stem)
def test_every_call_of_the_adapters_is_allowed(path):
    allowed = actions(*policy("aws-launcher-policy.json")) | FREE
    assert [found for found in calls(path) if not found & allowed] == []


def test_the_calls_of_the_adapters_are_seen_by_that_test():
    seen = set().union(*(found for path in CALLERS for found in calls(path)))
    assert {
        "ec2:RunInstances",
        "ec2:CancelSpotInstanceRequests",
        "ec2:DescribeSpotPriceHistory",
        "scheduler:UpdateSchedule",
        "ssm:GetParameter",
        "sts:GetFederationToken",
        "s3:PutObject",
    } <= seen


def test_nothing_is_made_without_our_tag_and_nothing_else_is_ended():
    """Looking at everything is harmless; so is what a launch only refers to."""
    needs_no_tag = {"LaunchFrom", "MakeGroupIn", "TagWhatIsMade"}
    for statement in policy("aws-launcher-policy.json"):
        of_ec2 = {action for action in actions(statement) if action.startswith("ec2:")}
        looks = all(action.startswith("ec2:Describe") for action in of_ec2)
        if of_ec2 and not looks and statement["Sid"] not in needs_no_tag:
            (keys,) = [list(condition) for condition in statement["Condition"].values()]
            assert keys in (["aws:RequestTag/gpucost-run"], ["aws:ResourceTag/gpucost-run"]), statement["Sid"]


def test_only_looking_is_allowed_everywhere():
    wide = [one for one in policy("aws-launcher-policy.json") if "*" in listed(one["Resource"])]
    assert all(action.partition(":")[2].startswith(("Describe", "List")) for action in actions(*wide))


def test_what_a_launch_makes_carries_the_tag_that_the_policy_asks_for():
    for made in LAUNCH["TagSpecifications"]:
        assert "gpucost-run" in {tag["Key"] for tag in made["Tags"]}
    assert "gpucost-run" in {tag["Key"] for tag in RUN_TAGS}
    (launched,) = [one for one in policy("aws-launcher-policy.json") if one["Sid"] == "LaunchTagged"]
    kinds = {resource.rpartition(":")[2].removesuffix("/*") for resource in launched["Resource"]}
    assert kinds == {made["ResourceType"] for made in LAUNCH["TagSpecifications"]}


def test_each_role_is_passed_to_one_service():
    passed = {
        resource.rpartition("/")[2]: one["Condition"]
        for one in policy("aws-launcher-policy.json")
        if "iam:PassRole" in actions(one)
        for resource in listed(one["Resource"])
    }
    assert passed == {
        "gpucost-*": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        STOP_ROLE: {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
    }


def test_schedules_are_reached_in_our_group_alone():
    resources = {
        resource
        for one in policy("aws-launcher-policy.json")
        if any(action.startswith("scheduler:") for action in actions(one)) and one["Sid"] != "Look"
        for resource in listed(one["Resource"])
    }
    assert {resource.partition(":*:*:")[2] for resource in resources} == {
        f"schedule/{GROUP}/*",
        f"schedule-group/{GROUP}",
    }


def test_the_stop_can_do_one_thing_to_our_own_machines():
    (statement,) = policy("aws-stop-role-policy.json")
    assert actions(statement) == {"ec2:TerminateInstances"}
    assert statement["Condition"] == {"StringLike": {"aws:ResourceTag/gpucost-run": "*"}}
    (trust,) = policy("aws-stop-role-trust.json")
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert list(trust["Condition"]["StringEquals"]) == ["aws:SourceAccount"]
