import builtins
import io
import os
import pickle
import zipfile

import pytest
import torch
from foreign_files import checkpoint_of, foreign_model, save_foreign

from remote.yolov9.checkpoint import CheckpointError
from remote.yolov9.foreign import read_foreign

NAMES = ["one", "two", "three"]


def test_tensors_come_in_order_with_names_and_size(tmp_path, monkeypatch):
    model, _ = foreign_model("gelan-t", NAMES)
    save_foreign(monkeypatch, tmp_path / "w.pt", checkpoint_of(model))
    with pytest.raises(ModuleNotFoundError):
        torch.load(tmp_path / "w.pt", weights_only=False)
    found = read_foreign(tmp_path / "w.pt")
    expected = list(model.state_dict().values())
    assert len(found.tensors) == len(expected)
    assert all(torch.equal(mine, theirs.float()) for mine, theirs in zip(found.tensors, expected, strict=True))
    assert {t.dtype for t in found.tensors} == {torch.float32, torch.int64}
    assert found.names == tuple(NAMES)
    assert found.image_size == 320


def test_averaged_weights_are_preferred(tmp_path, monkeypatch):
    model, _ = foreign_model("gelan-t", NAMES)
    average, _ = foreign_model("gelan-t", NAMES)
    for parameter in average.parameters():
        torch.nn.init.constant_(parameter, 7)
    save_foreign(monkeypatch, tmp_path / "w.pt", checkpoint_of(model, ema=average))
    assert read_foreign(tmp_path / "w.pt").tensors[0].eq(7).all()


def test_a_dictionary_of_tensors_will_do(tmp_path):
    torch.save({"a": torch.ones(2), "b": torch.zeros(3)}, tmp_path / "w.pt")
    assert [len(t) for t in read_foreign(tmp_path / "w.pt").tensors] == [2, 3]


class Call:
    """Pickles as a call of anything."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "hostile",
    [
        lambda marker: Call(os.system, f"touch {marker}"),
        lambda marker: Call(os.mkdir, str(marker)),
        lambda marker: Call(builtins.eval, f"__import__('os').mkdir({str(marker)!r})"),
        lambda marker: Call(getattr, Call(__import__, "os"), "mkdir"),
    ],
)
def test_nothing_in_a_file_is_run(tmp_path, monkeypatch, hostile):
    model, _ = foreign_model("gelan-t", NAMES)
    marker = tmp_path / "was-run"
    save_foreign(monkeypatch, tmp_path / "w.pt", checkpoint_of(model, optimizer=hostile(marker)))
    read_foreign(tmp_path / "w.pt")
    assert not marker.exists()


def _zip(path, pickled, **records):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w/data.pkl", pickled)
        for name, data in records.items():
            archive.writestr(f"w/data/{name}", data)


class Storage:
    """Pickles as a reference to record 0, of four numbers."""


class _Pickler(pickle._Pickler):
    def persistent_id(self, value):
        return ("storage", torch.FloatStorage, "0", "cpu", 4) if isinstance(value, Storage) else None


def _tensor(*geometry):
    out = io.BytesIO()
    call = Call(torch._utils._rebuild_tensor_v2, Storage(), *geometry, False, None)
    _Pickler(out, 2).dump({"model": {"a": call}})
    return out.getvalue()


def test_a_tensor_is_a_view_of_its_record(tmp_path):
    _zip(tmp_path / "w.pt", _tensor(1, (3,), (1,)), **{"0": torch.arange(4.0).numpy().tobytes()})
    assert read_foreign(tmp_path / "w.pt").tensors[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "geometry",
    [
        pytest.param((2, (3,), (1,)), id="past its end"),
        pytest.param((0, (1000, 1000, 1000), (0, 0, 0)), id="large from nothing"),
        pytest.param((-1, (2,), (1,)), id="before its start"),
    ],
)
def test_a_tensor_outside_its_record_is_refused(tmp_path, geometry):
    _zip(tmp_path / "w.pt", _tensor(*geometry), **{"0": torch.arange(4.0).numpy().tobytes()})
    with pytest.raises(CheckpointError, match=r"w\.pt: no checkpoint with a model"):
        read_foreign(tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "BadZipFile", id="empty"),
        pytest.param(b"PK\x03\x04 and so on", "BadZipFile", id="torn"),
        pytest.param(pickle.dumps({"model": 1}), "BadZipFile", id="a bare pickle"),
    ],
)
def test_other_files_are_refused(tmp_path, content, said):
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        read_foreign(tmp_path / "w.pt")


@pytest.mark.parametrize("payload", [{"model": "yolov9-t"}, {"model": None}, [1, 2], {}, 7])
def test_a_file_without_a_model_is_refused(tmp_path, payload):
    _zip(tmp_path / "w.pt", pickle.dumps(payload, 2))
    with pytest.raises(CheckpointError, match="there is no model in it"):
        read_foreign(tmp_path / "w.pt")


def test_modules_without_end_are_refused(tmp_path, monkeypatch):
    model, _ = foreign_model("gelan-t", NAMES)
    model._modules["again"] = model
    save_foreign(monkeypatch, tmp_path / "w.pt", checkpoint_of(model))
    with pytest.raises(CheckpointError, match=r"more than 10000 tensors|RecursionError"):
        read_foreign(tmp_path / "w.pt")
