"""Watches every gradient before it is added up: takes the loss scale out, notices infinities and NaN."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


class GradientGuard:
    """Hooks on the parameters of a network, at every ZeRO stage alike.

    DeepSpeed's own overflow checks differ by stage and precision (none at stage 0); a hook on the leaf
    sees each gradient before DeepSpeed does.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], device: torch.device) -> None:
        self.scale = 1.0  # what the loss was multiplied by; a power of two, so taking it out is exact
        self._sums = torch.zeros((), device=device)
        for parameter in parameters:
            parameter.register_hook(self._look)  # type: ignore[no-untyped-call]

    def _look(self, gradient: torch.Tensor) -> torch.Tensor:
        # A sum is infinite or NaN where an element is: one pass, no copy, no wait for the device.
        self._sums += gradient.sum(dtype=torch.float32)
        return gradient if self.scale == 1.0 else gradient / self.scale

    def add_loss(self, loss: torch.Tensor) -> None:
        """Count the loss itself: where only its value is infinite, gradients may not show it."""
        self._sums += loss.detach()

    def take(self) -> bool:
        """True if all since the last call was finite. Waits for the device."""
        is_finite = bool(torch.isfinite(self._sums).item())
        self._sums.zero_()
        return is_finite
