"""What a sweep may remove, and why: pure rules over what was found, the heartbeats of its runs, and the time.

Errs on the side of what is trained: something is removed only where its tagged deadline and a grace time have
passed and its run is known not to live. A heartbeat that cannot be read counts as heard.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from launcher.providers.sweep import ENDING, Found, Kind
from launcher.units import MAX_SECONDS, show_duration

GRACE = timedelta(minutes=30)
"""After a deadline the other stops may still be at work: the last upload, a terminate that the provider delays (13
minutes in all at the default limits), and clocks may differ."""
ALIVE_WITHIN = timedelta(minutes=15)
"""Agents and launchers post once a minute: fifteen posts missed in a row, in a storage that answers, are no slow link.
Being late by so much costs cents, being early a training."""
AHEAD_AT_MOST = timedelta(hours=14)
"""A clock set to another zone is wrong by so much at most; what claims a later time is no sign of life."""
LONGEST = timedelta(seconds=MAX_SECONDS)
"""No run may have a deadline farther away than this."""

_RUN_ID = re.compile(r"(\d{8}T\d{6})-[0-9a-f]{4}-.+")
_OF_THE_RUN = frozenset({Kind.SCHEDULE, Kind.KEY_PAIR, Kind.SECURITY_GROUP, Kind.LAUNCH_TEMPLATE, Kind.UPLOAD})
"""Made for a run rather than for one machine: they follow the run's newest deadline, and have none of their own."""


class Action(StrEnum):
    """What becomes of something."""

    KEEP = "keep"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An action and its reason."""

    action: Action
    reason: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What is known of a run's life."""

    heard_at: datetime | None = None
    """The newest post of an agent, or of a launcher that drives the run; None: there is none."""
    by: str = ""
    """Whose post that was."""
    let_go_at: datetime | None = None
    """When a launcher said that it drives the run no more."""
    unreadable: str = ""
    """Why posts could not be read; empty: all were."""
    driven_by: str = ""
    """A process on this machine that drives the run."""

    def life(self, now: datetime) -> str:
        """Why the run counts as alive; empty where it does not."""
        if self.driven_by:
            return f"run lives: driven by {self.driven_by}"
        if self.heard_at is not None and -AHEAD_AT_MOST <= now - self.heard_at <= ALIVE_WITHIN:
            return f"run lives: {self.by} heard {_ago(self.heard_at, now)}"
        if self.unreadable:
            return f"counts as alive: its heartbeat cannot be read ({self.unreadable})"
        return ""

    @property
    def newest(self) -> datetime | None:
        """The newest sign of any kind."""
        return max((at for at in (self.heard_at, self.let_go_at) if at is not None), default=None)

    def silence(self, now: datetime) -> str:
        """How long nothing was heard."""
        if self.newest is None:
            return "nothing was ever heard of its run"
        if self.newest - now > AHEAD_AT_MOST:
            return f"its last heartbeat claims to be of {self.newest:%Y-%m-%d}, which proves nothing"
        what = f"{self.by} last heard" if self.newest == self.heard_at else "its launcher let it go"
        return f"{what} {_ago(self.newest, now)}"


@dataclass(frozen=True, slots=True)
class Judged:
    """Something found, and what becomes of it."""

    found: Found
    verdict: Verdict

    @property
    def is_orphan(self) -> bool:
        """Whether it may be removed."""
        return self.verdict.action is Action.REMOVE


def started_at(run_id: str) -> datetime | None:
    """When a run was begun, as its id says; None for what is no id of a run."""
    found = _RUN_ID.fullmatch(run_id)
    if found is None:
        return None
    try:
        return datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def judge_all(
    found: Iterable[Found],
    beats: Mapping[str, Heartbeat],
    now: datetime,
    grace: timedelta = GRACE,
    *,
    gone: Iterable[Found] = (),
) -> tuple[Judged, ...]:
    """A verdict for each of `found`.

    `beats` lacks the runs of which nobody knows where their heartbeat would be; `gone` is what was there before: its
    deadlines still count for what follows its run.
    """
    known = tuple(found)
    newest: dict[str, datetime] = {}
    for one in (*known, *gone):
        if one.run_id is not None and one.deadline is not None:
            newest[one.run_id] = max(one.deadline, newest.get(one.run_id, one.deadline))
    return tuple(
        Judged(one, judge(one, newest.get(one.run_id or ""), beats.get(one.run_id or ""), now, grace)) for one in known
    )


def judge(
    found: Found, newest_deadline: datetime | None, beat: Heartbeat | None, now: datetime, grace: timedelta
) -> Verdict:
    """Keep or remove one thing. `newest_deadline` is that of everything of its run."""
    kept = _untouchable(found) or _owned(found, beat, now, grace)
    if kept:
        return Verdict(Action.KEEP, kept)
    deadline = newest_deadline if found.kind in _OF_THE_RUN else found.deadline
    if found.made_at is not None and now - found.made_at <= grace and (deadline is None or found.kind is Kind.UPLOAD):
        return Verdict(Action.KEEP, f"begun only {_ago(found.made_at, now)}")
    if deadline is None:
        return _without_deadline(found, beat, now, grace)
    if now < deadline:
        return Verdict(Action.KEEP, f"its deadline is in {show_duration((deadline - now).total_seconds())}")
    if now < deadline + grace:
        left = show_duration((deadline + grace - now).total_seconds())
        return Verdict(Action.KEEP, f"past its deadline, but the other stops get {left} more")
    return Verdict(Action.REMOVE, f"its deadline was {_ago(deadline, now)}, {_silence(beat, now)}")


def _untouchable(found: Found) -> str:
    if found.kind is Kind.BUCKET:
        return "never deleted: it holds your results"
    if found.run_id is None:
        return "names no run: remove it by hand if it is of no use"
    if started_at(found.run_id) is None:
        return f"{found.run_id!r} is no run of gpucost's: remove it by hand if it is of no use"
    return "is ending already" if found.state == ENDING else ""


def _owned(found: Found, beat: Heartbeat | None, now: datetime, grace: timedelta) -> str:
    if beat is not None:
        return beat.life(now)
    if found.kind in _OF_THE_RUN and _too_old_to_live(found, now, grace):
        return ""
    return "counts as alive: nothing says where its heartbeat is (name the place with --output)"


def _without_deadline(found: Found, beat: Heartbeat | None, now: datetime, grace: timedelta) -> Verdict:
    if found.kind not in _OF_THE_RUN:
        return Verdict(Action.KEEP, "has no deadline that can be read: remove it by hand if it is of no use")
    if beat is not None and beat.newest is not None and now - beat.newest > grace:
        return Verdict(Action.REMOVE, f"nothing else is left of its run, {beat.silence(now)}")
    if _too_old_to_live(found, now, grace):
        begun = started_at(found.run_id or "")
        return Verdict(Action.REMOVE, f"its run began {_ago(begun, now)}, longer than any run may last")
    return Verdict(Action.KEEP, f"its run may still be at work: {_silence(beat, now)}, and no deadline is tagged")


def _too_old_to_live(found: Found, now: datetime, grace: timedelta) -> bool:
    begun = started_at(found.run_id or "")
    return begun is not None and now - begun > LONGEST + grace


def _silence(beat: Heartbeat | None, now: datetime) -> str:
    return beat.silence(now) if beat is not None else "nobody knows where its heartbeat would be"


def _ago(moment: datetime | None, now: datetime) -> str:
    seconds = 0.0 if moment is None else (now - moment).total_seconds()
    days = int(seconds // 86400)
    return f"{days} d ago" if days > 1 else f"{show_duration(seconds)} ago"
