"""Checkpoints that are whole or not there: temporary name, sync, rename, and a digest that is checked when reading.

Owns the file format. A checkpoint is a plain dictionary of tensors and simple values, so that reading needs no class
and no trust (`torch.load(weights_only=True)`). The digest covers every tensor and lies in the same file: one rename
commits both.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from typing_extensions import Buffer

FORMAT = 1
State = dict[str, Any]
"""Nested dictionaries, lists and tuples of tensors and simple values."""


_TORN = (OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, pickle.UnpicklingError)
"""What reading a torn or foreign file raises, somewhere inside the unpickler."""


class CheckpointError(Exception):
    """The file is not a whole checkpoint of a known format; the message names file and reason."""


def previous(path: Path) -> Path:
    """Where the checkpoint before `path` is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def save(path: Path, state: Mapping[str, Any], *, keep_previous: bool = False) -> None:
    """Replace `path`; tensors are copied to the CPU first. A crash at any point leaves the old file or the new one.

    Raises OSError; the old file is then still there, and the space of the new one is given back.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = map_tensors(dict(state), lambda _, tensor: tensor.detach().cpu())
    payload = {"format": FORMAT, "digest": digest(plain), **plain}
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        _write(temporary, payload)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if keep_previous and path.exists():
        _keep(path)
    temporary.replace(path)
    _sync_folder(path.parent)


def load(path: Path) -> State:
    """Read and verify. Raises FileNotFoundError, or CheckpointError for a torn, foreign or altered file."""
    try:
        payload = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except _TORN as error:
        raise CheckpointError(f"{path}: not a whole checkpoint ({type(error).__name__})") from error
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        found = payload.get("format") if isinstance(payload, dict) else None
        raise CheckpointError(f"{path}: format {found!r}, this version reads {FORMAT}")
    state = {key: value for key, value in payload.items() if key not in ("format", "digest")}
    if digest(state) != payload.get("digest"):
        raise CheckpointError(f"{path}: its content does not agree with its digest")
    return state


def load_newest(path: Path, check: Callable[[Path, State], None] | None = None) -> tuple[State | None, dict[Path, str]]:
    """The newest usable one of `path` and the checkpoint before it, or None; and what is wrong with which others.

    `check` raises CheckpointError for one that is whole and cannot be used all the same.
    """
    faults: dict[Path, str] = {}
    for candidate in (path, previous(path)):
        try:
            state = load(candidate)
            if check is not None:
                check(candidate, state)
        except FileNotFoundError:
            continue
        except CheckpointError as error:
            faults[candidate] = str(error)
        else:
            return state, faults
    return None, faults


def set_aside(path: Path, faulty: Iterable[Path]) -> None:
    """Rename unusable files of `path` and the one before, so that none is kept where a good one is dropped for it.

    The one before gets the name of `path` as well where that is free.
    """
    for unusable in faulty:
        unusable.replace(unusable.with_name(f"{unusable.stem}.unusable{unusable.suffix}"))
    if previous(path).exists() and not path.exists():
        os.link(previous(path), path)


def digest(state: object) -> str:
    """SHA-256 over the tensors: names, types, shapes and bytes."""
    found = hashlib.sha256()

    def feed(name: str, value: object) -> None:
        if isinstance(value, Tensor):
            found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            found.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        elif isinstance(value, dict):
            for key, item in value.items():
                feed(f"{name}/{key}", item)
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                feed(f"{name}/{index}", item)

    feed("", state)
    return found.hexdigest()


def map_tensors(value: Any, change: Callable[[str, Tensor], Tensor], name: str = "") -> Any:  # noqa: ANN401 - a tree of anything simple
    """The same tree with every tensor changed; `change` is given its place in the tree, and the tensor."""
    if isinstance(value, Tensor):
        return change(name, value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change, f"{name}/{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([map_tensors(item, change, f"{name}/{index}") for index, item in enumerate(value)])
    return value


def half(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy on the host with floating-point tensors in half precision, for weights that are only run."""
    return {
        name: t.detach().half().cpu() if t.is_floating_point() else t.detach().cpu().clone()
        for name, t in state.items()
    }


def random_state() -> State:
    """The state of every global random generator."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (str(kind), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def try_random_state(state: State) -> None:
    """Restore it into generators that nobody uses. Raises what they raise where it is no state of theirs."""
    random.Random().setstate(state["python"])  # noqa: S311 - not for secrets
    np.random.RandomState().set_state(_numpy_state(state))
    torch.Generator().set_state(state["torch"])


def restore_random_state(state: State) -> None:
    """The inverse of `random_state`; GPU generators only where their number is the same."""
    random.setstate(state["python"])
    np.random.set_state(_numpy_state(state))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def _numpy_state(state: State) -> tuple[str, np.ndarray[Any, np.dtype[np.uint32]], int, int, float]:
    kind, keys, position, has_gauss, gauss = state["numpy"]
    return kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss


def _write(path: Path, payload: State) -> None:
    with _File(io.FileIO(path, "w")) as out:
        try:
            torch.save(payload, out)
        except RuntimeError as error:
            raise out.fault or error from error
        out.flush()
        os.fsync(out.fileno())


class _File(io.BufferedWriter):
    """Keeps the reason of a failed write: torch.save makes a RuntimeError about positions of a full disk."""

    fault: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        """As the parent does."""
        try:
            return super().write(data)
        except OSError as error:
            self.fault = error
            raise


def _keep(path: Path) -> None:
    """Give the present file its second name; `path` itself stays where it is."""
    spare = path.with_name(f".{path.name}.link")
    spare.unlink(missing_ok=True)
    os.link(path, spare)
    spare.replace(previous(path))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
