"""A `RemoteStore` in memory, with behaviour: faults on chosen calls, and a record of what was done."""

from __future__ import annotations

from pathlib import Path

from remote.transfer.store import READ_BYTES, Progress, StoredObject, StoreError, StoreMissing, ignore


class MemoryStore:
    """Objects in a dict. `fail("put", times, error)` makes the next calls raise before they have an effect."""

    def __init__(self, url: str = "s3://bucket/prefix") -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self._faults: list[tuple[str, str, Exception]] = []

    def fail(self, call: str, key_part: str = "", times: int = 1, error: Exception | None = None) -> None:
        """The next `times` calls of this name whose key contains `key_part` raise."""
        self._faults += [(call, key_part, error or StoreError(f"{self.url}: injected"))] * times

    def put(self, source: Path | bytes, key: str, progress: Progress = ignore) -> None:
        self._called("put", key)
        self.objects[key] = source if isinstance(source, bytes) else source.read_bytes()
        progress(len(self.objects[key]))

    def get(self, key: str, target: Path, progress: Progress = ignore) -> None:
        self._called("get", key)
        self._must_have(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.objects[key])
        progress(len(self.objects[key]))

    def read(self, key: str) -> bytes:
        self._called("read", key)
        self._must_have(key)
        return self.objects[key][:READ_BYTES]

    def list(self, prefix: str) -> list[StoredObject]:
        self._called("list", prefix)
        return [StoredObject(key, len(self.objects[key])) for key in sorted(self.objects) if key.startswith(prefix)]

    def delete(self, key: str) -> None:
        self._called("delete", key)
        self.objects.pop(key, None)

    def _must_have(self, key: str) -> None:
        if key not in self.objects:
            raise StoreMissing(f"{self.url}/{key}: NoSuchKey")

    def _called(self, call: str, key: str) -> None:
        self.calls.append((call, key))
        for fault in self._faults:
            if fault[0] == call and fault[1] in key:
                self._faults.remove(fault)
                raise fault[2]
