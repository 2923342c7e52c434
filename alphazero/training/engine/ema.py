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
    def update(self, updates: int, is_bad: torch.Tensor | None = None) -> None:
        """Move towards the weights after update number `updates` (from 0).

        is_bad: 0-d on the device; where it is not 0 the averages stay as they are.
        """
        decay = min(self._decay, (1 + updates) / (10 + updates))
        live = self._live()
        averages, weights = list(self._average.values()), [live[name] for name in self._average]
        if is_bad is None:
            torch._foreach_lerp_(averages, weights, 1 - decay)
            return
        # torch._foreach_lerp_ takes its weight from the host. After a bad step the weights are finite still.
        moves = torch._foreach_sub(weights, averages)
        torch._foreach_mul_(moves, (1.0 - is_bad) * (1 - decay))
        torch._foreach_add_(averages, moves)

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The averages, whole, by name; collective at ZeRO 3."""
        for name, average in self._average.items():
            yield name, average if name in self._statistics else self._state.whole(name, average)

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take up whole averages that `named_tensors` gave, at any stage and world size."""
        for name, average in self._average.items():
            value = tensors[name].to(average.device)
            average.copy_(value if name in self._statistics else self._state.part(name, value))
