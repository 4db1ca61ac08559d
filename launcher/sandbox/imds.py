"""The metadata service of one instance: IMDSv2 only, on the instance's own address and a port of its own.

Owns the paths and their answers. What there is to say comes as values from the hypervisor.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from launcher.sandbox.objectstore import RoleCredentials

_TOKEN = "X-aws-ec2-metadata-token"  # noqa: S105 - the name of a header
_TOKEN_TTL = "X-aws-ec2-metadata-token-ttl-seconds"  # noqa: S105
_LONGEST_TTL = 21600
_FRESH_SECONDS = 1800
"""Credentials with less life than this are replaced when they are asked for."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What never changes in the life of an instance."""

    instance_id: str
    instance_type: str
    image_id: str
    region: str
    zone: str
    account: str
    address: str
    private_address: str
    public_key: str
    role: str | None
    user_data: bytes


class Metadata:
    """The answers of one instance's metadata service."""

    def __init__(self, identity: Identity, credentials: Callable[[str], RoleCredentials]) -> None:
        self._identity = identity
        self._mint = credentials
        self._minted: RoleCredentials | None = None
        self._lock = threading.Lock()
        self._tokens: dict[str, float] = {}
        self._interruption: datetime | None = None
        self._noticed: datetime | None = None

    def notify(self, when: datetime) -> None:
        """From now on the service says that the instance will be terminated at `when`."""
        self._noticed = datetime.now(UTC)
        self._interruption = when

    def token(self, ttl: str | None) -> str | None:
        """A session token for so many seconds; None for a time that is no number from 1 to 21600."""
        if ttl is None or not ttl.isdigit() or not 1 <= int(ttl) <= _LONGEST_TTL:
            return None
        token = secrets.token_urlsafe(40)
        self._tokens[token] = time.monotonic() + int(ttl)
        return token

    def knows(self, token: str | None) -> bool:
        """Whether this token was given out and is still good."""
        return token is not None and self._tokens.get(token, 0.0) > time.monotonic()

    def get(self, path: str) -> bytes | None:
        """The document at `path` (without `/latest`), or None."""
        path = path.strip("/")
        if path == "user-data":
            return self._identity.user_data or None
        if path == "dynamic/instance-identity/document":
            return self._document()
        if not path.startswith("meta-data"):
            return None
        answer = self._meta_data(path.removeprefix("meta-data").strip("/"))
        return None if answer is None else answer.encode()

    def _meta_data(self, path: str) -> str | None:
        me = self._identity
        fixed = {
            "ami-id": me.image_id,
            "instance-id": me.instance_id,
            "instance-type": me.instance_type,
            "local-ipv4": me.private_address,
            "public-ipv4": me.address,
            "placement/availability-zone": me.zone,
            "placement/region": me.region,
            "public-keys/0/openssh-key": me.public_key or None,
            "iam/security-credentials": me.role,
        }
        if path in fixed:
            return fixed[path]
        if self._interruption is not None and self._noticed is not None:
            changing = {
                "spot/instance-action": json.dumps({"action": "terminate", "time": _stamp(self._interruption)}),
                "spot/termination-time": _stamp(self._interruption),
                "events/recommendations/rebalance": json.dumps({"noticeTime": _stamp(self._noticed)}),
            }
            if path in changing:
                return changing[path]
        if me.role is not None and path == f"iam/security-credentials/{me.role}":
            return self._credentials()
        return None

    def _credentials(self) -> str:
        with self._lock:
            now = datetime.now(UTC)
            if self._minted is None or (self._minted.expires - now).total_seconds() < _FRESH_SECONDS:
                self._minted = self._mint(self._identity.instance_id)
            minted = self._minted
        return json.dumps(
            {
                "Code": "Success",
                "LastUpdated": _stamp(now),
                "Type": "AWS-HMAC",
                "AccessKeyId": minted.access_key,
                "SecretAccessKey": minted.secret_key,
                "Token": minted.token,
                "Expiration": _stamp(minted.expires.astimezone(UTC)),
            }
        )

    def _document(self) -> bytes:
        me = self._identity
        return json.dumps(
            {
                "accountId": me.account,
                "architecture": "x86_64",
                "availabilityZone": me.zone,
                "imageId": me.image_id,
                "instanceId": me.instance_id,
                "instanceType": me.instance_type,
                "privateIp": me.private_address,
                "region": me.region,
                "version": "2017-09-30",
            }
        ).encode()


class MetadataServer:
    """Serves one `Metadata` on an address until it is closed; on a free port unless one is named."""

    def __init__(self, address: str, metadata: Metadata, port: int = 0) -> None:
        handler = type("Handler", (_Handler,), {"metadata": metadata})
        self._server = ThreadingHTTPServer((address, port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    @property
    def base(self) -> str:
        """The base URL, as `AWS_EC2_METADATA_SERVICE_ENDPOINT` wants it."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        """Stop answering and give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    metadata: Metadata
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536
    timeout = 10

    def do_PUT(self) -> None:
        ttl = self.headers.get(_TOKEN_TTL)
        token = self.metadata.token(ttl) if self.path == "/latest/api/token" else None
        if token is None or ttl is None:
            self._answer(HTTPStatus.BAD_REQUEST, b"")
            return
        self._answer(HTTPStatus.OK, token.encode(), ttl=ttl)

    def do_GET(self) -> None:
        if not self.metadata.knows(self.headers.get(_TOKEN)):
            self._answer(HTTPStatus.UNAUTHORIZED, b"")
            return
        path = self.path.partition("?")[0]
        body = self.metadata.get(path.removeprefix("/latest")) if path.startswith("/latest/") else None
        if body is None:
            self._answer(HTTPStatus.NOT_FOUND, b"")
        else:
            self._answer(HTTPStatus.OK, body)

    def _answer(self, status: HTTPStatus, body: bytes, *, ttl: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        if ttl is not None:
            self.send_header(_TOKEN_TTL, ttl)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Silence: the agent asks every few seconds."""


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
