"""Looking for everything that gpucost ever made in an account, and judging it. Removes nothing; see `removing`.

Needs no local state: what is there says by its tags whose it is, until when it may live, and where the heartbeat of
its run is. A journal on this machine only adds to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from launcher.clock import Clock
from launcher.clouds import CloudFacts
from launcher.errors import BadInput, ProviderError
from launcher.providers.interface import RefusedError, UnreachableError
from launcher.providers.sweep import Found, Gap, Kind, Listing, ResourceSweep, joined
from launcher.report import Note, Reporter
from launcher.storage.interface import ObjectStore, StorageError
from launcher.sweep.heartbeats import heartbeat, runs_among
from launcher.sweep.verdicts import Heartbeat, Judged, judge_all, started_at
from launcher.units import show_gib
from pricing.standing import StandingPrices

ASKED_AT_ONCE = 8
"""Regions and prefixes that are asked at the same time: waiting, not work, takes the time."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class LocalRun:
    """What the journal on this machine knows of a run."""

    output: str | None = None
    driven_by: str = ""


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Ports and facts of a sweep."""

    port: ResourceSweep
    facts: CloudFacts
    prices: StandingPrices
    store_for: Callable[[str], ObjectStore]
    """The storage that an output URL names. Raises StorageError."""
    local: Callable[[str], LocalRun]
    """A run's journal on this machine; an empty one where there is none."""
    clock: Clock
    report: Reporter


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to look. Empty: everywhere."""

    regions: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    """Storage prefixes to look through even where no tag names them."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Everything that was found, with its verdicts."""

    at: datetime
    regions: tuple[str, ...]
    items: tuple[Judged, ...]
    gaps: tuple[Gap, ...]
    beats: Mapping[str, Heartbeat]
    places: Mapping[str, tuple[str, ...]]
    """Where the heartbeat of each run may be."""

    @property
    def orphans(self) -> tuple[Judged, ...]:
        """What may be removed."""
        return tuple(judged for judged in self.items if judged.is_orphan)


def usd_per_day(items: Iterable[Judged]) -> Decimal:
    """What they cost together, as far as it is known."""
    return sum((judged.found.usd_per_day or Decimal(0) for judged in items), Decimal(0))


def unknown_costs(items: Iterable[Judged]) -> int:
    """How many of them have a cost that nobody knows."""
    return sum(judged.found.usd_per_day is None for judged in items)


def look(sweeper: Sweeper, scope: Scope) -> Sweep:
    """Ask every region and every output prefix. Raises BadInput for an unknown region, ProviderError."""
    regions = regions_of(sweeper, scope)
    sweeper.report(Note(f"asking {len(regions)} {'region' if len(regions) == 1 else 'regions'}"))
    there = joined(at_once(sweeper.port.find, regions))
    outputs = sorted({*scope.outputs, *(found.output for found in there.found if found.output)})
    stored = at_once(lambda output: look_in_storage(sweeper, output), outputs)
    listing = joined([there, *(seen.listing for seen in stored)])
    places = _places(sweeper, listing.found, [seen for seen in stored if seen.output in scope.outputs])
    beats = read_beats(sweeper, places)
    now = sweeper.clock.now()
    return Sweep(now, tuple(regions), judge_all(listing.found, beats, now), listing.gaps, beats, places)


def regions_of(sweeper: Sweeper, scope: Scope) -> list[str]:
    """The enabled regions of a scope. Raises BadInput for an unknown one, ProviderError."""
    try:
        enabled = sweeper.port.regions()
    except RefusedError as error:
        raise ProviderError(str(error), hint=error.hint) from error
    except UnreachableError as error:
        raise ProviderError(str(error), hint="check the network, then try again") from error
    unknown = sorted(set(scope.regions) - set(enabled))
    if unknown:
        raise BadInput(f"region {unknown[0]!r} is not enabled in this account", hint=f"enabled: {', '.join(enabled)}")
    return [region for region in enabled if not scope.regions or region in scope.regions]


@dataclass(frozen=True, slots=True)
class _Stored:
    """What lies below one output prefix."""

    output: str
    listing: Listing
    runs: frozenset[str] = frozenset()
    """Those that have objects there."""


def look_in_storage(sweeper: Sweeper, output: str) -> _Stored:
    """Unfinished uploads below a prefix, the prefix itself, and the runs that have objects there."""
    uploads = sweeper.port.uploads(output)
    try:
        objects = sweeper.store_for(output).list("")
    except StorageError as error:
        unread = Found(Kind.BUCKET, output, "", output=output, note="cannot be read")
        return _Stored(output, joined([uploads, Listing((unread,), (Gap(output, "objects", str(error)),))]))
    size = sum(found.size for found in objects)
    runs = runs_among(found.key for found in objects)
    note = f"{show_gib(size)}, objects: {len(objects)}, runs: {len(runs)}"
    prefix = Found(Kind.BUCKET, output, "", output=output, usd_per_day=sweeper.prices.objects(size), note=note)
    return _Stored(output, joined([uploads, Listing((prefix,))]), runs)


def _places(sweeper: Sweeper, found: Sequence[Found], named: Sequence[_Stored]) -> dict[str, tuple[str, ...]]:
    """Where the heartbeat of each run may be: its tags, this machine's journal, the prefixes that the user named.

    A prefix without an object of a run is none of its places: that its heartbeat is missing there says nothing.
    """
    places: dict[str, set[str]] = {run: set() for seen in named for run in seen.runs}
    for one in found:
        if one.run_id is not None and started_at(one.run_id) is not None:
            places.setdefault(one.run_id, set()).update({one.output} if one.output else ())
    for run, outputs in places.items():
        known = sweeper.local(run).output
        outputs.update({known} if known else ())
        outputs.update(seen.output for seen in named if run in seen.runs)
    return {run: tuple(sorted(outputs)) for run, outputs in sorted(places.items())}


def read_beats(sweeper: Sweeper, places: Mapping[str, tuple[str, ...]]) -> dict[str, Heartbeat]:
    """The heartbeat of each run, as far as there is a place to look for it or a process here that drives it."""
    drivers = {run: sweeper.local(run).driven_by for run in places}
    sought = [run for run in places if places[run] or drivers[run]]
    beats = at_once(lambda run: _beat(sweeper, run, places[run]), sought)
    return {run: replace(beat, driven_by=drivers[run]) for run, beat in zip(sought, beats, strict=True)}


def _beat(sweeper: Sweeper, run_id: str, places: Sequence[str]) -> Heartbeat:
    stores: list[ObjectStore] = []
    troubles: list[str] = []
    for place in places:
        try:
            stores.append(sweeper.store_for(place))
        except StorageError as error:
            troubles.append(str(error))
    read = heartbeat(run_id, stores)
    return replace(read, unreadable="; ".join(filter(None, [*troubles, read.unreadable])))


def at_once(ask: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Answers in the order of the items. An interrupt does not wait for what was not begun."""
    pool = ThreadPoolExecutor(ASKED_AT_ONCE)
    try:
        return list(pool.map(ask, items))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
