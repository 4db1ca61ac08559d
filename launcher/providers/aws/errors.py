"""EC2 error codes, sorted by what to do next. The one place where they are known.

Codes from the user guide page "Error codes for the Amazon EC2 API" and the sets of two long-lived EC2 provisioners
(Karpenter's AWS provider, Gardener's machine controller), read on 2026-11-30.
"""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)

from launcher.providers.interface import CapacityError, RefusedError, UnreachableError

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
        "SpotMaxPriceTooLow",
        "InvalidInstanceType.NotFound",
    }
)
QUOTA = frozenset(
    {
        "VcpuLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "InstanceLimitExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
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
    }
)
CREDENTIALS = frozenset(
    {"AuthFailure", "RequestExpired", "ExpiredToken", "InvalidClientTokenId", "UnrecognizedClientException"}
)
NOT_ALLOWED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})

_CREDENTIALS_HINT = "set AWS_PROFILE or aws.profile in the job file, or run `aws configure`"


def code_of(error: ClientError) -> str:
    """The vendor's code of an error answer."""
    return str(error.response.get("Error", {}).get("Code", ""))


def translate(error: ClientError | BotoCoreError) -> CapacityError | RefusedError | UnreachableError:
    """The port's error for a vendor's, by what the caller does next; anything unknown stops loudly."""
    if isinstance(error, ClientError):
        return _translate_answer(error)
    if isinstance(error, ProfileNotFound):
        return RefusedError(str(error), hint="name a profile of ~/.aws/config in aws.profile or AWS_PROFILE")
    if isinstance(error, NoCredentialsError | PartialCredentialsError | TokenRetrievalError):
        return RefusedError("there are no usable AWS credentials", hint=_CREDENTIALS_HINT)
    if isinstance(error, BotoConnectionError | HTTPClientError):
        return UnreachableError(str(error))
    return RefusedError(str(error), hint="see the message; nothing was started after it")


def _translate_answer(error: ClientError) -> CapacityError | RefusedError | UnreachableError:
    code = code_of(error)
    message = str(error.response.get("Error", {}).get("Message", "")).strip()
    text = f"{code}: {message}" if message else code
    if code in CAPACITY or code in QUOTA:
        return CapacityError(text)
    if code in TRANSIENT:
        return UnreachableError(text)
    if code in CREDENTIALS:
        return RefusedError(f"AWS refuses the credentials ({text})", hint=_CREDENTIALS_HINT)
    if code in NOT_ALLOWED:
        return RefusedError(
            f"AWS does not allow this ({text})", hint="grant the permissions of templates/aws-launcher-policy.json"
        )
    return RefusedError(text, hint="this answer is not known to be harmless, so nothing else was tried")
