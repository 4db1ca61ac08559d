"""AWS error codes, sorted by what to do next. The one place where they are known.

Codes from the user guide page "Error codes for the Amazon EC2 API", the service model of EventBridge Scheduler, and the
sets of two long-lived EC2 provisioners (Karpenter's AWS provider, Gardener's machine controller), read on 2026-11-30.
"""

from __future__ import annotations

from collections.abc import Mapping

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from botocore.parsers import ResponseParserError

from launcher.providers.interface import (
    AskedBefore,
    CapacityError,
    CredentialsError,
    QuotaError,
    RefusedError,
    UnreachableError,
)

CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "UnfulfillableCapacity",
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientVolumeCapacity",
        "InsufficientReservedInstanceCapacity",
        "ReservationCapacityExceeded",
        "InsufficientAddressCapacity",
        "InsufficientFreeAddressesInSubnet",
        "Unsupported",
        "VolumeTypeNotAvailableInZone",
        "InvalidInstanceType.NotFound",
    }
)
LEFT_OPEN = frozenset({"SpotMaxPriceTooLow"})
"""Capacity too; but the spot request stays open and may still start a machine."""
SPOT_QUOTA = frozenset({"MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded"})
ON_DEMAND_QUOTA = frozenset({"VcpuLimitExceeded", "InstanceLimitExceeded"})
REGION_QUOTA = frozenset(
    {
        "MaxFleetCountExceeded",
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
        "KeyPairLimitExceeded",
        "SecurityGroupLimitExceeded",
        "AddressLimitExceeded",
    }
)
TRANSIENT = frozenset(
    {
        "RequestLimitExceeded",
        "EC2ThrottledException",
        "Throttling",
        "ThrottlingException",
        "Unavailable",
        "ServiceUnavailable",
        "InternalError",
        "InternalFailure",
        "InternalServerException",
        "ServerInternal",
        "500",
        "502",
        "503",
        "504",
    }
)
ABSENT = frozenset(
    {
        "InvalidInstanceID.NotFound",
        "InvalidInstanceID.Malformed",
        "InvalidGroup.NotFound",
        "InvalidKeyPair.NotFound",
        "InvalidSpotInstanceRequestID.NotFound",
    }
)
"""Gone; or, right after it was made, not visible yet."""
DUPLICATE = frozenset({"InvalidKeyPair.Duplicate", "InvalidPermission.Duplicate"})
"""There already."""
IN_USE = frozenset({"DependencyViolation"})
"""Held by a machine that is still on its way out."""
NO_CONSOLE = frozenset({"UnsupportedOperation", "Unsupported"})
NO_SCHEDULE = frozenset({"ResourceNotFoundException"})
"""No such schedule, or no such group of schedules."""
SCHEDULE_EXISTS = frozenset({"ConflictException"})
CREDENTIALS = frozenset(
    {
        "AuthFailure",
        "RequestExpired",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
    }
)
TOKEN_TAKEN = frozenset({"IdempotentParameterMismatch"})
NOT_ALLOWED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})

_NO_VPC = "name a subnet in aws.subnet, or make a default VPC with `aws ec2 create-default-vpc --region REGION`"
REFUSALS: Mapping[str, str] = {
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": (
        "the first spot request of an account makes a role: allow iam:CreateServiceLinkedRole as "
        "templates/aws-launcher-policy.json does, have an administrator run `aws iam create-service-linked-role "
        "--aws-service-name spot.amazonaws.com`, or set `market: on-demand`"
    ),
    "Blocked": "AWS has blocked this account; AWS Support says why",
    "AccountDisabled": "this account is disabled; AWS Support says why",
    "PendingVerification": "AWS is still verifying this account: try again later, or ask AWS Support",
    "OptInRequired": "sign the account up for EC2 and enable the region, or leave the region out with `regions:`",
    "TagPolicyViolation": "let the tag policy of the organization allow the keys that begin with gpucost-",
    "VPCIdNotSpecified": _NO_VPC,
    "DefaultVpcDoesNotExist": _NO_VPC,
}
"""What to change where no other machine will do either."""

_ASKED_BEFORE_HINT = "this machine was asked for before, with other parameters; `gpucost stop` ends what there is"
_CREDENTIALS_HINT = (
    "set AWS_PROFILE or aws.profile in the job file, or run `aws configure`; a clock that is wrong by minutes and a "
    "region that is not enabled are answered so too"
)
_UNKNOWN_HINT = "this answer is not known to be harmless, so nothing else was tried"
_NO_KEYS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    NoAuthTokenError,
    SSOError,
)
_UNKNOWN_PROFILE = "Invalid IAM Instance Profile name"


class RequestLeftOpen(CapacityError):
    """Refused, but the spot request waits on: it must be cancelled."""


class UnknownProfile(RefusedError):
    """EC2 does not know the instance profile; one that was just made is known after a minute or two."""


def code_of(error: ClientError) -> str:
    """The vendor's code of an error answer."""
    return str(error.response.get("Error", {}).get("Code", ""))


def translate(
    error: ClientError | BotoCoreError | ResponseParserError,
) -> CapacityError | RefusedError | UnreachableError:
    """The port's error for a vendor's, by what the caller does next; anything unknown stops loudly."""
    if isinstance(error, ClientError):
        return _translate_answer(error)
    if isinstance(error, ProfileNotFound):
        return CredentialsError(str(error), hint="name a profile of ~/.aws/config in aws.profile or AWS_PROFILE")
    if isinstance(error, _NO_KEYS):
        return CredentialsError(f"there are no usable AWS credentials ({error})", hint=_CREDENTIALS_HINT)
    if isinstance(error, BotoConnectionError | HTTPClientError | ResponseParserError):
        return UnreachableError(str(error))
    return RefusedError(str(error), hint="see the message; nothing was started after it")


def _translate_answer(error: ClientError) -> CapacityError | RefusedError | UnreachableError:
    code = code_of(error)
    message = str(error.response.get("Error", {}).get("Message", "")).strip()
    text = f"{code}: {message}" if message else code
    if code in TRANSIENT or code in ABSENT:
        return UnreachableError(text)
    return _no_machine(code, text) or _refusal(code, text)


def _no_machine(code: str, text: str) -> CapacityError | None:
    """The cause stays in the text: a price, a full zone and a quota are mended in different places."""
    if code in CAPACITY:
        return CapacityError(text)
    if code in LEFT_OPEN:
        return RequestLeftOpen(text)
    if code in SPOT_QUOTA:
        return QuotaError(f"{text} (the account's quota for spot machines of this family, in this region)")
    if code in ON_DEMAND_QUOTA:
        return QuotaError(f"{text} (the account's quota for on-demand machines of this family, in this region)")
    if code in REGION_QUOTA:
        return QuotaError(f"{text} (a quota of the account in this region)")
    return None


def _refusal(code: str, text: str) -> RefusedError:
    if code in CREDENTIALS:
        return CredentialsError(f"AWS refuses the credentials ({text})", hint=_CREDENTIALS_HINT)
    if code in NOT_ALLOWED:
        return RefusedError(
            f"AWS does not allow this ({text})", hint="grant the permissions of templates/aws-launcher-policy.json"
        )
    if code in TOKEN_TAKEN:
        return AskedBefore(text, hint=_ASKED_BEFORE_HINT)
    if _UNKNOWN_PROFILE in text:
        return UnknownProfile(text, hint="name an instance profile of this account in aws.instance_profile")
    return RefusedError(text, hint=REFUSALS.get(code, _UNKNOWN_HINT))
