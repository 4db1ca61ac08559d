"""Clients for one AWS account: sessions, endpoints, retries. Loaded only when AWS, or the embedded cloud, is used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from launcher.providers.aws.errors import translate


@dataclass(frozen=True, slots=True)
class AwsAccount:
    """How to reach an account; keys are given only for the embedded cloud, else the SDK's own chain finds them."""

    profile: str | None = None
    endpoint_url: str | None = None
    s3_endpoint_url: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)

    def client(self, service: str, region: str | None) -> Any:  # noqa: ANN401 - boto3 makes its clients at run time
        """A client with bounded retries and time-outs. Raises RefusedError for credentials that do not work."""
        endpoint = self.s3_endpoint_url if service == "s3" else self.endpoint_url
        try:
            return self.session(region).client(service, endpoint_url=endpoint, config=_config(service))
        except BotoCoreError as error:
            raise translate(error) from error

    def session(self, region: str | None) -> boto3.session.Session:
        """A session of this account."""
        try:
            return boto3.session.Session(
                aws_access_key_id=self.access_key,
                aws_secret_access_key=self.secret_key,
                profile_name=self.profile,
                region_name=region,
            )
        except BotoCoreError as error:
            raise translate(error) from error


def _config(service: str) -> Config:
    # RunInstances must not be repeated behind our back for long: the walk over zones and types is ours.
    attempts = 5 if service == "s3" else 2
    return Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=5,
        read_timeout=60,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
