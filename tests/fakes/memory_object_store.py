"""The launcher's object-storage port in memory, with behaviour: faults on chosen calls, and outages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from launcher.storage.interface import StorageError, StoredObject

URL = "s3://bucket/runs"


@dataclass
class FakeStore:
    """An `ObjectStore`. What machines write goes straight into `objects`: their network is not the launcher's."""

    url: str = URL
    objects: dict[str, bytes] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    down: bool = False
    """No call of the launcher is answered."""
    after_call: Callable[[str], None] = lambda _name: None
    _faults: list[tuple[str, str, Exception]] = field(default_factory=list)

    def fail(self, call: str, key_part: str = "", times: int = 1, error: Exception | None = None) -> None:
        """The next `times` calls of this name whose key contains `key_part` raise."""
        self._faults += [(call, key_part, error or self._unreachable())] * times

    def list(self, prefix: str) -> list[StoredObject]:
        self._called("list", prefix)
        found = [StoredObject(key, len(self.objects[key])) for key in sorted(self.objects) if key.startswith(prefix)]
        self.after_call("store.list")
        return found

    def get(self, key: str) -> bytes | None:
        self._called("get", key)
        self.after_call("store.get")
        return self.objects.get(key)

    def download(self, key: str, target: Path) -> None:
        self._called("download", key)
        if key not in self.objects:
            raise StorageError(f"there is no {self.url}/{key}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.objects[key])
        self.after_call("store.download")

    def upload(self, source: Path, key: str) -> None:
        self._called("upload", key)
        self.objects[key] = source.read_bytes()
        self.after_call("store.upload")

    def create(self, key: str, content: bytes) -> bool:
        self._called("create", key)
        mine = bytes(bytearray(content))  # an object of its own, whatever the caller's is
        made = self.objects.setdefault(key, mine) is mine
        self.after_call("store.create")
        return made

    def _called(self, call: str, key: str) -> None:
        self.calls.append((call, key))
        if self.down:
            raise self._unreachable()
        for fault in self._faults:
            if fault[0] == call and fault[1] in key:
                self._faults.remove(fault)
                raise fault[2]

    def _unreachable(self) -> StorageError:
        return StorageError(f"{self.url} cannot be reached: injected", hint="check the network")
