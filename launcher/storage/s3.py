"""An S3 prefix as an `ObjectStore`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from launcher.providers.aws.account import AwsAccount, Patience
from launcher.providers.aws.errors import code_of
from launcher.providers.interface import RefusedError
from launcher.storage.interface import StorageError, StoredObject

_CREATE_TRIES = 3
_NOT_FOUND = frozenset({"404", "NoSuchKey", "NotFound"})


class S3Store:
    """A bucket and a prefix."""

    def __init__(self, account: AwsAccount, url: str, region: str | None, patience: Patience | None = None) -> None:
        """`url` is `s3://bucket/prefix`. Raises StorageError for one without a bucket, or without credentials."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        if not bucket:
            raise StorageError(f"{url!r} names no bucket", hint="write s3://bucket/prefix")
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        try:
            self._client: Any = account.client("s3", region, patience)
        except RefusedError as error:
            raise StorageError(str(error), hint=error.hint) from error

    @property
    def url(self) -> str:
        """See the port."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def list(self, prefix: str) -> list[StoredObject]:
        """See the port."""
        root = self._key("")
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=root + prefix)
            found = [item for page in pages for item in page.get("Contents", [])]
        except (ClientError, BotoCoreError) as error:
            raise self._explain(error) from error
        return [StoredObject(item["Key"].removeprefix(root), item["Size"]) for item in found]

    def get(self, key: str, span: range | None = None) -> bytes | None:
        """See the port."""
        part = {} if span is None else {"Range": f"bytes={span.start}-{span.stop - 1}"}
        try:
            body: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(key), **part)["Body"].read()
        except ClientError as error:
            if code_of(error) in _NOT_FOUND:
                return None
            raise self._explain(error) from error
        except BotoCoreError as error:
            raise self._explain(error) from error
        return body

    def download(self, key: str, target: Path) -> None:
        """See the port."""
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            self._client.download_file(self._bucket, self._key(key), str(temporary))
            temporary.replace(target)
        except (ClientError, BotoCoreError) as error:
            raise self._explain(error) from error
        finally:
            temporary.unlink(missing_ok=True)

    def upload(self, source: Path, key: str) -> None:
        """See the port."""
        try:
            self._client.upload_file(str(source), self._bucket, self._key(key))
        except (ClientError, BotoCoreError, S3UploadFailedError) as error:
            raise self._explain(error) from error

    def create(self, key: str, content: bytes) -> bool:
        """See the port. S3 answers 412 where there is an object, 409 while another create of it is under way."""
        for _ in range(_CREATE_TRIES):
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._key(key), Body=content, IfNoneMatch="*")
            except ClientError as error:
                code = code_of(error)
                if code in {"PreconditionFailed", "412"}:
                    return False
                if code not in {"ConditionalRequestConflict", "409"}:
                    raise self._explain(error) from error
            except BotoCoreError as error:
                raise self._explain(error) from error
            else:
                return True
        return False

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key

    def _explain(self, error: ClientError | BotoCoreError | S3UploadFailedError) -> StorageError:
        if isinstance(error, NoCredentialsError | PartialCredentialsError):
            hint = "set AWS_PROFILE or aws.profile in the job file, or run `aws configure`"
            return StorageError(f"there are no AWS credentials to reach {self.url}", hint=hint)
        code = code_of(error) if isinstance(error, ClientError) else ""
        if code == "NoSuchBucket":
            return StorageError(f"the bucket {self._bucket!r} does not exist", hint="create it, or correct the URL")
        if code in {"403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"}:
            return StorageError(f"access to {self.url} is denied ({code})", hint="check the credentials and the policy")
        return StorageError(
            f"{self.url} cannot be reached: {error}", hint="check the network and the URL, then try again"
        )
