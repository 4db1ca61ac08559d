"""The HTTP face of the cloud: moto, with faults before it and what moto lacks around it.

Owns the way of one request: fault plans, RunInstances tokens, console output, image parameters, schedules, else moto.
Everything that reads or changes EC2's records runs under the one lock that the hypervisor's tick takes too.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from launcher.sandbox import calls, images, state
from launcher.sandbox.calls import Answer, Call
from launcher.sandbox.ec2 import Ec2
from launcher.sandbox.faults import RESET, FaultPlan, Faults
from launcher.sandbox.hypervisor import Hypervisor, Refused
from launcher.sandbox.scheduler import Scheduler
from launcher.sandbox.tokens import ParameterMismatch, Scope, Tokens

_OUTPUT = re.compile(rb"<output>.*?</output>|<output\s*/>", re.DOTALL)


class Cloud:
    """The WSGI application."""

    def __init__(
        self,
        moto: WSGIApplication,
        control: Callable[[WSGIEnvironment], Answer],
        records: Ec2,
        hypervisor: Hypervisor,
        lock: threading.RLock,
    ) -> None:
        self._moto = moto
        self._control = control
        self._records = records
        self._hypervisor = hypervisor
        self._lock = lock
        self._tokens: Tokens[Answer] = Tokens()
        self.scheduler = Scheduler(self._ask_moto, time.time)
        """The stops that the cloud holds; the daemon's tick lets them fire."""
        self._special: dict[str, Callable[[Call], Answer]] = {
            **self.scheduler.calls,
            "RunInstances": self._run_instances,
            "GetConsoleOutput": self._console_output,
            "GetParameter": self._parameters,
            "GetParameters": self._parameters,
            "GetParametersByPath": self._parameters,
        }
        self.faults = Faults()
        self.asked_at = time.monotonic()
        """When a client last asked something, on the monotonic clock."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if environ["PATH_INFO"].startswith(state.CONTROL):
            reply = self._control(environ)
        else:
            self.asked_at = time.monotonic()
            reply = self._answer(calls.read_call(environ))
        start_response(reply.status, list(reply.headers))
        return [reply.body]

    def _answer(self, call: Call) -> Answer:
        plan = self.faults.take(call.facts(self._zone(call)))
        if plan is None:
            return self._perform(call)
        if plan.delay_seconds:
            time.sleep(plan.delay_seconds)
        if plan.code is None:
            return self._perform(call)
        return self._fail(call, plan)

    def _fail(self, call: Call, plan: FaultPlan) -> Answer:
        if plan.after:
            self._perform(call)
        if plan.code == RESET:
            _reset(call.environ)
        return calls.error(call, plan.code or "InternalError", plan.status, plan.message)

    def _perform(self, call: Call) -> Answer:
        with self._lock:
            special = self._special.get(call.action)
            return special(call) if special is not None else self._ask_moto(call)

    def _ask_moto(self, call: Call) -> Answer:
        head: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], *_: object) -> Callable[[bytes], object]:
            head.append((status, headers))
            return lambda _: None

        body = b"".join(self._moto(call.environ, start))
        return Answer(head[0][0], tuple(head[0][1]), body)

    def _zone(self, call: Call) -> str | None:
        """The zone that a request names, itself or through a subnet."""
        subnet = call.subnet()
        if subnet is not None:
            with self._lock:
                return self._records.subnet_zone(call.region, subnet)
        return call.form.get("Placement.AvailabilityZone") or call.form.get("AvailabilityZone")

    def _run_instances(self, call: Call) -> Answer:
        token = call.form.get("ClientToken")
        if not token or call.form.get("DryRun") == "true":
            return self._launch(call)
        scope = Scope(call.region, self._zone(call))
        try:
            known = self._tokens.recall(token, scope, call.form)
        except ParameterMismatch:
            return calls.error(
                call,
                "IdempotentParameterMismatch",
                400,
                "The request uses the same client token as a previous, but non-identical request.",
            )
        if known is not None:
            return known
        reply = self._launch(call)
        if reply.ok:
            self._tokens.remember(token, scope, call.form, reply)
        return reply

    def _launch(self, call: Call) -> Answer:
        try:
            return self._ask_moto(call)
        except Refused as error:
            return calls.error(call, "InsufficientAddressCapacity", 500, str(error))

    def _console_output(self, call: Call) -> Answer:
        reply = self._ask_moto(call)
        if not reply.ok:
            return reply
        text = base64.b64encode(self._hypervisor.console(call.form.get("InstanceId", "")))
        body = _OUTPUT.sub(b"<output>" + text + b"</output>", reply.body)
        headers = tuple((name, value) for name, value in reply.headers if name.lower() != "content-length")
        return Answer(reply.status, (*headers, ("Content-Length", str(len(body)))), body)

    def _parameters(self, call: Call) -> Answer:
        asked = json.loads(call.body or b"{}")
        names = asked.get("Names") or [asked.get("Name") or asked.get("Path") or ""]
        if not any(name.startswith(images.PARAMETERS.rstrip("/")) for name in names):
            return self._ask_moto(call)
        if call.action == "GetParametersByPath":
            found = [_parameter(image.parameter, image.image_id, call.region) for image in images.under(names[0])]
            return _json({"Parameters": found})
        values = {name: images.image_id(name) for name in names}
        good = [_parameter(name, value, call.region) for name, value in values.items() if value is not None]
        if call.action == "GetParameters":
            return _json({"Parameters": good, "InvalidParameters": [name for name in names if values[name] is None]})
        if not good:
            return calls.error(call, "ParameterNotFound", 400, f"Parameter {names[0]} not found.")
        return _json({"Parameter": good[0]})


def _parameter(name: str, value: str, region: str) -> dict[str, object]:
    return {
        "Name": name,
        "Type": "String",
        "Value": value,
        "Version": 1,
        "LastModifiedDate": datetime(2026, 10, 16, tzinfo=UTC).timestamp(),
        "ARN": f"arn:aws:ssm:{region}::parameter{name}",
        "DataType": "aws:ec2:image",
    }


def _json(body: dict[str, object]) -> Answer:
    return calls.answer(json.dumps(body).encode(), "application/x-amz-json-1.1")


def _reset(environ: WSGIEnvironment) -> None:
    """Drop the connection; the server's close then resets it. Raises ConnectionAbortedError: nothing is answered."""
    connection: socket.socket = environ["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError("reset by a fault plan")
