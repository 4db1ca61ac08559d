"""Parameter groups, learning-rate schedule, gradient step, and the exponential moving average of the weights.

Owns what happens after backward. Knows nothing of data or losses. A step here is one batch, not one optimiser step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from remote.yolov9.model import Detector
from remote.yolov9.recipe import Recipe

CLIP_NORM = 10.0


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Biases, weights, norm weights; only weights decay. The warm-up of SGD relies on biases being first."""
    biases, weights, norms = [], [], []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad:
                continue
            if name == "bias":
                biases.append(parameter)
            elif isinstance(module, nn.modules.batchnorm._BatchNorm):
                norms.append(parameter)
            else:
                weights.append(parameter)
    decays = (0.0, weight_decay, 0.0)
    return [{"params": p, "weight_decay": d} for p, d in zip((biases, weights, norms), decays, strict=True)]


def make_optimizer(model: nn.Module, recipe: Recipe, *, scaled: bool = False) -> torch.optim.Optimizer:
    """The recipe's optimiser over the model's groups; `scaled`: a gradient scaler will have it leave out steps."""
    hyp = recipe.hyp
    groups = parameter_groups(model, recipe.weight_decay)
    if recipe.optimizer == "sgd":
        # The fused form (torch 2.13) takes whatever is in memory for momentum where the first step is left out.
        return torch.optim.SGD(groups, lr=hyp.lr0, momentum=hyp.momentum, nesterov=True, fused=not scaled)
    return torch.optim.AdamW(groups, lr=hyp.lr0, betas=(hyp.momentum, 0.999), fused=True)


def _half_cosine(done: float) -> float:
    return (1 + math.cos(math.pi * done)) / 2


_LEFT: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": _half_cosine,
    "flat_cosine": lambda done: _half_cosine(max(2 * done - 1, 0.0)),
    "constant": lambda _done: 1.0,
}
"""What is left of the way from 1 to `lrf` when that share of the steps is done."""


class Schedule:
    """Learning rate, momentum and accumulation as functions of the step: nothing to store for a resume."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def decay(self, step: int) -> float:
        """Factor on the learning rate: 1 falling to `lrf`, as the recipe's schedule says."""
        left = _LEFT[self._recipe.lr_schedule](min(step / self._recipe.steps, 1.0))
        return self._recipe.hyp.lrf + (1 - self._recipe.hyp.lrf) * left

    def warm(self, step: int) -> float:
        """How far the warm-up is, 0 to 1."""
        return min(step / self._recipe.warmup_steps, 1.0) if self._recipe.warmup_steps else 1.0

    def accumulate(self, step: int) -> int:
        """Batches an optimiser step; grows from 1 during the warm-up."""
        return max(1, round(1 + self.warm(step) * (self._recipe.accumulate - 1)))

    def apply(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Set the groups for this step. The first group, the biases, warms up from its own rate."""
        hyp, warm = self._recipe.hyp, self.warm(step)
        target = hyp.lr0 * self.decay(step)
        momentum = hyp.warmup_momentum + warm * (hyp.momentum - hyp.warmup_momentum)
        for index, group in enumerate(optimizer.param_groups):
            start = self._recipe.warmup_bias_lr if index == 0 else 0.0
            group["lr"] = start + warm * (target - start)
            if "momentum" in group:
                group["momentum"] = momentum


def gradient_step(model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    """Unscale, clip to a total norm of 10, step, and clear the gradients."""
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)


class Ema:
    """A copy whose floating-point state follows the model's with decay x (1 - exp(-n / ramp)) after n updates."""

    def __init__(self, model: Detector, decay: float, ramp: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
        self.updates = 0
        self._decay = decay
        self._ramp = ramp
        self._mine, self._theirs = _floating(self.model), _floating(model)

    def update(self) -> None:
        """Move towards the model's present state; all tensors in a few fused calls."""
        self.updates += 1
        decay = self._decay * (1 - math.exp(-self.updates / self._ramp))
        torch._foreach_lerp_(self._mine, self._theirs, 1 - decay)

    def state_dict(self) -> dict[str, Any]:
        """Weights and the number of updates."""
        return {"model": self.model.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`, in place."""
        self.model.load_state_dict(state["model"])
        self.updates = state["updates"]


def _floating(model: nn.Module) -> list[Tensor]:
    return [t.detach() for t in model.state_dict().values() if t.is_floating_point()]


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no value is infinite or not a number; one synchronisation."""
    norms = torch._foreach_norm([t for t in tensors if t.is_floating_point()])
    return bool(torch.stack(norms).isfinite().all())
