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
    step: clear gradients and count. So a step over bad gradients is made and changes nothing.
    """

    skips = False

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # noqa: ANN401 - torch's signature
        """torch's step, or nothing."""
        return None if self.skips else super().step(closure)


class SkippableSGD(torch.optim.SGD):
    """SGD that leaves weights and momentum alone while `skips` is set; see SkippableAdamW."""

    skips = False

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # noqa: ANN401 - torch's signature
        """torch's step, or nothing."""
        return None if self.skips else super().step(closure)


Skippable = SkippableAdamW | SkippableSGD


def make_optimizer(network: nn.Module, config: OptimizerConfig) -> Skippable:
    """AdamW, or SGD with Nesterov momentum; no decay on biases and BatchNorm (all vectors)."""
    matrices = [parameter for parameter in network.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in network.parameters() if parameter.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if config.optimizer == "sgd":
        nesterov = config.momentum > 0
        return SkippableSGD(groups, lr=config.learning_rate, momentum=config.momentum, nesterov=nesterov)
    betas = (config.adam_beta1, config.adam_beta2)
    return SkippableAdamW(groups, lr=config.learning_rate, betas=betas)
