"""How the time that is left is shared out: arithmetic on times, without a clock. All times are Unix seconds."""

from __future__ import annotations

SAVE_SHARE = 0.5
"""Of the time that is left, what the trainers may take to finish a step and save; the rest is for the upload."""
OUTCOME_SECONDS = 10.0
"""Kept free after the last upload of files, for the one object that says how it ended."""


def save_seconds(now: float, gone_at: float, reserve: float) -> float:
    """How long trainers may take to save after they were asked to stop, when all must be stored by `gone_at`."""
    return min(reserve, max(0.0, gone_at - now) * SAVE_SHARE)


def outcome_seconds(now: float, gone_at: float) -> float:
    """How much of the time until `gone_at` the final upload of files, which begins now, leaves for the outcome."""
    return min(OUTCOME_SECONDS, max(0.0, gone_at - now) / 4)


def launcher_watches(now: float, seen_at: float, linger: float) -> bool:
    """Whether a launcher that showed itself at `seen_at` still counts as there: it is then left to end the machine."""
    return now - seen_at < linger
