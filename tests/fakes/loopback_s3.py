"""A real S3 server on loopback for tests: SeaweedFS, started for one test session and killed at its end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.config import Config

from launcher.sandbox.objectstore import ObjectStore
from launcher.sandbox.weed import weed_program

KEY, SECRET, REGION = "AKIATEST", "secretkey", "us-east-1"


@dataclass(frozen=True)
class LoopbackS3:
    """A running server and its one key pair."""

    endpoint_url: str

    def client(self):
        """A boto3 client of it."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 1}),
        )


def weed() -> str | None:
    """The server's program, or None."""
    return weed_program()


@contextmanager
def running(folder: Path) -> Iterator[LoopbackS3]:
    """Start the embedded cloud's own object store in `folder`, alone; ended, with its data, when the block ends."""
    store = ObjectStore(folder / "s3", folder / "kept", KEY, SECRET, f"tests/{folder}")
    folder.mkdir(parents=True, exist_ok=True)
    store.start()
    try:
        store.wait_ready("ready-probe")
        yield LoopbackS3(store.endpoint)
    finally:
        store.stop()
        shutil.rmtree(folder / "kept", ignore_errors=True)
