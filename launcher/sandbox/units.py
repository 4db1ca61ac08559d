"""The part of systemd that a deadline needs: timers with an absolute `OnCalendar=`, and the services they start.

Pure: text and times in, decisions out. What is not understood is refused with the reason, so that it shows on the
console instead of never happening.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime

_ABSOLUTE = re.compile(r"(?:[A-Z][a-z]{2} )?(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(?: ?(UTC|Z))?")


class UnitError(Exception):
    """A unit file says something that the sandbox cannot do."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer unit."""

    name: str
    service: str
    """The unit it starts."""
    due: float
    """Unix seconds."""
    persistent: bool
    """A time that passed while the machine was off counts at the next boot."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service unit."""

    name: str
    argv: tuple[str, ...]


def parse_timer(name: str, text: str) -> Timer:
    """Timer from its unit file. Raises UnitError."""
    values = _section(text, "Timer")
    calendar = values.get("OnCalendar")
    if calendar is None:
        raise UnitError(f"{name}: only OnCalendar= is supported in the sandbox")
    return Timer(
        name=name,
        service=values.get("Unit", name.removesuffix(".timer") + ".service"),
        due=parse_calendar(calendar, name),
        persistent=values.get("Persistent", "no").lower() in ("1", "yes", "true", "on"),
    )


def parse_service(name: str, text: str) -> Service:
    """Service from its unit file. Raises UnitError."""
    line = _section(text, "Service").get("ExecStart")
    if not line:
        raise UnitError(f"{name}: no ExecStart=")
    try:
        argv = shlex.split(line.lstrip("-@:+!"))
    except ValueError as error:
        raise UnitError(f"{name}: ExecStart={line}: {error}") from error
    return Service(name, tuple(argv))


def parse_calendar(text: str, name: str) -> float:
    """Unix seconds of an absolute time in UTC, the zone of the instances. Raises UnitError for any other expression."""
    match = _ABSOLUTE.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"{name}: OnCalendar={text}: only `YYYY-MM-DD HH:MM:SS UTC` is supported in the sandbox")
    try:
        moment = datetime.fromisoformat(f"{match[1]}T{match[2]}")
    except ValueError as error:
        raise UnitError(f"{name}: OnCalendar={text}: {error}") from error
    return moment.replace(tzinfo=UTC).timestamp()


def missed(timer: Timer, last: float | None, now: float) -> bool:
    """Whether a timer that is armed at `now` has to make up for a time it was off; `last` is its stamp."""
    return timer.persistent and last is not None and last < timer.due <= now


def _section(text: str, wanted: str) -> dict[str, str]:
    values: dict[str, str] = {}
    section = ""
    for line in text.replace("\\\n", " ").splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif section == wanted and "=" in line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip()
    return values
