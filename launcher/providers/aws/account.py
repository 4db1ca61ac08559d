"""Clients for one AWS account: sessions, endpoints, retries. Loaded only when AWS, or the embedded cloud, is used."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from launcher.providers.aws.errors import translate


@dataclass(frozen=True, slots=True)
class Patience:
    """How often the SDK tries one call, and how long it waits each time."""

    attempts: int
    connect_seconds: float
    read_seconds: float


ASKING = Patience(attempts=2, connect_seconds=3, read_seconds=7)
"""At most about 20 s: whoever asks has a loop of its own, and something else to look at."""
LAUNCHING = Patience(attempts=2, connect_seconds=3, read_seconds=27)
"""At most about a minute: RunInstances can take half of one. Not more: the walk over zones and types is ours."""
STORING = Patience(attempts=5, connect_seconds=5, read_seconds=60)
"""Objects: the size of an answer is not known."""
HASTE = Patience(attempts=2, connect_seconds=2, read_seconds=5)
"""Small objects that nobody waits for, such as a copy of the journal."""

_CONNECTIONS = 32
"""Kept open by a client that many threads use: a tar in a bucket is read at so many places at once."""


@dataclass(frozen=True, slots=True)
class AwsAccount:
    """How to reach an account; keys are given only for the embedded cloud, else the SDK's own chain finds them."""

    profile: str | None = None
    endpoint_url: str | None = None
    s3_endpoint_url: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    _shared: list[boto3.session.Session] = field(default_factory=list, init=False, repr=False, compare=False)
    _making: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def client(self, service: str, region: str | None, patience: Patience | None = None) -> Any:  # noqa: ANN401 - boto3 makes its clients at run time
        """A client with bounded retries and time-outs. Raises RefusedError for credentials that do not work."""
        objects = service == "s3"
        endpoint = self.s3_endpoint_url if objects else self.endpoint_url
        config = _config(patience or (STORING if objects else ASKING))
        try:
            with self._making:  # clients may be used by several threads at once, but not made by them
                return self._one_session().client(service, region_name=region, endpoint_url=endpoint, config=config)
        except BotoCoreError as error:
            raise translate(error) from error

    def _one_session(self) -> boto3.session.Session:
        """The same for all clients: it reads each service's model once, and asks for a one-time password once."""
        if not self._shared:
            self._shared.append(self.session(None))
        return self._shared[0]

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


class Clients:
    """The clients of one account, each made when it is first asked for, and kept."""

    def __init__(self, account: AwsAccount) -> None:
        self._account = account
        self._made: dict[tuple[str, str, Patience], Any] = {}

    def get(self, service: str, region: str, patience: Patience = ASKING) -> Any:  # noqa: ANN401 - a boto3 client
        """The client of a service in a region. Raises RefusedError for credentials that do not work."""
        key = (service, region, patience)
        if key not in self._made:
            self._made[key] = self._account.client(service, region, patience)
        return self._made[key]

    def close(self) -> None:
        """Let go of their connections."""
        for client in self._made.values():
            client.close()


def _config(patience: Patience) -> Config:
    return Config(
        retries={"mode": "standard", "total_max_attempts": patience.attempts},
        connect_timeout=patience.connect_seconds,
        read_timeout=patience.read_seconds,
        max_pool_connections=_CONNECTIONS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
