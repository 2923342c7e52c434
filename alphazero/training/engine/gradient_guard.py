"""Watches every gradient before it is added up: takes the loss scale out, notices infinities and NaN.

For ZeRO stages 1 to 3, where a rank keeps no whole gradients; at stage 0 FlatGradients judges them at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


class GradientGuard:
    """Hooks on the parameters of a network.

    DeepSpeed's own overflow checks differ by stage and precision; a hook on the leaf sees each gradient
    before DeepSpeed does.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.scale = 1.0  # what the loss was multiplied by; a power of two, so taking it out is exact
        self._sums: list[torch.Tensor] = []
        for parameter in parameters:
            parameter.register_hook(self._look)  # type: ignore[no-untyped-call]

    def _look(self, gradient: torch.Tensor) -> torch.Tensor:
        # A sum is infinite or NaN where an element is: one pass, no copy, no wait for the device.
        self._sums.append(gradient.sum(dtype=torch.float32))
        return gradient if self.scale == 1.0 else gradient / self.scale

    def take(self, losses: torch.Tensor) -> bool:
        """True if `losses` and all gradients since the last call were finite. Waits for the device.

        losses: the sum of the rank's losses; where only its value is infinite, gradients may not show it.
        """
        sums, self._sums = [*self._sums, losses], []
        return bool(torch.isfinite(torch.stack(sums)).all().item())
