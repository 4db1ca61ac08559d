"""One API call and one answer as values, and the error bodies of the three AWS protocols. No moto, no sockets."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import cast
from urllib.parse import parse_qsl
from wsgiref.types import WSGIEnvironment

from launcher.sandbox.faults import CallFacts
from launcher.sandbox.state import REGION

_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/aws4_request")
_REST = (
    (
        re.compile(r"/schedules/[^/]+"),
        {"POST": "Create", "GET": "Get", "PUT": "Update", "DELETE": "Delete"},
        "Schedule",
    ),
    (re.compile(r"/schedules"), {"GET": "List"}, "Schedules"),
    (re.compile(r"/schedule-groups/[^/]+"), {"POST": "Create", "GET": "Get", "DELETE": "Delete"}, "ScheduleGroup"),
    (re.compile(r"/schedule-groups"), {"GET": "List"}, "ScheduleGroups"),
)
"""The REST calls that have names here: path, verb of each method, noun."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back over HTTP."""

    status: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.status.startswith("200")


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `form` holds the parameters of a query call, `body` the raw text of the others."""

    action: str
    region: str
    service: str
    form: dict[str, str]
    body: bytes
    environ: WSGIEnvironment

    def subnet(self) -> str | None:
        """The subnet that the request names."""
        return self.form.get("SubnetId") or self.form.get("NetworkInterface.1.SubnetId")

    def facts(self, zone: str | None) -> CallFacts:
        """What fault plans look at."""
        market = None
        if self.action == "RunInstances":
            market = "spot" if self.form.get("InstanceMarketOptions.MarketType") == "spot" else "on-demand"
        return CallFacts(self.action, self.form.get("InstanceType"), zone, market)


def read_call(environ: WSGIEnvironment) -> Call:
    """Parse a request; its body stays readable for whoever answers it."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = cast(Iterable[bytes], environ["wsgi.input"]).read(length) if length else b""  # type: ignore[attr-defined]
    environ["wsgi.input"] = io.BytesIO(body)
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    region, service = (scope[1], scope[2]) if scope else (REGION, "")
    form: dict[str, str] = {}
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if "x-www-form-urlencoded" in environ.get("CONTENT_TYPE", ""):
        form = dict(parse_qsl(body.decode(), keep_blank_values=True))
        action = form.get("Action", "")
    elif target:
        action = target.rpartition(".")[2]
    else:
        action = _rest_action(environ["REQUEST_METHOD"], environ["PATH_INFO"])
    return Call(action, region, service, form, body, environ)


def _rest_action(method: str, path: str) -> str:
    """The API's name of a REST call, where it is known; else its method and path."""
    for pattern, verbs, noun in _REST:
        if method in verbs and pattern.fullmatch(path):
            return verbs[method] + noun
    return f"{method} {path}"


def error(call: Call, code: str, status: int, message: str) -> Answer:
    """An error in the protocol of the call."""
    if call.form:
        body, kind = _query_error(call.service, code, message), "text/xml"
    elif call.environ.get("HTTP_X_AMZ_TARGET"):
        body, kind = json.dumps({"__type": code, "message": message}), "application/x-amz-json-1.1"
    else:
        body, kind = json.dumps({"Message": message}), "application/json"
    return answer(body.encode(), kind, status=status, extra=(("x-amzn-ErrorType", code),))


def answer(body: bytes, kind: str, *, status: int = 200, extra: tuple[tuple[str, str], ...] = ()) -> Answer:
    """An answer with its length."""
    reason = "OK" if status == 200 else "Error"
    return Answer(f"{status} {reason}", (("Content-Type", kind), ("Content-Length", str(len(body))), *extra), body)


def _query_error(service: str, code: str, message: str) -> str:
    fault = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if service == "ec2":
        return f"<Response><Errors><Error>{fault}</Error></Errors><RequestID>sandbox</RequestID></Response>"
    return f"<ErrorResponse><Error>{fault}</Error><RequestId>sandbox</RequestId></ErrorResponse>"
