"""AWS's metadata service (IMDSv2) on loopback: the token dance, and notices that a test sets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

NAMES = {"spot/instance-action": "notice", "events/recommendations/rebalance": "rebalance"}


class MetadataService(ThreadingHTTPServer):
    """Set `notice` and `rebalance`; `forget_tokens` makes every token stale."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.base = f"http://127.0.0.1:{self.server_port}"
        self.notice: dict[str, str] | None = None
        self.rebalance: dict[str, str] | None = None
        self.tokens: list[str] = []
        self.asked: list[str] = []

    def forget_tokens(self) -> None:
        self.tokens.clear()


@contextmanager
def metadata_service() -> Iterator[MetadataService]:
    """A running service."""
    server = MetadataService()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: MetadataService

    def log_message(self, *args: object) -> None:
        """Nothing."""

    def do_PUT(self) -> None:
        self.server.asked.append(self.path)
        if self.path != "/latest/api/token" or not self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
            self._answer(400, "")
            return
        self.server.tokens.append(f"token-{len(self.server.asked)}")
        self._answer(200, self.server.tokens[-1])

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        name = NAMES.get(self.path.removeprefix("/latest/meta-data/"))
        found = getattr(self.server, name) if name else None
        if self.headers.get("X-aws-ec2-metadata-token") not in self.server.tokens:
            self._answer(401, "")
        elif found is None:
            self._answer(404, "")
        else:
            self._answer(200, json.dumps(found))

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
