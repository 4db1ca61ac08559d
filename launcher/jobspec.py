"""The job file: what a user may ask for, checked where it enters.

Owns the YAML's keys, their defaults and the messages about them. Knows nothing of prices, providers or runs; the data
set itself is looked at elsewhere.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import reprlib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
    model_validator,
)

from launcher import hyperparameters, yamltext
from launcher.errors import BadInput
from launcher.hyperparameters import BadHyperparameter
from launcher.templating import QUIET_MINUTES
from launcher.units import parse_duration, parse_size_gib, parse_usd

Model = Literal["yolov9-t", "yolov9-s", "yolov9-m", "yolov9-c", "yolov9-e"]
Market = Literal["spot", "on-demand", "any"]
LONGEST_MESSAGE = 400
EVERY_KEY = "launcher/README.md lists every key with its values, `gpucost init` writes most of them"
Cloud = Literal["aws", "gcp", "azure", "alibaba", "sandbox"]


MOST_BOOT_SECONDS = (QUIET_MINUTES - 5) * 60
"""A machine must have its agent before its own watch ends it."""


def _slug(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", name):
        raise ValueError(
            f"{name!r} is no name: lower-case letters, digits and hyphens, at most 40, no hyphen at the ends"
        )
    return name


Usd = Annotated[Decimal, BeforeValidator(parse_usd)]
Seconds = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(lambda seconds: f"{seconds}s")]
Gib = Annotated[int, BeforeValidator(parse_size_gib)]
Slug = Annotated[str, AfterValidator(_slug)]


def _hyperparameters(given: object) -> object:
    return hyperparameters.checked(given) if isinstance(given, Mapping) else given


def _one_or_more(given: object) -> object:
    return (given,) if isinstance(given, str) else given


Hyperparameters = Annotated[dict[str, int | float], BeforeValidator(_hyperparameters)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _no_key_is_a_switch(cls, value: object) -> object:
        if isinstance(value, bool):  # else it would count as 1 or 0
            raise ValueError(f"{str(value).lower()} (or yes, no, on, off) is no value of this key; quote it for a text")
        return value


class TaskOverride(_Strict):
    """One training of the run: what differs from the job."""

    name: Slug
    model: Model | None = None
    epochs: Annotated[int, Field(ge=1, le=10_000)] | None = None
    image_size: Annotated[int, Field(ge=64, le=2048, multiple_of=32)] | None = None
    batch: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] | None = None
    hyperparameters: Hyperparameters = {}
    seed: Annotated[int, Field(ge=0, le=10**9)] | None = None


class AwsAccess(_Strict):
    """Which credentials and which corner of the account to use."""

    profile: str | None = None
    instance_profile: str | None = None
    """Role of the machine for the object storage; none: short-lived keys in a 0600 file."""
    ssh_cidr: str | None = None
    """Addresses that may reach the machine's SSH port; none: the caller's public address."""
    subnet: str | None = None

    @field_validator("ssh_cidr")
    @classmethod
    def _addresses(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                ipaddress.IPv4Network(value)
            except ValueError as error:
                raise ValueError(f"{value!r} is no range of IPv4 addresses, such as 203.0.113.7/32 ({error})") from None
        return value

    stop_role: str = "gpucost-stop"
    """Role with which EventBridge Scheduler may end a machine at its deadline."""


class GcpAccess(_Strict):
    """Which project to use."""

    project: str | None = None


class Layout(_Strict):
    """How trainings share the machine."""

    gpus: Annotated[int, Field(ge=1, le=8)] = 1
    """GPUs each training uses (DDP)."""
    concurrent: Annotated[int, Field(ge=1, le=16)] = 1
    """Trainings at a time."""


class TrainerOptions(_Strict):
    """Passed to the trainer as they are."""

    workers: Annotated[int, Field(ge=0, le=64)] | None = None
    patience: Annotated[int, Field(ge=1)] | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    checkpoint_seconds: Annotated[float, Field(ge=0, le=86_400)] | None = None
    """Between two checkpoints; none: chosen by the trainer from the machine's hazard."""


