"""IMDSv2 answers, without a server."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("boto3")

from launcher.sandbox.imds import Identity, Metadata
from launcher.sandbox.objectstore import RoleCredentials

ME = Identity(
    instance_id="i-1",
    instance_type="g4dn.xlarge",
    image_id="ami-1",
    region="us-east-1",
    zone="us-east-1a",
    account="1",
    address="127.0.0.2",
    private_address="10.0.0.1",
    public_key="ssh-ed25519 AAAA",
    role="role",
    user_data=b"#!/bin/sh",
)


def metadata(*lives, role="role"):
    """A service whose minted credentials live so many seconds, and the list of what was minted."""
    minted = []

    def mint(session):
        minted.append(session)
        life = lives[len(minted) - 1]
        return RoleCredentials(f"A{len(minted)}", "s", "t", datetime.now(UTC) + timedelta(seconds=life))

    identity = Identity(**{**{name: getattr(ME, name) for name in Identity.__slots__}, "role": role})
    return Metadata(identity, mint), minted


@pytest.mark.parametrize("ttl", [None, "", "0", "21601", "-1", "x"])
def test_a_token_wants_a_time_from_one_second_to_six_hours(ttl):
    assert metadata()[0].token(ttl) is None


def test_only_tokens_that_were_given_out_are_known():
    service, _ = metadata()
    assert service.knows(service.token("60"))
    assert not service.knows("made-up")
    assert not service.knows(None)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/meta-data/instance-id", b"i-1"),
        ("/meta-data/placement/availability-zone", b"us-east-1a"),
        ("/meta-data/iam/security-credentials/", b"role"),
        ("/user-data", b"#!/bin/sh"),
        ("/meta-data/spot/instance-action", None),
        ("/meta-data/iam/security-credentials/other", None),
        ("/nothing", None),
    ],
)
def test_documents_are_found_by_path(path, text):
    assert metadata()[0].get(path) == text


def test_a_notice_shows_action_time_and_rebalance():
    service, _ = metadata()
    service.notify(datetime(2026, 12, 1, 2, 30, tzinfo=UTC))
    action = json.loads(service.get("/meta-data/spot/instance-action"))
    assert action == {"action": "terminate", "time": "2026-12-01T02:30:00Z"}
    assert service.get("/meta-data/spot/termination-time") == b"2026-12-01T02:30:00Z"
    assert set(json.loads(service.get("/meta-data/events/recommendations/rebalance"))) == {"noticeTime"}


def test_credentials_are_kept_while_they_are_fresh_and_replaced_in_time():
    service, minted = metadata(3600)
    path = "/meta-data/iam/security-credentials/role"
    first = json.loads(service.get(path))
    assert (first["Code"], first["AccessKeyId"], first["Token"]) == ("Success", "A1", "t")
    assert json.loads(service.get(path))["AccessKeyId"] == "A1"
    assert minted == ["i-1"]
    service, minted = metadata(60, 3600)
    assert [json.loads(service.get(path))["AccessKeyId"] for _ in range(3)] == ["A1", "A2", "A2"]


def test_an_instance_without_a_profile_has_no_credentials():
    service, _ = metadata(role=None)
    assert service.get("/meta-data/iam/security-credentials") is None
    assert service.get("/meta-data/iam/security-credentials/role") is None
