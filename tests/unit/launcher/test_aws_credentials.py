"""Keys for the machine: no more than the prefix of the run, and nothing of them where it could be read."""

from __future__ import annotations

import configparser
import json
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import boto3
import pytest
from stubbed_aws import REGION, StubbedAccount

from launcher.providers.aws.account import AwsAccount
from launcher.providers.aws.credentials import FEDERATION_SECONDS, machine_credentials, machine_policy
from launcher.providers.interface import RefusedError
from remote.protocol import StoredRun

NARROW = {
    "AccessKeyId": "ASIANARROWKEY000",
    "SecretAccessKey": "narrow-secret",
    "SessionToken": "narrow-token",
    "Expiration": datetime(2026, 12, 2, tzinfo=UTC),
}


def read(content):
    parsed = configparser.ConfigParser()
    parsed.read_string(content.decode())
    return dict(parsed["default"])


def federated(seconds, **more):
    """The parameters that STS was asked with, and the file for the machine."""
    account = StubbedAccount()
    asked = {}
    account.client("sts", REGION).meta.events.register(
        "provide-client-params.sts.GetFederationToken", lambda params, **_: asked.update(params)
    )
    account.expect("sts", "get_federation_token", {"Credentials": NARROW}, None)
    content = machine_credentials(account, "bucket", "runs", REGION, seconds, **more)
    account.done()
    account.close()
    return asked, content


def test_long_term_keys_are_exchanged_for_ones_that_open_the_prefix_alone():
    asked, content = federated(7200, data_url="s3://sets/a.tar")
    assert json.loads(asked["Policy"]) == machine_policy("bucket", "runs", "s3://sets/a.tar")
    assert asked["DurationSeconds"] == 7200
    assert read(content) == {
        "aws_access_key_id": "ASIANARROWKEY000",
        "aws_secret_access_key": "narrow-secret",
        "aws_session_token": "narrow-token",
    }
    assert b"AKIATEST" not in content


@pytest.mark.parametrize(("seconds", "asked_for"), [(1, 900), (10**6, FEDERATION_SECONDS), (3600.5, 3600)])
def test_the_keys_live_as_long_as_the_run_within_what_sts_allows(seconds, asked_for):
    assert federated(seconds)[0]["DurationSeconds"] == asked_for


def allows(policy, action, key):
    """Whether the policy lets `action` on the object `key` of the bucket through."""
    said = set()
    for statement in policy["Statement"]:
        named = statement["Resource"]
        resources = [named] if isinstance(named, str) else named
        if action in statement["Action"] and any(fnmatchcase(f"arn:aws:s3:::{key}", one) for one in resources):
            said.add(statement["Effect"])
    return said == {"Allow"}


def test_the_policy_reads_and_writes_below_the_prefix_and_nowhere_else():
    policy = machine_policy("bucket", "team/runs/", None)
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"):
        assert allows(policy, action, "bucket/team/runs/x/best.pt")
        assert not allows(policy, action, "bucket/team/other")
        assert not allows(policy, action, "bucket/team/runs-of-others/x")
        assert not allows(policy, action, "other/team/runs/x")
    assert not allows(policy, "s3:DeleteBucket", "bucket")
    assert not allows(policy, "s3:PutBucketPolicy", "bucket")
    (listing,) = [one for one in policy["Statement"] if one["Action"] == ["s3:ListBucket"]]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": "team/runs/*"}}


TEMPLATE = Path(__file__).parents[3] / "templates" / "aws-machine-policy.json"
HANDED_OUT = json.loads(TEMPLATE.read_text().replace("YOUR-BUCKET", "bucket").replace("YOUR-PREFIX", "runs"))


@pytest.mark.parametrize(
    ("policy", "prefix"),
    [
        (machine_policy("bucket", "runs", None), "runs/"),
        (machine_policy("bucket", "", None), ""),
        (HANDED_OUT, "runs/"),
    ],
    ids=["narrow-keys", "no-prefix", "template"],
)
@pytest.mark.parametrize("action", ["s3:PutObject", "s3:DeleteObject"])
def test_no_machine_writes_what_launchers_agree_by(policy, prefix, action):
    stored = StoredRun("20261201T000000-ab12-mine")
    for key in (stored.record(1), stored.record(17), stored.launcher_beat):
        assert not allows(policy, action, f"bucket/{prefix}{key}")
        assert allows(policy, "s3:GetObject", f"bucket/{prefix}{key}")
    theirs = [stored.outcome("l-1"), stored.posted_status("l-1")]
    for task in ("a", "journal", "launcher.json"):
        theirs += [stored.artifacts(task), stored.artifact(task, "best.pt"), f"{stored.checkpoints(task)}20-ab.json"]
    for key in theirs:
        assert allows(policy, action, f"bucket/{prefix}{key}")


def test_a_bucket_without_a_prefix_is_one_prefix():
    policy = machine_policy("bucket", "", None)
    assert allows(policy, "s3:GetObject", "bucket/anything")
    assert not allows(policy, "s3:GetObject", "bucket-of-others/anything")


@pytest.mark.parametrize(
    ("data_url", "inside", "outside"),
    [
        ("s3://sets/parts.tar", "sets/parts.tar", "sets/parts.tar.gz"),
        ("s3://sets/parts/", "sets/parts/images/a.png", "sets/parts2/a.png"),
        ("s3://sets/", "sets/a.png", "sets2/a.png"),
    ],
)
def test_data_that_lies_elsewhere_can_be_read_and_not_written(data_url, inside, outside):
    policy = machine_policy("bucket", "runs", data_url)
    assert allows(policy, "s3:GetObject", inside)
    assert not allows(policy, "s3:PutObject", inside)
    assert not allows(policy, "s3:DeleteObject", inside)
    assert not allows(policy, "s3:GetObject", outside)


def test_temporary_keys_are_handed_on_as_they_are():
    session = boto3.session.Session("ASIATEMP", "temp-secret", "temp-token", region_name=REGION)
    content = machine_credentials(StubbedAccount(session), "bucket", "runs", REGION, 3600)
    assert read(content)["aws_session_token"] == "temp-token"


def test_without_keys_the_next_action_is_named():
    with pytest.raises(RefusedError, match="no usable AWS credentials") as error:
        machine_credentials(StubbedAccount(boto3.session.Session(region_name=REGION)), "b", "p", REGION, 3600)
    assert "aws configure" in error.value.hint


def test_a_refused_exchange_is_the_ports_error():
    account = StubbedAccount()
    account.refuse("sts", "get_federation_token", "AccessDenied")
    with pytest.raises(RefusedError, match="AccessDenied"):
        machine_credentials(account, "bucket", "runs", REGION, 3600)
    account.close()


def test_a_credentials_helper_that_fails_is_the_ports_error(tmp_path, monkeypatch):
    config = tmp_path / "config"
    config.write_text("[profile broken]\ncredential_process = false\nregion = us-east-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    with pytest.raises(RefusedError):
        machine_credentials(AwsAccount(profile="broken"), "bucket", "runs", REGION, 3600)


def test_a_profile_that_does_not_exist_is_the_ports_error():
    with pytest.raises(RefusedError, match="ghost"):
        AwsAccount(profile="ghost").client("ec2", REGION)


def test_no_secret_is_shown_by_an_account():
    shown = repr(AwsAccount(access_key="AKIATEST", secret_key="very-secret"))
    assert "very-secret" not in shown
    assert "AKIATEST" in shown
