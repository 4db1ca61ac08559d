"""Keys for the machine, as little as will do: the object-storage prefix of the runs, and reading the data.

Long-term keys are exchanged for a federation token whose policy names the prefix (STS GetFederationToken, at most
36 hours); temporary keys cannot be narrowed without a role to assume, and are handed on as they are.
"""

from __future__ import annotations

import json

from botocore.exceptions import BotoCoreError, ClientError

from launcher.providers.aws.account import AwsAccount
from launcher.providers.aws.errors import translate
from launcher.providers.interface import CredentialsError

FEDERATION_SECONDS = 36 * 3600
LAUNCHERS_OWN = ("*/journal/??????.json", "*/launcher.json")
"""What a launcher alone writes below the prefix: its records, which are the fence between launchers, and its beat."""


def machine_credentials(
    account: AwsAccount, bucket: str, prefix: str, region: str, seconds: float, *, data_url: str | None = None
) -> bytes:
    """A shared-credentials file for the machine. Raises RefusedError. `data_url`: an archive or prefix to read."""
    try:
        found = account.session(region).get_credentials()
        keys = None if found is None else found.get_frozen_credentials()
    except BotoCoreError as error:
        raise translate(error) from error
    if keys is None:
        raise CredentialsError("there are no usable AWS credentials", hint="run `aws configure` or set AWS_PROFILE")
    if keys.token:
        return _file(str(keys.access_key), str(keys.secret_key), str(keys.token))
    duration = int(min(max(seconds, 900), FEDERATION_SECONDS))
    policy = json.dumps(machine_policy(bucket, prefix, data_url))
    try:
        answer = account.client("sts", region).get_federation_token(
            Name="gpucost", Policy=policy, DurationSeconds=duration
        )
    except (ClientError, BotoCoreError) as error:
        raise translate(error) from error
    narrow = answer["Credentials"]
    return _file(narrow["AccessKeyId"], narrow["SecretAccessKey"], narrow["SessionToken"])


def machine_policy(bucket: str, prefix: str, data_url: str | None) -> dict[str, object]:
    """Use one prefix, but for writing what is the launchers' own; read the data set where it lies elsewhere."""
    below = f"{prefix.strip('/')}/*" if prefix.strip("/") else "*"
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    statements = [_allow(actions, f"{bucket}/{below}"), _allow_listing(bucket, below)]
    statements.append(_deny_writing([f"{bucket}/{below.removesuffix('*')}{name}" for name in LAUNCHERS_OWN]))
    if data_url is not None:
        data_bucket, _, key = data_url.removeprefix("s3://").partition("/")
        wanted = f"{key}*" if key.endswith("/") or not key else key
        statements += [_allow(["s3:GetObject"], f"{data_bucket}/{wanted}"), _allow_listing(data_bucket, wanted)]
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(actions: list[str], path: str) -> dict[str, object]:
    return {"Effect": "Allow", "Action": actions, "Resource": f"arn:aws:s3:::{path}"}


def _deny_writing(paths: list[str]) -> dict[str, object]:
    resources = [f"arn:aws:s3:::{path}" for path in paths]
    return {"Effect": "Deny", "Action": ["s3:PutObject", "s3:DeleteObject"], "Resource": resources}


def _allow_listing(bucket: str, prefix: str) -> dict[str, object]:
    return _allow(["s3:ListBucket"], bucket) | {"Condition": {"StringLike": {"s3:prefix": prefix}}}


def _file(access_key: str, secret_key: str, token: str) -> bytes:
    lines = ["[default]", f"aws_access_key_id = {access_key}", f"aws_secret_access_key = {secret_key}"]
    return "\n".join([*lines, f"aws_session_token = {token}", ""]).encode()
