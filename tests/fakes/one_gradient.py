"""`python one_gradient.py CONFIG OUTPUT`, also under torchrun: the gradients of the first batch of a training.

Norms use their running statistics: those of a batch would be other ones in each process.
"""

import json
import os
import sys
from pathlib import Path

import torch
from tiny_training import build

from remote.yolov9 import data, engine
from remote.yolov9.distributed import Ranks


def main(config, output):
    ranks = Ranks.from_environment(os.environ)
    ranks.open(torch.device("cpu"))
    run = build(json.loads(Path(config).read_text()), ranks=ranks)
    run.network.train()
    for module in run.model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    engine.backward(run, next(data.train_batches(run.train, run.order, (0, 0), run.loading)))
    if ranks.leads:
        torch.save({name: p.grad for name, p in run.model.named_parameters() if p.grad is not None}, output)
    ranks.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
