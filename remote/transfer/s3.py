"""S3 and what speaks its protocol, behind `RemoteStore`. The one module of the machine that knows boto3.

botocore's standard retries are all the retries there are in here; the callers come again in their own time.
"""

from __future__ import annotations

import configparser
import ipaddress
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import boto3.exceptions
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, PartialCredentialsError

from remote.protocol import StorageSpec
from remote.transfer.store import READ_BYTES, Progress, StoredObject, StoreError, StoreMissing, StoreRefused, ignore

THREADS = 8
PART_BYTES = 16 * 2**20
"""Memory: threads x part. 10,000 parts of it are the largest object: 160 GB."""
MISSING = {"404", "NoSuchKey", "NotFound"}
REFUSED = {
    "403",
    "AccessDenied",
    "AllAccessDisabled",
    "InvalidAccessKeyId",
    "InvalidBucketName",
    "NoSuchBucket",
    "PermanentRedirect",
    "SignatureDoesNotMatch",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a storage may take to answer, and how often one call is tried."""

    connect_seconds: float
    read_seconds: float
    attempts: int


PATIENT = Patience(connect_seconds=10, read_seconds=30, attempts=3)
"""Two minutes at most, so that a storage that does not answer is reported before the agent takes it for a hang."""
BRIEF = Patience(connect_seconds=5, read_seconds=10, attempts=2)
"""For what is worth nothing when it comes late: half a minute at most, and no queue of calls behind a dead storage."""


class S3Store:
    """One prefix of one bucket."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:  # noqa: ANN401 - boto3 clients have no static type
        self._client = client
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._config = TransferConfig(
            multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=THREADS
        )

    @property
    def url(self) -> str:
        """See `RemoteStore`."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def put(self, source: Path | bytes, key: str, progress: Progress = ignore) -> None:
        """See `RemoteStore`."""
        with self._errors(key):
            if isinstance(source, bytes):
                self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=source)
                progress(len(source))
                return
            self._client.upload_file(
                str(source), self._bucket, self._prefix + key, Callback=progress, Config=self._config
            )

    def get(self, key: str, target: Path, progress: Progress = ignore) -> None:
        """See `RemoteStore`: s3transfer writes to a temporary name and renames last."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._errors(key):
            self._client.download_file(
                self._bucket, self._prefix + key, str(target), Callback=progress, Config=self._config
            )

    def read(self, key: str) -> bytes:
        """See `RemoteStore`."""
        with self._errors(key):
            body = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)["Body"]
            with body:
                return bytes(body.read(READ_BYTES))

    def list(self, prefix: str) -> list[StoredObject]:
        """See `RemoteStore`."""
        with self._errors(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            found = [item for page in pages for item in page.get("Contents", [])]
        return [StoredObject(item["Key"][len(self._prefix) :], item["Size"]) for item in found]

    def delete(self, key: str) -> None:
        """See `RemoteStore`."""
        with self._errors(key):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Translate what boto3 raises. Its messages name operation, code and host, never a secret or a signature."""
        url = f"s3://{self._bucket}/{self._prefix}{key}"
        try:
            yield
        except ClientError as error:
            raise _translated(error, url) from error
        except (boto3.exceptions.S3UploadFailedError, boto3.exceptions.RetriesExceededError) as error:
            cause = error.__context__
            raise (
                _translated(cause, url) if isinstance(cause, ClientError) else StoreError(f"{url}: {error}")
            ) from error
        except PartialCredentialsError as error:
            raise StoreRefused(f"{url}: {error}") from error
        except BotoCoreError as error:  # no credentials, too: those of a role may come late on a new machine
            raise StoreError(f"{url}: {error}") from error


def _translated(error: ClientError, url: str) -> StoreError:
    told = error.response.get("Error", {})
    code, message = str(told.get("Code", "")), str(told.get("Message", ""))
    kind = StoreMissing if code in MISSING else StoreRefused if code in REFUSED else StoreError
    return kind(f"{url}: {code}: {message}")


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket and a prefix without slashes at its ends."""

    bucket: str
    prefix: str


def place(url: str) -> Place:
    """Of an `s3://bucket/prefix` URL, in which `?` and `#` are characters like others. Raises StoreRefused."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise StoreRefused(f"{url}: expected s3://BUCKET/PREFIX")
    return Place(bucket, prefix.strip("/"))


def open_store(spec: StorageSpec, url: str, credentials: Path, patience: Patience = PATIENT) -> S3Store:
    """The store at `url`, reached as `spec` says. Raises StoreRefused: address or credentials file unusable."""
    where = place(url)
    config = Config(
        retries={"mode": "standard", "total_max_attempts": patience.attempts},
        connect_timeout=patience.connect_seconds,
        read_timeout=patience.read_seconds,
        max_pool_connections=THREADS + 2,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if _is_address(spec.endpoint_url) else "auto"},
    )
    keys = _keys(credentials) if spec.credentials == "file" else {}
    session = boto3.Session(region_name=spec.region, **keys)
    client = session.client("s3", endpoint_url=_checked(spec.endpoint_url), config=config)
    return S3Store(client, where.bucket, where.prefix)


def _checked(endpoint_url: str | None) -> str | None:
    """Plain http only where nothing leaves the machine or its private network."""
    if endpoint_url is not None and urlsplit(endpoint_url).scheme != "https" and not _is_private(endpoint_url):
        raise StoreRefused(f"{endpoint_url}: a public endpoint must be reached by https")
    return endpoint_url


def _is_private(endpoint_url: str) -> bool:
    host = urlsplit(endpoint_url).hostname or ""
    return host == "localhost" or (_is_address(endpoint_url) and ipaddress.ip_address(host).is_private)


def _is_address(endpoint_url: str | None) -> bool:
    """Whether the host is a bare address, below which no bucket can have a name of its own."""
    host = urlsplit(endpoint_url or "").hostname or ""
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _keys(path: Path) -> dict[str, str]:
    """Keys from a shared-credentials file that nobody else can read. Raises StoreRefused; never shows what is in it."""
    try:
        state = path.stat()
    except OSError as error:
        raise StoreRefused(f"{path}: {error.strerror}") from error
    if state.st_uid != os.getuid() or stat.S_IMODE(state.st_mode) & 0o077:
        raise StoreRefused(f"{path}: must be owned by this user with mode 0600, has {stat.S_IMODE(state.st_mode):04o}")
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
        section = parser["default"]
        keys = {name: section[name] for name in ("aws_access_key_id", "aws_secret_access_key")}
    except (OSError, ValueError, KeyError, configparser.Error):
        raise StoreRefused(f"{path}: no [default] section with a key id and a secret key") from None
    if section.get("aws_session_token"):
        keys["aws_session_token"] = section["aws_session_token"]
    return keys
