"""BatchNorm's running statistics under accumulation and data parallelism.

A forward pass normalises by its own micro-batch. The running statistics move once a step, by the
mean over all micro-batches of all ranks, so that any number of ranks keeps the same ones (DESIGN:
the unit of work is a micro-batch). DeepSpeed synchronises no buffers by itself.
"""

from __future__ import annotations

import torch
from torch import nn

from alphazero.training.exchange import Exchange

MOMENTUM = 0.1  # torch's default: new = 0.9 old + 0.1 mean over the step


class RunningStatistics:
    """Owns the running statistics of a network in training.

    Between `step`s the modules' buffers hold statistics of the last micro-batch; the true ones are
    put there by `publish`, before evaluation, checkpoints and export.
    """

    def __init__(self, network: nn.Module, exchange: Exchange) -> None:
        self._exchange = exchange
        self._buffers: list[torch.Tensor] = []
        self._names: list[str] = []
        self._counters: list[torch.Tensor] = []
        for name, module in network.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                # With momentum 1 a training pass leaves exactly its own statistics in the buffers.
                module.momentum = 1.0
                assert module.running_mean is not None and module.running_var is not None
                assert module.num_batches_tracked is not None
                self._counters.append(module.num_batches_tracked)
                self._buffers += [module.running_mean, module.running_var]
                self._names += [f"{name}.running_mean", f"{name}.running_var"]
        # Forward passes count on in the modules' counters; ranks may make unlike numbers of them.
        self._updates = int(self._counters[0]) if self._counters else 0
        self._running = [buffer.clone() for buffer in self._buffers]
        self._sums = [torch.zeros_like(buffer) for buffer in self._buffers]

    def add_micro_batch(self) -> None:
        """Count the statistics that the forward pass just made (not for padding passes)."""
        torch._foreach_add_(self._sums, self._buffers)

    def step(self, num_micro_batches: int) -> None:
        """Move the running statistics by the mean over the step's `num_micro_batches` of all ranks."""
        if not self._buffers:
            return
        flat = torch.cat(self._sums)
        if self._exchange.world_size > 1:
            torch.distributed.all_reduce(flat)
        means = torch.split(flat / num_micro_batches, [buffer.numel() for buffer in self._buffers])
        torch._foreach_lerp_(self._running, list(means), MOMENTUM)
        torch._foreach_zero_(self._sums)
        self._updates += 1

    def named(self) -> dict[str, torch.Tensor]:
        """The running statistics by buffer name; they change in place."""
        return dict(zip(self._names, self._running, strict=True))

    def discard(self) -> None:
        """Forget what was counted since the last step: that step is not to be."""
        torch._foreach_zero_(self._sums)

    def publish(self) -> None:
        """Put the running statistics into the network's buffers."""
        torch._foreach_copy_(self._buffers, self._running)
        for counter in self._counters:
            counter.fill_(self._updates)
