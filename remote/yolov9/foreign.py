"""Checkpoints of other programs that hold whole pickled modules, read without running anything that is in them.

Owns the reading: tensors are rebuilt, every class and function that a file names becomes an inert object that keeps
what it is given. Knows nothing of variants. The file is what `torch.save` writes since 1.6: a zip of `data.pkl` and a
record for each storage.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remote.yolov9.checkpoint import CheckpointError

LARGEST_PICKLE = 64 << 20
"""Bytes of `data.pkl`: structure alone, the numbers lie beside it."""
MOST_TENSORS = 10_000
"""More than any detector has; modules that hold each other would have no end."""
_STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_PLAIN = {"OrderedDict": OrderedDict, "set": set, "frozenset": frozenset, "dict": dict, "list": list, "tuple": tuple}
_FAULTS = (
    OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError,
    NotImplementedError, pickle.UnpicklingError, zipfile.BadZipFile,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Foreign:
    """What can be used of such a file."""

    tensors: tuple[Tensor, ...]
    """Parameters and buffers in the order in which the modules hold them; floating-point ones as float32."""
    names: tuple[str, ...]
    """Of the classes; empty where the file has none."""
    image_size: int | None


def read_foreign(path: Path) -> Foreign:
    """Read a checkpoint with a pickled model, its averaged weights where it has them.

    Raises CheckpointError, which names the file and what is wrong with it.
    """
    try:
        payload = _payload(path)
        model = _model(payload)
        tensors = tuple(t.float() if t.is_floating_point() else t for t in islice(_tensors(model), MOST_TENSORS + 1))
        if len(tensors) > MOST_TENSORS:
            raise ValueError(f"more than {MOST_TENSORS} tensors")
        names = _names(_attributes(model).get("names"))
        return Foreign(tensors, names, _image_size(payload))
    except _FAULTS as error:
        said = str(error).splitlines()[0] if str(error) else "nothing more is known"
        raise CheckpointError(f"{path}: no checkpoint with a model ({type(error).__name__}: {said})") from error


class _Inert:
    """Stands for an object of any class: takes whatever the file gives it, and does nothing with it."""

    def __init__(self, *_args: object, **_more: object) -> None:
        self.state: Any = None

    def __new__(cls, *_args: object, **_more: object) -> _Inert:
        made = super().__new__(cls)
        made.state = None
        return made

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, _key: object, _value: object) -> None: ...

    def __hash__(self) -> int:
        return id(self)

    def append(self, _item: object) -> None:
        """As pickles of lists want it."""

    def extend(self, _items: object) -> None:
        """The same."""


class _Unpickler(pickle.Unpickler):
    """Gives every name in the file to `_Inert`, but for tensors, their storages and a few containers."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(io.BytesIO(_record(archive, f"{root}/data.pkl", LARGEST_PICKLE)))
        self._archive = archive
        self._root = root
        self._storages: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str, /) -> Any:  # noqa: ANN401 - a class, a function or a data type
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor"):
            return _rebuild_tensor
        if module == "torch._utils" and name in ("_rebuild_parameter", "_rebuild_parameter_with_state"):
            return _rebuild_parameter
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if module in ("collections", "builtins", "__builtin__") and name in _PLAIN:
            return _PLAIN[name]
        return type(name, (_Inert,), {})

    def persistent_load(self, pid: Any, /) -> Tensor:  # noqa: ANN401 - what the file says
        """A storage as a flat tensor; read once however many tensors share it."""
        kind, dtype, key, _location, count = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype):
            raise ValueError(f"a record of an unknown kind, {kind!r} of {dtype!r}")
        if key not in self._storages:
            data = _record(self._archive, f"{self._root}/data/{key}", count * dtype.itemsize)
            flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
            self._storages[key] = flat
        return self._storages[key]


def _rebuild_tensor(storage: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object) -> Tensor:
    if math.prod(size) > storage.numel():
        raise ValueError(f"a tensor of shape {size} in a storage of {storage.numel()} numbers")
    return storage.as_strided(size, stride, offset)  # refuses what lies outside the storage


def _rebuild_parameter(data: Tensor, *_: object) -> Tensor:
    return data


def _payload(path: Path) -> Any:  # noqa: ANN401 - what the file holds
    with zipfile.ZipFile(path) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(pickles) != 1:
            raise ValueError("not a file of torch.save")
        root = pickles[0].partition("/")[0]
        if f"{root}/byteorder" in archive.namelist() and archive.read(f"{root}/byteorder") != b"little":
            raise ValueError("its numbers are big-endian")
        return _Unpickler(archive, root).load()


def _record(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A record as it is; torch never compresses, and what is no larger than said cannot fill the memory."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > most:
        raise ValueError(f"{name} is compressed, or larger than {most} bytes")
    return archive.read(info)


def _model(payload: Any) -> Any:  # noqa: ANN401
    """The module, or the dictionary of tensors, that the file is about."""
    if isinstance(payload, _Inert):
        payload = {"model": payload}
    if isinstance(payload, Mapping) and "digest" not in payload:  # one of ours with a digest is not foreign
        for key in ("ema", "model", "state_dict"):
            if _is_model(payload.get(key)):
                return payload[key]
        if _is_model(payload):
            return payload
    raise ValueError("there is no model in it")


def _is_model(value: object) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(item, Tensor) for item in value.values())
    return isinstance(value, _Inert) and "_modules" in _attributes(value)


def _attributes(value: object) -> Mapping[str, Any]:
    state = value.state if isinstance(value, _Inert) else None
    return state if isinstance(state, Mapping) else {}


def _tensors(model: object) -> Iterator[Tensor]:
    """As `state_dict` lists them: a module's parameters, its buffers, then its children."""
    if isinstance(model, Mapping):
        yield from model.values()
        return
    state = _attributes(model)
    transient = state.get("_non_persistent_buffers_set", ())
    yield from (t for t in state["_parameters"].values() if isinstance(t, Tensor))
    yield from (t for name, t in state["_buffers"].items() if isinstance(t, Tensor) and name not in transient)
    for child in state["_modules"].values():
        if child is not None:
            yield from _tensors(child)


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        value = [value[key] for key in sorted(value)]
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _image_size(payload: object) -> int | None:
    options = _attributes(payload.get("opt")) if isinstance(payload, Mapping) else {}
    size = options.get("imgsz")
    return size if isinstance(size, int) and size > 0 else None
