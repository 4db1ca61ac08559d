"""Frozen dataclasses as JSON files: written whole, read with every field checked. Standard library, Python 3.10.

Knows no record by name; `remote.protocol` has them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

SCHEMA = 1

LAST_MOMENT = 4_102_444_800.0
"""The year 2100, in Unix seconds: what claims a later time is a mistake, and no date can be reckoned from it."""

Record = TypeVar("Record")


class ProtocolError(Exception):
    """A file of the protocol is malformed or of another schema version; the message names the file and the reason."""


def is_moment(value: float, where: str) -> float:
    """`value`, where it is a time that dates can be reckoned with. Raises ValueError."""
    if not 0 <= value <= LAST_MOMENT:
        raise ValueError(f"{where}: {value!r} is no time")
    return value


def is_finite(value: float, where: str) -> float:
    """`value`, where it is a number. Raises ValueError."""
    if not math.isfinite(value):
        raise ValueError(f"{where}: {value!r} is no number")
    return value


def printable(text: str, _where: str = "") -> str:
    """`text` without what a terminal would obey: of control characters, only line ends and tabs are left."""
    return "".join(char if char in "\n\t" or not _is_control(char) else "\ufffd" for char in text)


def _is_control(char: str) -> bool:
    return char < " " or "\x7f" <= char <= "\x9f"


Moment = Annotated[float, is_moment]
"""Unix seconds of a time in this century."""
Amount = Annotated[float, is_finite]
Words = Annotated[str, printable]
"""What is shown to somebody, of whatever a machine may write."""


def encode(record: object) -> str:
    """JSON text of a record."""
    return json.dumps(_values(record), default=_plain, indent=1, sort_keys=True)


def _values(record: object) -> dict[str, object]:
    """Field by field; records inside are left to the encoder, which asks again."""
    if isinstance(record, type) or not is_dataclass(record):
        raise TypeError(f"{type(record).__name__} does not go into a protocol file")
    return {field.name: getattr(record, field.name) for field in fields(record)}


def write(path: Path, record: object) -> None:
    """Replace `path` by the record, whole and on disk."""
    write_text(path, encode(record))


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text`: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)


def read(path: Path, kind: type[Record]) -> Record:
    """Read a record. Raises FileNotFoundError, or ProtocolError that names the file."""
    return decode(path.read_text(encoding="utf-8"), kind, str(path))


def decode(text: str, kind: type[Record], origin: str) -> Record:
    """Record from JSON text. Raises ProtocolError: not JSON, another schema, a missing, unknown or ill-typed field."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{origin}: not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ProtocolError(f"{origin}: expected an object, found {type(raw).__name__}")
    if raw.get("schema") != SCHEMA:
        raise ProtocolError(f"{origin}: schema {raw.get('schema')!r}, this version reads {SCHEMA}")
    try:
        return _build(kind, raw)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"{origin}: {error}") from error


def _build(kind: type[Record], raw: dict[str, object]) -> Record:
    readers = _readers(kind)  # type: ignore[arg-type] # classes are hashable
    unknown = sorted(raw.keys() - readers.keys())
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r} in {kind.__name__}")
    return kind(**{name: readers[name](value, f"{kind.__name__}.{name}") for name, value in raw.items()})


Reader = Callable[[object, str], Any]
"""From a value of the JSON text, and its place for a complaint, to the value of a field."""


@cache
def _readers(kind: type) -> dict[str, Reader]:
    """By field. Made once: a status is read all the time, and working out its annotations takes longer."""
    return {name: _reader(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _reader(hint: Any) -> Reader:  # noqa: ANN401 - an annotation may be any object
    """Makes the value what its annotation wants: records and enums are made, plain values only checked."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        plain, check = _reader(arguments[0]), arguments[1]
        return lambda value, where: check(plain(value, where), where)
    if origin in (Union, UnionType):
        some = _reader(arguments[0])
        return lambda value, where: None if value is None else some(value, where)
    if origin is list:
        item = _reader(arguments[0])
        return lambda value, where: [item(one, where) for one in _expect(list, value, where)]
    if origin is dict:
        entry = _reader(arguments[1])
        return lambda value, where: {key: entry(one, where) for key, one in _expect(dict, value, where).items()}
    if hint is Any:
        return lambda value, _where: value
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value, where: _build(hint, _expect(dict, value, where))
    if issubclass(hint, Enum):
        return lambda value, _where: hint(value)
    if hint is float:
        return lambda value, where: float(value) if type(value) is int else _expect(float, value, where)
    return lambda value, where: _expect(hint, value, where)


def _expect(kind: type[Record], value: object, where: str) -> Record:
    if type(value) is not kind:
        raise ValueError(f"{where}: expected {kind.__name__}, found {type(value).__name__}")
    return value


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else _values(value)
