"""Sizes, durations and money as people write them. Pure: text in, exact values out, else ValueError with the text."""

from __future__ import annotations

import re
import reprlib
from decimal import ROUND_UP, Decimal, InvalidOperation

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)", re.IGNORECASE)
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "min": 60, "s": 1}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(GiB|GB|G|TiB|TB|T|MiB|MB|M)?", re.IGNORECASE)
_GIB = {
    "g": Decimal(1),
    "gib": Decimal(1),
    "gb": Decimal(10**9) / 2**30,
    "t": Decimal(1024),
    "tib": Decimal(1024),
    "tb": Decimal(10**12) / 2**30,
    "m": Decimal(1) / 1024,
    "mib": Decimal(1) / 1024,
    "mb": Decimal(10**6) / 2**30,
}
_LEAST_SHOWN = Decimal("0.0001")
_CENT = Decimal("0.01")
MOST_LETTERS = 60
"""More than any amount, duration or size takes."""
MAX_USD = Decimal(1_000_000)
MAX_SECONDS = 60 * 86400


def _plain(text: object) -> str:
    """A number or text as text. Raises ValueError for a list or mapping, and for what is longer than any such value."""
    if isinstance(text, int) and abs(text) > 10**MOST_LETTERS:
        raise ValueError("a number of that many digits cannot be used")
    if not isinstance(text, str | int | float | Decimal):
        raise ValueError(f"{reprlib.repr(text)[:60]} is not one value")
    if len(plain := str(text).strip()) > MOST_LETTERS:
        raise ValueError(f"{reprlib.repr(text)} is too long")
    return plain


def parse_usd(text: object) -> Decimal:
    """US dollars from `50`, `$50`, `12.50 USD`. More than 0, at most a million."""
    plain = _plain(text).removeprefix("$").strip()
    if plain.upper().endswith("USD"):
        plain = plain[:-3].strip()
    try:
        value = Decimal(plain)
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not an amount of US dollars; write 50, $50 or 12.50") from error
    if not value.is_finite() or not 0 < value <= MAX_USD:
        raise ValueError(f"{text!r} is not a budget: it must be more than 0 and at most {MAX_USD}")
    return value


def parse_duration(text: object) -> float:
    """Seconds from `12h`, `90m`, `1h30m`, `45s`, `2d`; a bare number is refused, since its unit would be a guess."""
    plain = _plain(text).replace(" ", "")
    parts = _DURATION.findall(plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain:
        raise ValueError(f"{text!r} is not a duration; write 12h, 90m or 1h30m")
    seconds = sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError(
            f"{text!r} is not a usable duration: it must be more than 0 and at most {MAX_SECONDS // 86400}d"
        )
    return seconds


def parse_size_gib(text: object) -> int:
    """Whole GiB, rounded up, from `100GiB`, `100GB`, `0.5TB`; a bare number is GiB."""
    plain = _plain(text)
    found = _SIZE.fullmatch(plain)
    if found is None:
        raise ValueError(f"{text!r} is not a size; write 100GiB or 100GB")
    gib = Decimal(found.group(1)) * _GIB[(found.group(2) or "GiB").lower()]
    if not 0 < gib <= 65536:
        raise ValueError(f"{text!r} is not a usable disk size: more than 0 and at most 64TiB")
    return int(gib.to_integral_value(rounding="ROUND_CEILING"))


def show_duration(seconds: float) -> str:
    """`3 h 05 min`, `4 min 10 s`, `9 s`."""
    whole = max(0, round(seconds))
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole} s"


def show_usd(amount: Decimal) -> str:
    """`$12.34`; four places below a dollar, so that a cent's run does not look free."""
    if 0 < amount < _LEAST_SHOWN:
        return f"<${_LEAST_SHOWN}"
    return f"${amount:,.2f}" if abs(amount) >= 1 else f"${amount:.4f}"


def cents_up(amount: Decimal) -> Decimal:
    """Whole cents that are enough: what a user is told to allow."""
    return amount.quantize(_CENT, ROUND_UP)


def show_gib(size: int) -> str:
    """A byte count in the unit that fits."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
