"""An AWS account whose clients are botocore's own, without a network: each call is checked against what is expected."""

from __future__ import annotations

from functools import cache
from typing import Any

import boto3
from botocore.stub import Stubber

from launcher.providers.aws.account import Patience

REGION = "us-east-1"


@cache
def _session() -> boto3.session.Session:
    return boto3.session.Session(aws_access_key_id="AKIATEST", aws_secret_access_key="secret", region_name=REGION)


class StubbedAccount:
    """Stands for an `AwsAccount`. `expect` lines up answers by service; `done` fails for calls that were not made."""

    def __init__(self, session: boto3.session.Session | None = None) -> None:
        self._session = session or _session()
        self._clients: dict[str, Any] = {}
        self._stubs: dict[str, Stubber] = {}
        self.asked: list[tuple[str, str | None, Patience | None]] = []

    def client(self, service: str, region: str | None, patience: Patience | None = None) -> Any:
        """See `AwsAccount`."""
        self.asked.append((service, region, patience))
        self._stub(service)
        return self._clients[service]

    def session(self, region: str | None) -> boto3.session.Session:
        """See `AwsAccount`."""
        return self._session

    def expect(self, service: str, call: str, answer: dict[str, Any], parameters: dict[str, Any] | None = None) -> None:
        """The next call of this service, its answer, and its exact parameters (None: not looked at)."""
        self._stub(service).add_response(call, answer, parameters)

    def refuse(self, service: str, call: str, code: str, message: str = "said so", status: int = 400) -> None:
        """The next call of this service is answered with an error."""
        self._stub(service).add_client_error(call, code, message, http_status_code=status)

    def done(self) -> None:
        """Everything that was expected has been called."""
        for stub in self._stubs.values():
            stub.assert_no_pending_responses()

    def close(self) -> None:
        """Let go of the connection pools."""
        for client in self._clients.values():
            client.close()

    def _stub(self, service: str) -> Stubber:
        if service not in self._clients:
            self._clients[service] = self._session.client(service)
            self._stubs[service] = Stubber(self._clients[service])
            self._stubs[service].activate()
        return self._stubs[service]
