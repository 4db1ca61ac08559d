"""A proxy in front of the object store that fault plans reach. It is in the way only where the settings ask for it.

It passes requests on as they came, the Host header too, so that signatures stay good. Bodies are streamed and never
looked at; a request without a Content-Length is refused.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from urllib.parse import parse_qs, unquote, urlsplit

from launcher.sandbox.faults import RESET, CallFacts, FaultPlan, Faults

_BLOCK = 1 << 18
_TIMEOUT_SECONDS = 120
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "expect", "transfer-encoding", "content-length"})
_BY_PARAMETER = (
    ("uploads", {"POST": "CreateMultipartUpload", "GET": "ListMultipartUploads"}),
    ("partNumber", {"PUT": "UploadPart"}),
    ("uploadId", {"POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload", "GET": "ListParts"}),
    ("delete", {"POST": "DeleteObjects"}),
)
_OF_OBJECT = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
_OF_BUCKET = {"GET": "ListObjectsV2", "HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket"}


def read_facts(method: str, url: str) -> CallFacts:
    """The API's name of an S3 request with the bucket in its path, and the key that it is about."""
    parts = urlsplit(url)
    _, _, key = unquote(parts.path).lstrip("/").partition("/")
    parameters = parse_qs(parts.query, keep_blank_values=True)
    for name, operations in _BY_PARAMETER:
        if name in parameters and method in operations:
            return CallFacts(operations[method], key=key or None)
    names = _OF_OBJECT if key else _OF_BUCKET
    return CallFacts(names.get(method, method), key=key or None)


class StoreProxy:
    """Serves on a free port of `host` until it is closed."""

    def __init__(self, host: str, store: str, faults: Faults) -> None:
        """`store` is the URL of the object store."""
        handler = type("Handler", (_Handler,), {"store": urlsplit(store).netloc, "faults": faults})
        self._server = ThreadingHTTPServer((host, 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it answers."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        """Take no more requests and give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class _Reply:
    """The head of an answer of the store, and its body as it comes."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    length: int
    body: Iterator[bytes]


class _Handler(BaseHTTPRequestHandler):
    store: str
    faults: Faults
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        if self.headers.get("Transfer-Encoding"):
            self._refuse(411, "MissingContentLength", "the sandbox's proxy wants a Content-Length")
            return
        plan = self.faults.take(read_facts(self.command, self.path))
        if plan is not None and plan.delay_seconds:
            time.sleep(plan.delay_seconds)
        if plan is None or plan.code is None:
            self._pass_on()
        else:
            self._fail(plan, plan.code)

    def _pass_on(self) -> None:
        connection = http.client.HTTPConnection(self.store, timeout=_TIMEOUT_SECONDS)
        try:
            reply = self._ask(connection)
            self.send_response_only(reply.status, reply.reason)
            for name, value in reply.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(reply.length))
            self.end_headers()
            for block in reply.body:
                self.wfile.write(block)
        finally:
            connection.close()

    def _ask(self, connection: http.client.HTTPConnection) -> _Reply:
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(self._length()))
        connection.endheaders()
        for block in _blocks(self.rfile, self._length()):
            connection.send(block)
        answer = connection.getresponse()
        headers = tuple((name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP)
        if self.command == "HEAD":
            length = int(answer.headers.get("Content-Length") or 0)
            return _Reply(answer.status, answer.reason, headers, length, iter(()))
        if answer.length is None:  # a list, in chunks: small
            whole = answer.read()
            return _Reply(answer.status, answer.reason, headers, len(whole), iter((whole,)))
        return _Reply(answer.status, answer.reason, headers, answer.length, _blocks(answer, answer.length))

    def _fail(self, plan: FaultPlan, code: str) -> None:
        if plan.after:
            connection = http.client.HTTPConnection(self.store, timeout=_TIMEOUT_SECONDS)
            for _ in self._ask(connection).body:
                pass
            connection.close()
        else:
            for _ in _blocks(self.rfile, self._length()):
                pass
        if code == RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
        else:
            self._refuse(plan.status, code, plan.message)

    def _refuse(self, status: int, code: str, message: str) -> None:
        fault = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message><RequestId>sandbox</RequestId>"
        body = b"" if self.command == "HEAD" else f"<Error>{fault}</Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _length(self) -> int:
        return int(self.headers.get("Content-Length") or 0)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Silence: machines upload all the time."""


def _blocks(source: BufferedIOBase, length: int) -> Iterator[bytes]:
    """So many bytes, in parts; less where the other side ends early."""
    while length > 0 and (block := source.read(min(length, _BLOCK))):
        length -= len(block)
        yield block