class JobSpec(_Strict):
    """A training job, as the user wrote it."""

    name: Slug
    data: Annotated[str, Field(min_length=1)]
    """A local folder, archive or data.yaml; `builtin:digits`; or an archive or prefix as `s3://bucket/key`."""
    model: Model = "yolov9-s"
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 100
    image_size: Annotated[int, Field(ge=64, le=2048, multiple_of=32)] = 640
    batch: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    hyperparameters: Hyperparameters = {}
    seed: Annotated[int, Field(ge=0, le=10**9)] = 0
    tasks: tuple[TaskOverride, ...] = ()
    output: str | None = None
    """Object-storage prefix for checkpoints and results: `s3://bucket/prefix`."""
    gpus: Annotated[tuple[str, ...], BeforeValidator(_one_or_more)] = ()
    regions: Annotated[tuple[str, ...], BeforeValidator(_one_or_more)] = ()
    clouds: Annotated[tuple[Cloud, ...], BeforeValidator(_one_or_more)] = ()
    market: Market = "any"
    aws: AwsAccess = AwsAccess()
    gcp: GcpAccess = GcpAccess()
    budget: Usd | None = None
    deadline: Seconds | None = None
    """Seconds from the start by which the machine must be gone."""
    boot_limit: Seconds | None = None
    """Seconds from a machine's launch to a login, then another one is tried; none: what the cloud's machines need."""
    disk: Gib = 100
    layout: Layout = Layout()
    trainer: TrainerOptions = TrainerOptions()
    images: Annotated[int, Field(ge=1)] | None = None
    """Training pictures, where the data is in object storage and has not been counted."""

    @model_validator(mode="after")
    def _names_differ(self) -> JobSpec:
        names = [task.name for task in self.tasks]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"two tasks are called {sorted(twice)[0]!r}")
        return self

    @model_validator(mode="after")
    def _urls_are_urls(self) -> JobSpec:
        if self.output is not None and not re.match(r"s3://[^/]", self.output):
            raise ValueError(f"output {self.output!r} is not an object-storage prefix; write s3://bucket/prefix")
        if "://" in self.data and not self.data.startswith("s3://"):
            raise ValueError(f"data {self.data!r}: only local paths and s3:// URLs can be read now")
        if self.data.startswith("s3://") and not re.match(r"s3://[^/]", self.data):
            raise ValueError(f"data {self.data!r} names no bucket; write s3://bucket/key")
        return self

    @model_validator(mode="after")
    def _boots_in_time(self) -> JobSpec:
        if self.boot_limit is not None and self.boot_limit > MOST_BOOT_SECONDS:
            raise ValueError(
                f"boot_limit is more than {MOST_BOOT_SECONDS // 60}m: a machine without an agent for {QUIET_MINUTES} "
                "minutes ends itself"
            )
        return self

    @model_validator(mode="after")
    def _batch_divides(self) -> JobSpec:
        for task in self.trainings():
            if isinstance(task.batch, int) and task.batch % self.layout.gpus:
                raise ValueError(
                    f"batch {task.batch} of {task.name!r} is not divisible by layout.gpus {self.layout.gpus}"
                )
        return self

    @property
    def is_local(self) -> bool:
        """The data lies on this machine."""
        return not self.data.startswith("s3://")

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of the trainings, in order."""
        return tuple(task.name for task in self.trainings())

    @property
    def epochs_by_task(self) -> dict[str, int]:
        """How many epochs each training is given."""
        return {str(task.name): int(task.epochs or 0) for task in self.trainings()}

    def trainings(self) -> tuple[TaskOverride, ...]:
        """One entry per training with every field filled in."""
        tasks = self.tasks or (TaskOverride(name=self.name),)
        return tuple(
            TaskOverride(
                name=task.name,
                model=task.model or self.model,
                epochs=task.epochs or self.epochs,
                image_size=task.image_size or self.image_size,
                batch=task.batch or self.batch,
                hyperparameters={**self.hyperparameters, **task.hyperparameters},
                seed=self.seed if task.seed is None else task.seed,
            )
            for task in tasks
        )


def load(path: Path, overrides: Mapping[str, object]) -> JobSpec:
    """The job in `path` with the flags' values over it. Raises BadInput naming the file and the value."""
    return parse(_read_yaml(path), overrides, str(path))


