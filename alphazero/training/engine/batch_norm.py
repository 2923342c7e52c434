"""BatchNorm's running statistics under accumulation and data parallelism.

A forward pass normalises by its own micro-batch. The running statistics move once a step, by the mean over
all micro-batches of all ranks, so that any number of ranks keeps the same ones. DeepSpeed synchronises no
buffers by itself.
"""

from __future__ import annotations

import torch
from torch import nn

MOMENTUM = 0.1  # torch's default: new = 0.9 old + 0.1 mean over the step

# Shapes: S numbers of all running statistics of a network.


def count_statistics(network: nn.Module) -> int:
    """S: a mean and a variance for each channel of each BatchNorm."""
    return sum(2 * module.num_features for module in network.modules() if isinstance(module, nn.BatchNorm2d))


class RunningStatistics:
    """Owns the running statistics of a network in training.

    Between `step`s the modules' buffers hold statistics of the last micro-batch; the true ones are
    put there by `publish`, before evaluation, checkpoints and export.
    """

    def __init__(self, network: nn.Module, sums_S: torch.Tensor) -> None:
        """sums_S: where the statistics of micro-batches add up, f32; whoever has it sums it over ranks."""
        self._buffers: list[torch.Tensor] = []
        self._names: list[str] = []
        self._counters: dict[str, torch.Tensor] = {}
        for name, module in network.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                # With momentum 1 a training pass leaves exactly its own statistics in the buffers.
                module.momentum = 1.0
                assert module.running_mean is not None and module.running_var is not None
                assert module.num_batches_tracked is not None
                self._counters[f"{name}.num_batches_tracked"] = module.num_batches_tracked
                # Otherwise each BatchNorm launches an addition of one at each forward pass.
                module.num_batches_tracked = None
                self._buffers += [module.running_mean, module.running_var]
                self._names += [f"{name}.running_mean", f"{name}.running_var"]
        # What the modules counted were updates of all ranks, not passes of this one.
        self._updates = int(next(iter(self._counters.values()))) if self._counters else 0
        self._sizes = [buffer.numel() for buffer in self._buffers]
        self._running_S = torch.cat(self._buffers) if self._buffers else sums_S.new_zeros(0)
        self._running = list(torch.split(self._running_S, self._sizes))
        self._sums_S = sums_S
        self._sums = list(torch.split(sums_S, self._sizes))

    def add_micro_batch(self) -> None:
        """Count the statistics that the forward pass just made (not for padding passes)."""
        if self._buffers:  # an attention body has no BatchNorm
            torch._foreach_add_(self._sums, self._buffers)

    def step(self, num_micro_batches: int, is_bad: torch.Tensor | None = None) -> None:
        """Move the running statistics by the mean over the step's `num_micro_batches` of all ranks.

        is_bad: 0-d on the device; where it is not 0 they stay as they are.
        """
        if not self._buffers:
            return
        means_S = self._sums_S / num_micro_batches
        if is_bad is None:
            torch._foreach_lerp_(self._running, list(torch.split(means_S, self._sizes)), MOMENTUM)
        else:
            moved_S = torch.lerp(self._running_S, means_S, MOMENTUM)
            self._running_S.copy_(torch.where(is_bad.bool(), self._running_S, moved_S))
        self._sums_S.zero_()
        self._updates += 1

    def take_back(self) -> None:
        """The last step was none: it counts no update."""
        self._updates -= 1

    def named(self) -> dict[str, torch.Tensor]:
        """The running statistics by buffer name; they change in place."""
        return dict(zip(self._names, self._running, strict=True))

    def discard(self) -> None:
        """Forget what was counted since the last step: that step is not to be."""
        self._sums_S.zero_()

    def publish(self) -> None:
        """Put the running statistics into the network's buffers."""
        if self._buffers:
            torch._foreach_copy_(self._buffers, self._running)

    def counters(self) -> dict[str, torch.Tensor]:
        """How many updates were made, by the name of each BatchNorm's counter; in training it has none."""
        return {name: counter.fill_(self._updates) for name, counter in self._counters.items()}
