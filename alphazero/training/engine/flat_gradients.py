"""Averages gradients over ranks through one buffer that stays, where ZeRO leaves them whole (stage 0).

DeepSpeed 0.19.8 makes and fills such a buffer anew at every step (engine.buffered_allreduce_fallback):
on a CPU the fresh pages cost more than the copy.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn


class FlatGradients:
    """The gradients of a network in one piece of memory of the device."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        device = self._parameters[0].device
        sizes = [parameter.numel() for parameter in self._parameters]
        self._flat = torch.zeros(sum(sizes), device=device)
        parts = torch.split(self._flat, sizes)
        # In each parameter's own layout (channels last), which the optimizer then walks through in step.
        self._views = [
            part.as_strided(own.shape, own.stride())
            for part, own in zip(parts, self._parameters, strict=True)
        ]

    def average(self) -> None:
        """Make every rank's `grad`s their mean over ranks; a missing one counts as zeros. Collective."""
        pairs = list(zip(self._views, self._parameters, strict=True))
        for view, parameter in pairs:
            if parameter.grad is None:
                view.zero_()
        filled = [(view, parameter.grad) for view, parameter in pairs if parameter.grad is not None]
        torch._foreach_copy_([view for view, _ in filled], [gradient for _, gradient in filled])
        if dist.get_world_size() > 1:
            dist.all_reduce(self._flat)
            self._flat /= dist.get_world_size()
        for view, parameter in pairs:
            parameter.grad = view
