"""What a sweep found and removed, as text and as a document. Pure; the CLI prints what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal

from launcher.clouds import CloudFacts
from launcher.providers.sweep import Found, Gap, Kind
from launcher.render import table
from launcher.sweep.looking import Sweep, unknown_costs, usd_per_day
from launcher.sweep.removing import Done
from launcher.sweep.verdicts import Judged
from launcher.units import show_duration, show_usd
from remote.protocol import printable

HEAD = ("  kind", "id", "where", "age", "deadline", "USD/day", "what it is", "what happens, and why")
NARROW = (0, 1, 2, 3, 4, 5, 7)
RIGHT = frozenset({3, 5})
WIDE = 150
"""Columns that the whole table takes."""
_DAY_SECONDS = 86400
_CENTS = Decimal("0.0001")
_REASON_LETTERS = 200
_KEPT = "results stay in the storage; --output shows what a prefix holds"
_MARK = {True: "REMOVE", False: "keep"}


def show_sweep(sweep: Sweep, *, width: int = WIDE) -> str:
    """Everything that was found, run by run, what it costs, and what becomes of it.

    In less than `WIDE` columns it is left out what each thing is.
    """
    if not sweep.items:
        return f"nothing of gpucost's in {_regions(sweep)} ({_KEPT})"
    groups: dict[str, list[Judged]] = {}
    for judged in sweep.items:
        groups.setdefault(_owner(judged.found, sweep), []).append(judged)
    rows = [_row(judged, sweep.at) for group in groups.values() for judged in group]
    columns = range(len(HEAD)) if width >= WIDE else NARROW
    lines = table([HEAD[at] for at in columns], ([row[at] for at in columns] for row in rows), right=RIGHT).split("\n")
    shown, left = [lines[0]], iter(lines[1:])
    for owner, group in groups.items():
        shown += ["", owner, *(next(left) for _ in group)]
    shown += ["", f"in all: {_cost(sweep.items)} for {_count(sweep.items)} in {_regions(sweep)}"]
    orphans = f"orphans: {_cost(sweep.orphans)} for {_count(sweep.orphans)}" if sweep.orphans else "no orphans"
    return printable("\n".join([*shown, orphans]))


def _owner(found: Found, sweep: Sweep) -> str:
    """The run that something belongs to, and whether that lives."""
    if found.kind is Kind.BUCKET:
        return "storage: never deleted"
    if found.run_id is None:
        return "of no run"
    beat = sweep.beats.get(found.run_id)
    if beat is None:
        return f"run {found.run_id}: nobody knows whether it lives"
    return f"run {found.run_id}: {beat.life(sweep.at) or beat.silence(sweep.at)}"


def show_gaps(gaps: Sequence[Gap]) -> list[str]:
    """What could not be looked at, the same trouble in many places once."""
    groups: dict[tuple[str, str], list[Gap]] = {}
    for gap in gaps:
        groups.setdefault((gap.what, gap.reason[:40]), []).append(gap)
    return [
        printable(f"NOT COMPLETE: {what} of {_where(group)} could not be listed: {group[0].reason[:_REASON_LETTERS]}")
        for (what, _), group in groups.items()
    ]


def _where(gaps: Sequence[Gap]) -> str:
    places = list(dict.fromkeys(gap.where for gap in gaps))
    return ", ".join(places) if len(places) < 4 else f"{len(places)} regions ({places[0]}, {places[1]}, ...)"


def _regions(sweep: Sweep) -> str:
    return sweep.regions[0] if len(sweep.regions) == 1 else f"{len(sweep.regions)} regions"


def _row(judged: Judged, now: datetime) -> tuple[str, ...]:
    found = judged.found
    return (
        f"  {found.kind}",
        *_place(found),
        "" if found.made_at is None else show_age((now - found.made_at).total_seconds()),
        "" if found.deadline is None else f"{found.deadline:%F %H:%M}",
        show_cost(found.usd_per_day),
        ", ".join(filter(None, [found.state, found.note])),
        f"{_MARK[judged.is_orphan]}: {judged.verdict.reason}",
    )


def _place(found: Found) -> tuple[str, str]:
    """What something is called where it is; its run is said above it."""
    if found.kind is not Kind.UPLOAD or found.output is None:
        return found.id, found.region
    return found.id.removeprefix(f"{found.output}/").removeprefix(f"{found.run_id}/"), found.output


def show_age(seconds: float) -> str:
    """`9 s`, `3 h 05 min`, `16 d`."""
    return f"{int(seconds // _DAY_SECONDS)} d" if seconds >= 2 * _DAY_SECONDS else show_duration(seconds)


def show_cost(usd: Decimal | None) -> str:
    """A day's price; what nobody knows is not shown as nothing, nor is what is next to nothing."""
    if usd is None:
        return "unknown"
    if not usd:
        return "-"
    return show_usd(usd) if usd >= _CENTS else f"<${_CENTS}"


