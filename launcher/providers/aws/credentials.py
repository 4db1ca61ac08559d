"""Keys for the machine, as little as will do: the object-storage prefix of the run and nothing else.

Long-term keys are exchanged for a federation token whose policy names the prefix (STS GetFederationToken, at most
36 hours); temporary keys cannot be narrowed without a role to assume, and are handed on as they are.
"""

from __future__ import annotations

import json

from botocore.exceptions import BotoCoreError, ClientError

from launcher.providers.aws.account import AwsAccount
from launcher.providers.aws.errors import translate
from launcher.providers.interface import RefusedError

FEDERATION_SECONDS = 36 * 3600


def machine_credentials(account: AwsAccount, bucket: str, prefix: str, region: str, seconds: float) -> bytes:
    """A shared-credentials file for the machine. Raises RefusedError."""
    found = account.session(region).get_credentials()
    if found is None:
        raise RefusedError("there are no usable AWS credentials", hint="run `aws configure` or set AWS_PROFILE")
    keys = found.get_frozen_credentials()
    if keys.token:
        return _file(str(keys.access_key), str(keys.secret_key), str(keys.token))
    duration = int(min(max(seconds, 900), FEDERATION_SECONDS))
    try:
        answer = account.client("sts", region).get_federation_token(
            Name="gpucost", Policy=json.dumps(prefix_policy(bucket, prefix)), DurationSeconds=duration
        )
    except (ClientError, BotoCoreError) as error:
        raise translate(error) from error
    narrow = answer["Credentials"]
    return _file(narrow["AccessKeyId"], narrow["SecretAccessKey"], narrow["SessionToken"])


def prefix_policy(bucket: str, prefix: str) -> dict[str, object]:
    """Read, write and delete below one prefix, and list it."""
    below = f"{prefix.strip('/')}/*" if prefix.strip("/") else "*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
                "Resource": f"arn:aws:s3:::{bucket}/{below}",
            },
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": f"arn:aws:s3:::{bucket}",
                "Condition": {"StringLike": {"s3:prefix": below}},
            },
        ],
    }


def _file(access_key: str, secret_key: str, token: str) -> bytes:
    lines = ["[default]", f"aws_access_key_id = {access_key}", f"aws_secret_access_key = {secret_key}"]
    return "\n".join([*lines, f"aws_session_token = {token}", ""]).encode()
