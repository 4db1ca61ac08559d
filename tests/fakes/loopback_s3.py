"""A real S3 server on loopback for tests: SeaweedFS, started for one test session and killed at its end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

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
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def running(folder: Path) -> Iterator[LoopbackS3]:
    """Start it in `folder`; SIGKILL is the way to stop it quickly."""
    ports = {name: _free_port() for name in ("s3", "master", "volume", "filer")}
    argv = [weed(), "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-admin.ui=false", "-webdav=false"]
    argv += [f"-{name}.port={port}" for name, port in ports.items()]
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "weed.log").open("wb") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        yield _ready(LoopbackS3(f"http://127.0.0.1:{ports['s3']}"))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _ready(server: LoopbackS3) -> LoopbackS3:
    client = server.client()
    for _ in range(150):
        with suppress(BotoCoreError, ClientError):
            client.create_bucket(Bucket="ready-probe")
            return server
        time.sleep(0.1)
    raise TimeoutError("the S3 server did not become ready in 15 s")


def _free_port() -> int:
    """A port whose companion, 10000 above, is free too: the server uses both."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            if port > 50000:
                continue
            with suppress(OSError):
                other.bind(("127.0.0.1", port + 10000))
                return int(port)