def _count(items: Sequence[Judged]) -> str:
    return "1 thing" if len(items) == 1 else f"{len(items)} things"


def _cost(items: Sequence[Judged]) -> str:
    usd, unknown = usd_per_day(items), unknown_costs(items)
    more = f" and {unknown} of unknown cost" if unknown else ""
    return f"{show_cost(usd) if usd else '$0'} a day{more}"


def show_done(done: Sequence[Done], facts: CloudFacts) -> str:
    """What became of each orphan; what is left comes last, with the command that ends it."""
    lines = [f"{one.result}: {_name(one.found)}{_because(one.reason)}" for one in done if not one.is_left]
    left = [one for one in done if one.is_left]
    for one in left:
        lines.append(f"{one.result.upper()}: {_name(one.found)}{_because(one.reason)}")
        if one.found.kind is Kind.INSTANCE:
            by_hand = facts.by_hand.format(region=one.found.region, instance_id=one.found.id)
            lines.append(f"  by hand: {by_hand}")
    return printable("\n".join(lines))


def _name(found: Found) -> str:
    return f"{found.kind} {found.id} {found.region}".rstrip()


def _because(reason: str) -> str:
    return f": {reason[:_REASON_LETTERS]}" if reason else ""


def sweep_document(sweep: Sweep, done: Sequence[Done] | None) -> dict[str, object]:
    """A sweep; `done` is None where nothing was to be removed."""
    results = {} if done is None else {one.found.key: one for one in done}
    return {
        "at": _iso(sweep.at),
        "dry_run": done is None,
        "complete": not sweep.gaps,
        "regions": list(sweep.regions),
        "gaps": [asdict(gap) for gap in sweep.gaps],
        "items": [_item(judged, results.get(judged.found.key)) for judged in sweep.items],
        "runs": [
            {"run_id": run, "alive": sweep.beats[run].life(sweep.at) if run in sweep.beats else None, "places": places}
            for run, places in sweep.places.items()
        ],
        "orphans": len(sweep.orphans),
        "usd_per_day": usd_per_day(sweep.items),
        "orphan_usd_per_day": usd_per_day(sweep.orphans),
        "unknown_costs": unknown_costs(sweep.items),
    }


def _item(judged: Judged, done: Done | None) -> dict[str, object]:
    found = judged.found
    return {
        "kind": found.kind.value,
        "id": found.id,
        "region": found.region or None,
        "run_id": found.run_id,
        "lease_id": found.lease_id,
        "deadline": _iso(found.deadline),
        "output": found.output,
        "state": found.state,
        "made_at": _iso(found.made_at),
        "usd_per_day": found.usd_per_day,
        "note": found.note,
        "action": judged.verdict.action.value,
        "reason": judged.verdict.reason,
        "result": None if done is None else done.result.value,
        "result_reason": None if done is None else done.reason,
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
