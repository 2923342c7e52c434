"""torch's optimizers with one more wish: to let a step pass without a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from alphazero.config import OptimizerConfig

# Per-parameter tensors of the optimizers, by their name in the settings; `step` is a counter apart.
STATE_KEYS = {"adamw": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",)}


class SkippableAdamW(torch.optim.AdamW):
    """AdamW that leaves weights and moments alone while `skips` is set.

    DeepSpeed's engine calls `step` itself, in parts above ZeRO 0, and must do all else it does after a
    step: clear gradients and count. So a step over bad gradients is made and changes nothing. `found_inf`
    says the same to fused kernels, on the device: 1.0 leaves a step out, 0.0 makes it.
    """

    skips = False
    found_inf: torch.Tensor | None = None

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # noqa: ANN401 - torch's signature
        """torch's step, or nothing."""
        return None if self.skips else super().step(closure)


class SkippableSGD(torch.optim.SGD):
    """SGD that leaves weights and momentum alone while `skips` is set; see SkippableAdamW."""

    skips = False
    found_inf: torch.Tensor | None = None

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # noqa: ANN401 - torch's signature
        """torch's step, or nothing."""
        return None if self.skips else super().step(closure)


Skippable = SkippableAdamW | SkippableSGD


def runs_fused(network: nn.Module) -> bool:
    """True on a GPU. torch has fused kernels for the CPU too; they round unlike those of earlier versions."""
    return next(network.parameters()).device.type == "cuda"


def make_optimizer(network: nn.Module, config: OptimizerConfig) -> Skippable:
    """AdamW, or SGD with Nesterov momentum; no decay on biases and BatchNorm (all vectors).

    On a GPU one kernel does a whole step, and leaves it out where `found_inf` on the device says so.
    """
    fused = runs_fused(network)
    matrices = [parameter for parameter in network.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in network.parameters() if parameter.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if config.optimizer == "sgd":
        nesterov = config.momentum > 0
        return SkippableSGD(
            groups, lr=config.learning_rate, momentum=config.momentum, nesterov=nesterov, fused=fused
        )
    betas = (config.adam_beta1, config.adam_beta2)
    return SkippableAdamW(groups, lr=config.learning_rate, betas=betas, fused=fused)
