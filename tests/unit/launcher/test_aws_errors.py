"""AWS error codes, by what the launcher does next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    UnauthorizedSSOTokenError,
)

from launcher.providers.aws import errors
from launcher.providers.aws.account import ASKING, LAUNCHING, AwsAccount, Patience
from launcher.providers.aws.calls import ask
from launcher.providers.aws.errors import RequestLeftOpen, UnknownProfile, translate
from launcher.providers.interface import (
    AskedBefore,
    CapacityError,
    CredentialsError,
    QuotaError,
    RefusedError,
    UnreachableError,
)

QUOTAS = errors.SPOT_QUOTA | errors.ON_DEMAND_QUOTA | errors.REGION_QUOTA


def answer(code, message="said so"):
    return ClientError({"Error": {"Code": code, "Message": message}}, "RunInstances")


@pytest.mark.parametrize("code", sorted(errors.CAPACITY))
def test_no_capacity_fails_over_to_another_offer_and_keeps_its_cause(code):
    """U03: what AWS said is what the user reads."""
    found = translate(answer(code))
    assert type(found) is CapacityError
    assert str(found) == f"{code}: said so"


def test_a_price_that_is_too_low_is_called_so_and_leaves_a_request_behind():
    found = translate(answer("SpotMaxPriceTooLow", "lower than the minimum required Spot request fulfillment price"))
    assert isinstance(found, RequestLeftOpen)
    assert isinstance(found, CapacityError)
    assert not isinstance(found, QuotaError)
    assert str(found) == "SpotMaxPriceTooLow: lower than the minimum required Spot request fulfillment price"


@pytest.mark.parametrize("code", sorted(QUOTAS))
def test_a_quota_rules_out_the_whole_family(code):
    found = translate(answer(code))
    assert type(found) is QuotaError
    assert str(found).startswith(f"{code}: said so (")
    assert "quota of the account" in str(found) or "account's quota" in str(found)


@pytest.mark.parametrize(
    ("code", "market", "other"),
    [
        ("MaxSpotInstanceCountExceeded", "for spot machines", "on-demand"),
        ("VcpuLimitExceeded", "for on-demand machines", "spot"),
    ],
)
def test_the_quotas_of_spot_and_of_on_demand_are_told_apart(code, market, other):
    """Q04: the spot quota was raised, and the other one was asked for."""
    text = str(translate(answer(code)))
    assert market in text
    assert other not in text


@pytest.mark.parametrize("code", sorted(errors.TRANSIENT | errors.ABSENT))
def test_what_passes_is_asked_again(code):
    """Also what was just made and is not visible yet, where nobody expects it to be gone."""
    assert type(translate(answer(code))) is UnreachableError


@pytest.mark.parametrize("code", sorted(errors.CREDENTIALS))
def test_credentials_that_do_not_work_stop_the_run_with_where_to_put_them(code):
    found = translate(answer(code))
    assert type(found) is CredentialsError
    assert isinstance(found, RefusedError)
    assert code in str(found)
    assert "AWS_PROFILE" in found.hint


@pytest.mark.parametrize("code", sorted(errors.NOT_ALLOWED))
def test_a_missing_permission_stops_the_run_and_names_the_policy(code):
    found = translate(answer(code))
    assert type(found) is RefusedError
    named = re.search(r"templates/\S+\.json", found.hint)
    assert named
    assert (Path(__file__).parents[3] / named[0]).exists()


@pytest.mark.parametrize(
    ("code", "next_action"),
    [
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "iam:CreateServiceLinkedRole"),
        ("Blocked", "AWS Support"),
        ("AccountDisabled", "AWS Support"),
        ("PendingVerification", "try again later"),
        ("OptInRequired", "enable the region"),
        ("TagPolicyViolation", "gpucost-"),
        ("VPCIdNotSpecified", "aws.subnet"),
        ("DefaultVpcDoesNotExist", "aws.subnet"),
    ],
)
def test_what_only_the_user_can_mend_has_a_hint_of_its_own(code, next_action):
    found = translate(answer(code))
    assert type(found) is RefusedError
    assert str(found) == f"{code}: said so"
    assert next_action in found.hint


def test_a_token_that_was_used_with_another_request_is_no_refusal_of_the_machine():
    found = translate(answer("IdempotentParameterMismatch"))
    assert type(found) is AskedBefore
    assert "gpucost stop" in found.hint


def test_every_hint_is_tested():
    assert len(errors.REFUSALS) == 8


def test_an_unknown_instance_profile_is_told_from_other_bad_parameters():
    message = "Value (role) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
    assert type(translate(answer("InvalidParameterValue", message))) is UnknownProfile
    assert type(translate(answer("InvalidParameterValue", "Invalid key name"))) is RefusedError


@pytest.mark.parametrize(
    "code",
    [
        "SomethingNew",
        "InvalidParameterValue",
        "InvalidParameterCombination",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Malformed",
        "UnsupportedOperation",
        "DependencyViolation",
        "ValidationException",
        "",
    ],
)
def test_an_unknown_answer_stops_loudly_and_is_never_taken_for_capacity(code):
    found = translate(answer(code))
    assert type(found) is RefusedError
    assert "nothing else was tried" in found.hint


def test_no_code_is_in_two_classes():
    classes = [errors.CAPACITY, errors.LEFT_OPEN, errors.SPOT_QUOTA, errors.ON_DEMAND_QUOTA, errors.REGION_QUOTA]
    classes += [errors.TRANSIENT, errors.ABSENT, errors.CREDENTIALS, errors.NOT_ALLOWED, frozenset(errors.REFUSALS)]
    assert sum(len(one) for one in classes) == len(frozenset().union(*classes))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NoCredentialsError(), CredentialsError),
        (PartialCredentialsError(provider="env", cred_var="secret"), CredentialsError),
        (CredentialRetrievalError(provider="web-identity", error_msg="the token has expired"), CredentialsError),
        (UnauthorizedSSOTokenError(), CredentialsError),
        (ProfileNotFound(profile="ghost"), CredentialsError),
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


class _Page:
    """A body that is no answer of AWS."""

    def stream(self, **_):
        yield b"upstream connect error or disconnect/reset before headers"


def test_an_answer_that_is_not_of_aws_is_a_failure_on_the_way(monkeypatch):
    """A proxy's own page: the SDK has an error of its own kind for it."""
    account = AwsAccount(endpoint_url="http://127.0.0.1:9", access_key="AKIATEST", secret_key="secret")
    ec2 = account.client("ec2", "us-east-1", Patience(attempts=1, connect_seconds=1, read_seconds=1))
    page = AWSResponse("http://127.0.0.1:9", 503, {"content-type": "text/plain"}, _Page())
    ec2.meta.events.register("before-send.ec2", lambda **_: page)
    with pytest.raises(UnreachableError):
        ask(ec2.describe_regions)
    ec2.close()


@pytest.mark.parametrize(("patience", "limit"), [(ASKING, 21), (LAUNCHING, 61)], ids=["asking", "launching"])
def test_no_call_hangs_longer_than_its_limit_and_a_launch_is_tried_twice_at_most(patience, limit):
    pauses = sum(2**attempt for attempt in range(patience.attempts - 1))
    assert patience.attempts * (patience.connect_seconds + patience.read_seconds) + pauses <= limit
    assert LAUNCHING.attempts <= 2


@pytest.mark.parametrize("patience", [ASKING, LAUNCHING], ids=["asking", "launching"])
def test_the_limits_reach_the_sdk(patience):
    client = AwsAccount(access_key="AKIATEST", secret_key="secret").client("ec2", "us-east-1", patience)
    config = client.meta.config
    assert (config.connect_timeout, config.read_timeout) == (patience.connect_seconds, patience.read_seconds)
    assert config.retries["total_max_attempts"] == patience.attempts
    client.close()
