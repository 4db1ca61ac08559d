"""Detectors for other runtimes: ONNX and TorchScript files of the inference form, each compared with what it came from.

The graph takes `images` (B, 3, H, W), float32 RGB in 0..1, and gives `output` (B, 4 + K, P): for each of the P cells
centre x and y, width and height in pixels of the input, then K class probabilities. Suppression is the caller's.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from remote.yolov9.boxes import Grid, decode
from remote.yolov9.model import Detector
from remote.yolov9.optional import required
from remote.yolov9.trained import Trained
from remote.yolov9.variants import STRIDES
from remote.yolov9.whole import whole

FORMATS = ("onnx", "torchscript")
OPSETS = range(12, 21)
"""Versions of ONNX operators that torch writes these graphs with."""
PIXELS, PROBABILITY = 0.05, 1e-3
"""How far the boxes and the probabilities of an exported file may be from those of torch."""


class ExportError(Exception):
    """The file was not made; the message says why and what would do."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The input of an exported detector."""

    batch: int
    height: int
    width: int
    any_batch: bool = False
    """The file takes batches of any size; `batch` is only that of the trial."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that agrees with torch."""

    path: Path
    pixels: float
    """Largest difference of a box, in pixels, on random pictures."""
    probability: float


class Graph(nn.Module):
    """A detector with one tensor as its answer."""

    centres: Tensor
    strides: Tensor

    def __init__(self, model: Detector, height: int, width: int) -> None:
        super().__init__()
        self.model = model
        grid = model.grid(height, width, next(model.parameters()).device)
        self.register_buffer("centres", grid.centres, persistent=False)
        self.register_buffer("strides", grid.strides, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 4 + K, P)."""
        prediction = self.model(images).main
        first, second = decode(prediction.distances, Grid(self.centres, self.strides)).chunk(2, -1)
        boxes = torch.cat(((first + second) / 2, second - first), -1)
        return torch.cat((boxes, prediction.class_logits.sigmoid()), -1).transpose(1, 2)


def export(trained: Trained, form: str, path: Path, shape: Shape, opset: int = 17) -> Exported:
    """Write `path` whole, after it was read again and compared. Raises ExportError, MissingPackage, OSError."""
    graph = Graph(trained.model, shape.height, shape.width).eval()
    with whole(path) as temporary, torch.no_grad(), _quietly():
        run = _WRITERS[form](graph, temporary, shape, trained, opset)
        pixels, probability = _differences(graph, run, shape)
        if not (pixels <= PIXELS and probability <= PROBABILITY):
            far = f"boxes differ by {pixels:.3g} pixels and probabilities by {probability:.3g}"
            raise ExportError(f"{path.name} does not agree with torch: {far}")
    return Exported(path, pixels, probability)


_Run = Callable[[Tensor], Tensor]


def _differences(graph: Graph, run: _Run, shape: Shape) -> tuple[float, float]:
    """Largest differences of boxes and probabilities on random pictures; of another batch size too if any will do."""
    generator = torch.Generator().manual_seed(0)
    pixels = probability = 0.0
    for batch in (shape.batch, shape.batch + 1) if shape.any_batch else (shape.batch,):
        images = torch.rand(batch, 3, shape.height, shape.width, generator=generator)
        apart = (run(images) - graph(images)).abs()
        pixels = max(pixels, float(apart[:, :4].max()))
        probability = max(probability, float(apart[:, 4:].max()))
    return pixels, probability


def _write_onnx(graph: Graph, path: Path, shape: Shape, trained: Trained, opset: int) -> _Run:
    if opset not in OPSETS:
        raise ExportError(f"opset {opset}: expected {OPSETS[0]} to {OPSETS[-1]}")
    onnx, onnxruntime = required("onnx", "export"), required("onnxruntime", "export")
    names = ["images", "output"]
    # The tracing exporter is the one that all versions of torch from 2.4 to 2.13 have, and the quicker one.
    torch.onnx.export(
        graph,
        (torch.zeros(shape.batch, 3, shape.height, shape.width),),
        str(path),
        input_names=names[:1],
        output_names=names[1:],
        dynamic_axes={name: {0: "batch"} for name in names} if shape.any_batch else None,
        opset_version=opset,
        dynamo=False,
    )
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, _facts(trained))
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(names[1:], {names[0]: images.numpy()})[0])


def _write_torchscript(graph: Graph, path: Path, shape: Shape, trained: Trained, _opset: int) -> _Run:
    traced = torch.jit.trace(graph, torch.zeros(shape.batch, 3, shape.height, shape.width))  # type: ignore[no-untyped-call]
    torch.jit.save(traced, str(path), _extra_files={"facts.json": json.dumps(_facts(trained))})
    loaded: _Run = torch.jit.load(str(path))  # type: ignore[no-untyped-call]
    return loaded


_WRITERS = {"onnx": _write_onnx, "torchscript": _write_torchscript}


def _facts(trained: Trained) -> dict[str, str]:
    """What a user of the file has to know, as texts."""
    return {
        "model": trained.model.variant.name,
        "names": json.dumps(dict(enumerate(trained.names)), ensure_ascii=False),
        "stride": str(max(STRIDES)),
        "image_size": str(trained.image_size),
    }


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings that tracing is an old way, and that shapes become constants."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
