"""A data set in a bucket, checked where it is: an archive by ranges of it, a prefix by its listing and some objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from launcher import wiring
from launcher.errors import BadInput
from launcher.home import Home
from launcher.localdata import Place, said_of
from launcher.storage.interface import ObjectStore
from remote.dataset import DatasetError, Elsewhere, Sampled, Traffic, check_sample, evenly, open_packed

_PAGE = 1000
"""Objects that one request lists."""


def sampled(url: str, home: Home) -> Sampled:
    """Check what is at `s3://bucket/key.zip`, `.tar` or `s3://bucket/prefix/`. Nothing of it is kept.

    Raises BadInput for what cannot be trained on, ProviderError and StorageError for what cannot be reached.
    """
    folder, _, key = url.rpartition("/")
    if not url.startswith("s3://") or folder in {"s3:", "s3:/"}:
        raise BadInput(f"{url} cannot be read", hint="write s3://bucket/key.zip, or s3://bucket/prefix/")
    with wiring.storage_at(folder, home) as store:
        return sampled_in(store, key)


def sampled_in(store: ObjectStore, key: str) -> Sampled:
    """Check the archive `key` of a store, or all that is in the store where `key` is empty. Raises as `sampled`."""
    name = f"{store.url}/{key}"
    with TemporaryDirectory(prefix="gpucost-data-") as scratch:
        place = Place(Path(scratch) / "data", name)
        with said_of(place):
            found = check_sample(_packed(store, key, name) if key else _Prefix(store, name), place.path)
    return replace(found, notes=tuple(map(place.note, found.notes)))


def _packed(store: ObjectStore, key: str, name: str) -> Elsewhere:
    size = next((found.size for found in store.list(key) if found.key == key), None)
    if size is None:
        raise DatasetError(f"there is nothing at {name}", "correct the URL: an archive, or a prefix ending in /")

    def fetch(span: range) -> bytes:
        return store.get(key, span) or b""

    return open_packed(name, size, fetch)


class _Prefix:
    """Files that are objects of their own."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self.name = name
        self._store = store
        self._sizes = {found.key: found.size for found in store.list("") if _is_file(found.key)}
        if not self._sizes:
            raise DatasetError(f"there is nothing at {name}", "correct the URL: an archive, or a prefix ending in /")
        self._requests = 1 + len(self._sizes) // _PAGE
        self._bytes = 0

    @property
    def sizes(self) -> Mapping[str, int]:
        """See the protocol."""
        return self._sizes

    @property
    def traffic(self) -> Traffic:
        """See the protocol."""
        return Traffic(self._bytes, sum(self._sizes.values()), self._requests)

    def pick(self, names: Sequence[str], requests: int) -> list[str]:
        """See the protocol."""
        return evenly(names, requests)

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """See the protocol."""
        for name in names:
            content = self._store.get(name)
            if content is None:
                raise DatasetError(f"{self.name}{name}: is gone", "check it again when nothing changes there")
            self._requests += 1
            self._bytes += len(content)
            yield name, content

    def fingerprint(self, name: str) -> object | None:  # noqa: ARG002
        """See the protocol: a listing does not say."""
        return None


def _is_file(key: str) -> bool:
    """Whether an object can be a file of a folder: consoles make objects for folders, and a key may hold anything."""
    parts = key.split("/")
    return not any(part in ("", ".", "..") or "\0" in part for part in parts)