def parse(raw: Mapping[str, object], overrides: Mapping[str, object], origin: str) -> JobSpec:
    """A job from plain values. Raises BadInput."""
    merged = dict(raw)
    for key, value in overrides.items():
        _set(merged, key.split("."), value)
    try:
        return JobSpec.model_validate(merged)
    except ValidationError as error:
        raise _explain(error, origin) from error


def _set(target: dict[str, Any], keys: list[str], value: object) -> None:
    if len(keys) == 1:
        target[keys[0]] = value
        return
    inner = dict(target.get(keys[0]) or {})
    _set(inner, keys[1:], value)
    target[keys[0]] = inner


def _read_yaml(path: Path) -> Mapping[str, object]:
    try:
        if path.is_file() and path.stat().st_size > yamltext.MOST_BYTES:
            raise BadInput(f"{path} is too large for a job file", hint="name the YAML file of a job")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise BadInput(f"there is no job file {path}", hint=f"write one with `gpucost init {path}`") from error
    except IsADirectoryError as error:
        raise BadInput(f"{path} is a folder, not a job file", hint="name the YAML file in it") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"the job file {path} is not text in UTF-8", hint="save it as UTF-8") from error
    except OSError as error:
        raise BadInput(f"the job file {path} cannot be read: {error.strerror}", hint="check its permissions") from error
    raw = yamltext.read(path, text)
    if not isinstance(raw, dict):
        raise BadInput(f"{path} is not a job file: it holds no keys", hint="`gpucost init` writes one to start from")
    return {str(key): value for key, value in raw.items()}


def _explain(error: ValidationError, origin: str) -> BadInput:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if not _is_branch(part))
    if first["type"] == "extra_forbidden":
        return BadInput(f"{origin}: unknown key {_short(where)!r}", hint=_nearest(first["loc"]))
    if first["type"] == "missing":
        return BadInput(f"{origin}: the key {where!r} is missing", hint="`gpucost init` writes a commented job file")
    message = _short(first["msg"].removeprefix("Value error, "), LONGEST_MESSAGE)
    given = "" if first["type"] == "value_error" else f" (given: {_shown(first['input'])})"
    place = f"{origin}: {_short(where)}: " if where else f"{origin}: "
    cause = first.get("ctx", {}).get("error")
    hint = cause.hint if isinstance(cause, BadHyperparameter) else EVERY_KEY
    return BadInput(f"{place}{message}{given}", hint=hint)


def _shown(value: object) -> str:
    """A value in a message: never longer than a line, since a few anchors can make one of gigabytes."""
    try:
        return _short(reprlib.repr(value))
    except ValueError:  # a whole number with more digits than Python prints
        return "a number of thousands of digits"


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _is_branch(part: int | str) -> bool:
    """Pydantic adds the name of the union's branch to a location; users never wrote it."""
    return isinstance(part, str) and (part in {"int", "float", "bool", "str"} or "[" in part or "constrained" in part)


def _nearest(location: tuple[int | str, ...]) -> str:
    *parents, wrong = [part for part in location if not isinstance(part, int)]
    known = sorted(_keys_below(JobSpec, [str(part) for part in parents]))
    close = difflib.get_close_matches(str(wrong)[:80], known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else "known keys: " + ", ".join(known)


def _keys_below(model: type[BaseModel], parents: list[str]) -> Iterator[str]:
    for parent in parents:
        inner = model.model_fields[parent].annotation if parent in model.model_fields else None
        model = next(
            (kind for kind in (inner, *get_args(inner)) if isinstance(kind, type) and issubclass(kind, BaseModel)),
            model,
        )
    yield from model.model_fields
