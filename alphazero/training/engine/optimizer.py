"""torch's optimizers with one more wish: to let a step pass without a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from alphazero.config import OptimizerConfig

# Per-parameter tensors of the optimizers, by their name in the settings; `step` is a counter apart.
STATE_KEYS = {
    "adamw": ("exp_avg", "exp_avg_sq"),
    "adam": ("exp_avg", "exp_avg_sq"),
    "sgd": ("momentum_buffer",),
}

# As a count of steps it leaves nothing of a bias: a decay rate below 1 to the power of it is 0.
MANY_STEPS = 1e9


class SkippableAdam(torch.optim.Adam):
    """Adam and AdamW (decoupled_weight_decay) that leave weights and moments alone while `skips` is set.

    DeepSpeed's engine calls `step` itself, in parts above ZeRO 0, and must do all else it does after a
    step: clear gradients and count. So a step over bad gradients is made and changes nothing. `found_inf`
    says the same to fused kernels, on the device: 1.0 leaves a step out, 0.0 makes it.
    """

    skips = False
    found_inf: torch.Tensor | None = None
    corrects_bias = True

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # noqa: ANN401 - torch's signature
        """torch's step, or nothing."""
        if self.skips:
            return None
        with _counts_of(self):
            return super().step(closure)


class SkippableSGD(torch.optim.SGD):
    """SGD that leaves weights and momentum alone while `skips` is set; see SkippableAdam."""

    skips = False
    found_inf: torch.Tensor | None = None

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # noqa: ANN401 - torch's signature
        """torch's step, or nothing."""
        return None if self.skips else super().step(closure)


@contextlib.contextmanager
def _counts_of(optimizer: SkippableAdam) -> Iterator[None]:
    """Where the bias is not to be corrected, a step within sees very many steps behind it.

    torch's Adam always corrects; so its own kernels do without, and the true counts stay in the state.
    """
    if optimizer.corrects_bias:
        yield
        return
    counts = [entry["step"] for entry in optimizer.state.values() if "step" in entry]
    before = [count.clone() for count in counts]
    for count in counts:
        count.fill_(MANY_STEPS)
    yield
    left_out = 0.0 if optimizer.found_inf is None else optimizer.found_inf
    for count, known in zip(counts, before, strict=True):
        count.copy_(known + 1 - left_out)


Skippable = SkippableAdam | SkippableSGD


def runs_fused(network: nn.Module) -> bool:
    """True on a GPU. torch has fused kernels for the CPU too; they round unlike those of earlier versions."""
    return next(network.parameters()).device.type == "cuda"


def make_optimizer(network: nn.Module, config: OptimizerConfig) -> Skippable:
    """The optimizer of the settings; no decay on biases and BatchNorm (all vectors).

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
        nesterov = config.nesterov and config.momentum > 0  # torch refuses the one without the other
        return SkippableSGD(
            groups, lr=config.learning_rate, momentum=config.momentum, nesterov=nesterov, fused=fused
        )
    optimizer = SkippableAdam(
        groups,
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_eps,
        decoupled_weight_decay=config.optimizer == "adamw",
        fused=fused,
    )
    optimizer.corrects_bias = config.adam_bias_correction
    return optimizer
