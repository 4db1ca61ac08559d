"""EC2's error codes, by what the launcher does next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
)

from launcher.providers.aws.errors import ABSENT, CAPACITY, CREDENTIALS, NOT_ALLOWED, QUOTA, TRANSIENT, translate
from launcher.providers.interface import CapacityError, RefusedError, UnreachableError


def answer(code, message="said so"):
    return ClientError({"Error": {"Code": code, "Message": message}}, "RunInstances")


@pytest.mark.parametrize("code", sorted(CAPACITY | QUOTA))
def test_capacity_and_quota_fail_over_to_another_offer(code):
    found = translate(answer(code))
    assert type(found) is CapacityError
    assert str(found) == f"{code}: said so"


@pytest.mark.parametrize("code", sorted(TRANSIENT))
def test_what_passes_is_asked_again(code):
    assert type(translate(answer(code))) is UnreachableError


@pytest.mark.parametrize("code", sorted(CREDENTIALS))
def test_credentials_that_do_not_work_stop_the_run_with_where_to_put_them(code):
    found = translate(answer(code))
    assert type(found) is RefusedError
    assert code in str(found)
    assert "AWS_PROFILE" in found.hint


@pytest.mark.parametrize("code", sorted(NOT_ALLOWED))
def test_a_missing_permission_stops_the_run_and_names_the_policy(code):
    found = translate(answer(code))
    assert type(found) is RefusedError
    named = re.search(r"templates/\S+\.json", found.hint)
    assert named
    assert (Path(__file__).parents[3] / named[0]).exists()


@pytest.mark.parametrize("code", ["SomethingNew", "InvalidParameterValue", "IdempotentParameterMismatch", ""])
def test_an_unknown_answer_stops_loudly_and_is_never_taken_for_capacity(code):
    found = translate(answer(code))
    assert type(found) is RefusedError
    assert "nothing else was tried" in found.hint


def test_no_code_is_in_two_classes():
    classes = [CAPACITY, QUOTA, TRANSIENT, ABSENT, CREDENTIALS, NOT_ALLOWED]
    assert sum(len(one) for one in classes) == len(frozenset().union(*classes))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NoCredentialsError(), RefusedError),
        (PartialCredentialsError(provider="env", cred_var="secret"), RefusedError),
        (ProfileNotFound(profile="ghost"), RefusedError),
        (NoRegionError(), RefusedError),
        (EndpointConnectionError(endpoint_url="https://ec2"), UnreachableError),
        (ConnectTimeoutError(endpoint_url="https://ec2"), UnreachableError),
        (ReadTimeoutError(endpoint_url="https://ec2"), UnreachableError),
        (BotoCoreError(), RefusedError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_failures_of_the_sdk_are_sorted_too(error, kind):
    found = translate(error)
    assert type(found) is kind
    assert str(found)


def test_a_profile_that_does_not_exist_is_named():
    found = translate(ProfileNotFound(profile="ghost"))
    assert "ghost" in str(found)
    assert "aws.profile" in found.hint


def test_an_answer_without_a_message_is_its_code():
    assert str(translate(answer("Unsupported", ""))) == "Unsupported"
