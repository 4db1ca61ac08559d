"""What the sandbox writes down: its records, their schema, and every file name in its state folder.

Standard library only. Knows nothing of how the sandbox works.
"""

from __future__ import annotations

import hashlib
import json
import os
import types
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import TypeVar, Union, get_args, get_origin, get_type_hints

from launcher.errors import BadInput

SCHEMA = 1
BUCKET = "gpucost-sandbox"
PROFILE = "gpucost-instance"
"""Name of the instance profile and of its role, made at start."""
STOP_ROLE = "gpucost-stop"
"""Name of the role that EventBridge Scheduler ends instances with, made at start."""
REGION = "us-east-1"
REGIONS = ("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1")
SSH_USER = "ubuntu"
CONTROL = "/_sandbox/"
"""Where the daemon takes orders, on the EC2 endpoint."""
CONTROL_HEADER = "X-Sandbox-Token"


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """The times of a sandbox, in seconds, and what it is made of; fixed when it starts."""

    idle_seconds: float = 1800.0
    """Without a live instance and without a request to the EC2 endpoint for this long, the sandbox ends by itself."""
    boot_seconds: float = 0.5
    """How long an instance is at least `pending`."""
    notice_seconds: float = 120.0
    """Between an interruption notice and the end, unless the request says otherwise."""
    shutdown_grace_seconds: float = 1.0
    """Between SIGTERM and SIGKILL for the processes of an instance that is told to end."""
    s3_faults: bool = False
    """Let fault plans reach S3 calls too: these then go through a proxy, which costs some speed."""


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """How to reach a running sandbox. Written to `sandbox.json` (0600) when everything answers."""

    ec2_endpoint: str
    """Also IAM, SSM, STS and Scheduler: one URL."""
    s3_endpoint: str
    region: str
    regions: tuple[str, ...]
    zones: tuple[str, ...]
    """Names of the zones of `region`."""
    access_key: str
    secret_key: str
    credentials_file: str
    """The two keys in AWS shared-credentials form, profile `default`, mode 0600."""
    ssh_port: int
    """Every instance answers SSH on its public address at this port."""
    ssh_user: str
    bucket: str
    instance_profile: str
    pid: int
    control_token: str
    settings: SandboxSettings
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One instance as the sandbox sees it."""

    instance_id: str
    instance_type: str
    region: str
    zone: str
    market: str
    """`spot` or `on-demand`."""
    state: str
    """As the EC2 API says it."""
    address: str | None
    processes: int
    interruption_at: float | None = None
    """Unix seconds of a pending interruption."""


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """A running sandbox and its instances."""

    info: SandboxInfo
    instances: tuple[InstanceStatus, ...]
    runs_as: str
    """The user that the processes of instances run as."""
    reason: str
    """Why that user."""
    started_at: float
    idle_seconds: float
    """How long nobody has asked the EC2 endpoint anything."""
    pending_faults: int


class SandboxPaths:
    """Every file name in the state folder of one home."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.root = self.home / "sandbox"
        self.info = self.root / "sandbox.json"
        self.credentials = self.root / "credentials"
        self.log = self.root / "daemon.log"
        self.settings = self.root / "settings.json"
        self.images = self.root / "images.json"
        self.prices = self.root / "spot-prices.json"
        self.store = self.root / "s3"
        self.kept = self.home / "sandbox-data"
        """The bucket's data between two lives of the sandbox."""
        self.instances = self.root / "instances"

    @property
    def mark(self) -> str:
        """The value that marks every process of this sandbox in its environment, the same for every life of it."""
        return hashlib.sha256(str(self.home.resolve()).encode()).hexdigest()[:16]


Record = TypeVar("Record")


def encode(record: object) -> str:
    """JSON text of one of the records above."""
    return json.dumps(asdict(record), indent=1, sort_keys=True, default=_plain_value)  # type: ignore[call-overload]


def _plain_value(value: object) -> str:
    if isinstance(value, Decimal):  # money: as text, so that nothing is rounded on the way
        return str(value)
    raise TypeError(f"{value!r} has no place in a record")


def decode(text: str, kind: type[Record], origin: str) -> Record:
    """Record from JSON text. Raises BadInput that names `origin` for another schema or a field that does not fit."""
    try:
        raw = json.loads(text)
        if raw.get("schema", SCHEMA) != SCHEMA:
            raise BadInput(
                f"{origin}: schema {raw['schema']!r}, this version reads {SCHEMA}",
                hint="another version of gpucost wrote it: `gpucost sandbox down` clears it away",
            )
        built: Record = _build(kind, raw)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise BadInput(f"{origin}: not readable: {error}", hint="`gpucost sandbox down` clears it away") from error
    return built


def write_text(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace `path` by `text`, whole and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)


def _build(kind: type[Record], raw: dict[str, object]) -> Record:
    hints = get_type_hints(kind)
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(raw) - known)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}")
    return kind(**{name: _convert(hints[name], value) for name, value in raw.items()})


def _convert(hint: object, value: object) -> object:
    if isinstance(value, list):
        inner = get_args(hint)[0]
        return tuple(_convert(inner, item) for item in value)
    if isinstance(value, dict):
        return _build(_plain_type(hint), value)
    return Decimal(str(value)) if hint is Decimal else value


def _plain_type(hint: object) -> type:
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(option for option in get_args(hint) if option is not type(None))
    if not isinstance(hint, type):
        raise TypeError(f"no record is expected here, but {hint}")
    return hint
