"""Files as another trainer writes them: whole pickled modules of classes that a reader does not have."""

import copy
import sys
import types
from argparse import Namespace

import torch
from torch import nn

from remote.yolov9.model import build


class ForeignModel(nn.Module):
    def __init__(self, layers, names):
        super().__init__()
        self.model = layers
        self.names = names
        self.yaml = {"nc": len(names)}


def foreign_model(name, names, class_width=None):
    """A detector as modules of a package that only the writer has; the head's DFL layers are its last ones."""
    torch.manual_seed(1)
    ours = build(name, len(names), class_width)
    for tensor in ours.state_dict().values():
        if tensor.is_floating_point() and tensor.shape != (1, 16, 1, 1):
            tensor.mul_(1 + 0.1 * torch.rand_like(tensor)).add_(0.001 * torch.rand_like(tensor))
    theirs = copy.deepcopy(ours)
    for part in ("dfl", "dfl2"):
        if part in theirs.head._modules:
            theirs.head._modules[part] = theirs.head._modules.pop(part)
    return ForeignModel(nn.Sequential(*theirs.layers), names).half(), ours


def save_foreign(monkeypatch, path, payload):
    """Pickle with every class of ours under the name of a package that is gone when the file is read."""
    package = types.ModuleType("elsewhere.layers")
    with monkeypatch.context() as during:
        during.setitem(sys.modules, "elsewhere", types.ModuleType("elsewhere"))
        during.setitem(sys.modules, "elsewhere.layers", package)
        for kind in {ForeignModel, *_kinds(payload)}:
            setattr(package, kind.__name__, kind)
            during.setattr(kind, "__module__", "elsewhere.layers")
        torch.save(payload, path)


def _kinds(payload):
    modules = [m for value in payload.values() if isinstance(value, nn.Module) for m in value.modules()]
    return {type(m) for m in modules if type(m).__module__.startswith("remote.")}


def checkpoint_of(model, **more):
    return {"epoch": -1, "best_fitness": None, "model": model, "ema": None, "opt": Namespace(imgsz=320), **more}
