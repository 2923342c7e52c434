"""An exponential moving average of the fp32 weights and BatchNorm statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from alphazero.training.engine.zero_state import ZeroState


class WeightAverage:
    """Averages what this rank holds: whole weights below ZeRO 3, its own partition at ZeRO 3.

    average = d * average + (1 - d) * weights after each step, d = min(decay, (1 + t) / (10 + t)) at update
    t, so that the first weights are soon forgotten (TensorFlow's ExponentialMovingAverage, num_updates).
    """

    def __init__(self, decay: float, state: ZeroState, statistics: Mapping[str, torch.Tensor]) -> None:
        """statistics: the running statistics of BatchNorm by buffer name; they change in place."""
        self._decay = decay
        self._state = state
        self._statistics = statistics
        live = self._live()
        self._average = {name: tensor.detach().clone() for name, tensor in live.items()}

    def _live(self) -> dict[str, torch.Tensor]:
        return {**self._state.local_weights(), **self._statistics}

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Move towards the weights after update number `updates` (from 0)."""
        decay = min(self._decay, (1 + updates) / (10 + updates))
        live = self._live()
        torch._foreach_lerp_(list(self._average.values()), [live[name] for name in self._average], 1 - decay)

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The averages, whole, by name; collective at ZeRO 3."""
        for name, average in self._average.items():
            yield name, average if name in self._statistics else self._state.whole(name, average)

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take up whole averages that `named_tensors` gave, at any stage and world size."""
        for name, average in self._average.items():
            value = tensors[name].to(average.device)
            average.copy_(value if name in self._statistics else self._state.part(name, value))
