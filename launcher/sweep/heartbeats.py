"""Whether a run lives, read from the storage: its agents' posts and the beat of its launcher. Decides nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from launcher.storage.interface import ObjectStore, StorageError
from launcher.sweep.verdicts import Heartbeat, started_at
from remote.protocol import SCHEMA, StoredRun


class _Unreadable(Exception):
    """An object that is there and cannot be understood."""


@dataclass(frozen=True, slots=True)
class _Sign:
    at: datetime
    by: str
    ended: bool = False


def heartbeat(run_id: str, stores: Sequence[ObjectStore]) -> Heartbeat:
    """The newest signs of a run in these places. What cannot be read makes it unreadable, and is no error."""
    signs: list[_Sign] = []
    troubles: list[str] = []
    for store in stores:
        try:
            for key in _posts(run_id, store):
                content = store.get(key)
                if content is not None:
                    signs.append(_sign(content, f"{store.url}/{key}"))
        except (StorageError, _Unreadable) as error:
            troubles.append(str(error))
    living = max((sign for sign in signs if not sign.ended), key=lambda sign: sign.at, default=None)
    return Heartbeat(
        heard_at=living.at if living else None,
        by=living.by if living else "",
        let_go_at=max((sign.at for sign in signs if sign.ended), default=None),
        unreadable="; ".join(troubles),
    )


def _posts(run_id: str, store: ObjectStore) -> Iterator[str]:
    """Keys of everything that tells of life; only those that are there, but for the launcher's."""
    names = StoredRun(run_id)
    yield names.launcher_beat
    folder, _, name = names.posted_status("*").partition("*")
    yield from (found.key for found in store.list(folder) if found.key.endswith(name))


def _sign(content: bytes, origin: str) -> _Sign:
    """Raises _Unreadable. Of an agent's status no more is read than the time, so that a newer agent's counts too."""
    try:
        record = json.loads(content)
        if record["schema"] != SCHEMA:
            raise _Unreadable(f"{origin} has schema {record['schema']!r}, this version reads {SCHEMA}")
        by = f"launcher {record['launcher']}" if "launcher" in record else "agent"
        return _Sign(datetime.fromtimestamp(float(record["at"]), UTC), by, bool(record.get("ended")))
    except (ValueError, KeyError, TypeError, OverflowError, OSError, AttributeError) as error:
        raise _Unreadable(f"{origin} cannot be understood") from error


def runs_among(keys: Iterable[str]) -> frozenset[str]:
    """Ids of the runs that own these objects, keys relative to an output prefix."""
    first = {key.partition("/")[0] for key in keys if "/" in key}
    return frozenset(name for name in first if started_at(name) is not None)
