"""The launcher's object-storage port in memory, with behaviour: faults on chosen calls, and outages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from launcher.storage.interface import StorageError, StoredObject

URL = "s3://bucket/runs"


@dataclass(frozen=True)
class Fault:
    """What the next matching call answers."""

    call: str
    key_part: str
    error: Exception
    effect: bool


@dataclass
class FakeStore:
    """An `ObjectStore`. What machines write goes straight into `objects`: their network is not the launcher's."""

    url: str = URL
    objects: dict[str, bytes] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Those of the calls that were not answered, or with an error."""
    down: bool = False
    """No call of the launcher is answered."""
    down_for_machines: bool = False
    """No call of the machines is answered."""
    after_call: Callable[[str], None] = lambda _name: None
    _faults: list[Fault] = field(default_factory=list)

    def fail(
        self, call: str, key_part: str = "", times: int = 1, error: Exception | None = None, *, effect: bool = False
    ) -> None:
        """The next `times` calls of this name whose key contains `key_part` raise; with `effect` after being done."""
        self._faults += [Fault(call, key_part, error or self._unreachable(), effect)] * times

    def heal(self) -> None:
        """From now on every call is answered."""
        self.down = self.down_for_machines = False
        self._faults.clear()

    def list(self, prefix: str) -> list[StoredObject]:
        self._called("list", prefix)
        found = [StoredObject(key, len(self.objects[key])) for key in sorted(self.objects) if key.startswith(prefix)]
        self.after_call("store.list")
        return found

    def get(self, key: str, span: range | None = None) -> bytes | None:
        self._called("get", key)
        self.after_call("store.get")
        content = self.objects.get(key)
        return content if content is None or span is None else content[span.start : span.stop]

    def download(self, key: str, target: Path) -> None:
        self._called("download", key)
        if key not in self.objects:
            raise StorageError(f"there is no {self.url}/{key}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.objects[key])
        self.after_call("store.download")

    def upload(self, source: Path, key: str) -> None:
        lost = self._called("upload", key)
        self.objects[key] = source.read_bytes()
        self._answer("upload", lost)

    def create(self, key: str, content: bytes) -> bool:
        lost = self._called("create", key)
        mine = bytes(bytearray(content))  # an object of its own, whatever the caller's is
        made = self.objects.setdefault(key, mine) is mine
        self._answer("create", lost)
        return made

    def _called(self, call: str, key: str) -> Exception | None:
        """Raises what stands in the way; what is to be raised once the call is carried out."""
        self.calls.append((call, key))
        if self.down:
            self.failed.append((call, key))
            raise self._unreachable()
        for fault in self._faults:
            if fault.call == call and fault.key_part in key:
                self._faults.remove(fault)
                self.failed.append((call, key))
                if fault.effect:
                    return fault.error
                raise fault.error
        return None

    def _answer(self, call: str, lost: Exception | None) -> None:
        self.after_call(f"store.{call}")
        if lost is not None:
            raise lost

    def _unreachable(self) -> StorageError:
        return StorageError(f"{self.url} cannot be reached: injected", hint="check the network")
