"""The S3 of the sandbox: one SeaweedFS process on loopback, its bucket, and its temporary credentials.

Owns every fact about `weed`. The instance role's credentials come from its own STS, so that they carry a session
token and an expiry as on a real machine, and signature, token and expiry are all checked.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from launcher.errors import ProviderError
from launcher.sandbox import processes, state
from launcher.sandbox.weed import DATA, SERVICES, free_ports, lay_aside, weed_program

READY_SECONDS = 30.0
SESSION_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class RoleCredentials:
    """Temporary credentials of the instance role."""

    access_key: str
    secret_key: str
    token: str
    expires: datetime


class ObjectStore:
    """One running SeaweedFS."""

    def __init__(
        self, folder: Path, kept: Path, access_key: str, secret_key: str, mark: str, host: str = "127.0.0.1"
    ) -> None:
        """`kept` is where the data of an earlier life may lie, and where `stop` leaves it; `host` is the address."""
        self._folder = folder
        self._kept = kept
        self._access_key = access_key
        self._secret_key = secret_key
        self._mark = mark
        self._host = host
        self._ports = free_ports()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """URL of the S3 API."""
        return f"http://{self._host}:{self._ports.s3}"

    def start(self) -> None:
        """Start the process; `wait_ready` tells when it answers. To be called on the thread that lives longest."""
        program = weed_program()
        if program is None:
            raise ProviderError("the object store's program `weed` is not installed")
        self._folder.mkdir(parents=True)
        if self._kept.is_dir():
            self._kept.replace(self._folder / DATA)
        else:
            (self._folder / DATA).mkdir()
        state.write_text(self._folder / "ports.json", state.encode(self._ports))
        state.write_text(self._folder / "iam.json", json.dumps(_iam_config()))
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder),
            "AWS_ACCESS_KEY_ID": self._access_key,
            "AWS_SECRET_ACCESS_KEY": self._secret_key,
            processes.MARK: f"{self._mark}/s3",
        }
        with (self._folder / "weed.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, *self._arguments()],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=processes.die_with_parent,  # noqa: PLW1509 - no other thread runs yet
            )

    def _arguments(self) -> list[str]:
        ports = self._ports
        flags = {
            "dir": DATA,
            "ip": self._host,
            "ip.bind": self._host,
            "admin.ui": "false",
            "webdav": "false",
            "master.telemetry": "false",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.iam.config": "iam.json",
            # Relative, so that the length of the home's path does not matter to a socket's name.
            "s3.localSocket": "s3.sock",
            "filer.localSocket": "filer.sock",
        }
        for service in SERVICES:
            flags[f"{service}.port"] = getattr(ports, service)
            flags[f"{service}.port.grpc"] = getattr(ports, f"{service}_grpc")
        return ["mini", *(f"-{name}={value}" for name, value in flags.items())]

    def wait_ready(self, bucket: str) -> None:
        """Make the bucket as soon as the server answers. Raises ProviderError with the end of its log."""
        client = self._client("s3")
        limit = time.monotonic() + READY_SECONDS
        while True:
            try:
                _make_bucket(client, bucket)
            except (BotoCoreError, ClientError) as error:
                if not self.running() or time.monotonic() > limit:
                    raise ProviderError(
                        f"the object store does not answer: {error}", hint=f"its log ends with: {self._log_tail()}"
                    ) from error
                time.sleep(0.05)
            else:
                return

    def credentials(self, session: str) -> RoleCredentials:
        """New temporary credentials of the instance role; `session` is the instance's id. Raises botocore's errors."""
        answer = self._client("sts").assume_role(
            RoleArn=f"arn:aws:iam::role/{state.PROFILE}", RoleSessionName=session, DurationSeconds=SESSION_SECONDS
        )["Credentials"]
        return RoleCredentials(
            answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"], answer["Expiration"]
        )

    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """SIGKILL: its orderly end takes half a minute once it holds data. What is written survives, laid aside."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        lay_aside(self._folder, self._kept)

    def _log_tail(self) -> str:
        log = self._folder / "weed.log"
        return log.read_text(encoding="utf-8", errors="replace")[-600:].strip() if log.exists() else "(no log)"

    def _client(self, service: str):  # type: ignore[no-untyped-def] # noqa: ANN202 - boto3 makes its classes at run time
        return boto3.session.Session().client(
            service,
            endpoint_url=self.endpoint,
            region_name=state.REGION,
            aws_access_key_id=self._access_key,
            aws_secret_access_key=self._secret_key,
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=10),
        )


def _make_bucket(client, bucket: str) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - a boto3 client
    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in {"BucketAlreadyExists", "BucketAlreadyOwnedByYou"}:
            raise


def _iam_config() -> dict[str, object]:
    """One role with all rights on all buckets of this sandbox, for whoever holds the two static keys."""
    allow = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]}
    return {
        "sts": {
            "tokenDuration": "1h",
            "maxSessionLength": "12h",
            "issuer": "gpucost-sandbox",
            "signingKey": base64.b64encode(secrets.token_bytes(32)).decode(),
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "policies": [{"name": "storage", "document": {"Version": "2012-10-17", "Statement": [allow]}}],
        "roles": [
            {
                "roleName": state.PROFILE,
                "roleArn": f"arn:aws:iam::role/{state.PROFILE}",
                "attachedPolicies": ["storage"],
                "trustPolicy": {"Version": "2012-10-17", "Statement": [trust]},
            }
        ],
    }
