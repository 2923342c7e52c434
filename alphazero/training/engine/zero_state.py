"""Whole fp32 weights and optimizer state out of ZeRO 0-3, and back in at any stage and world size.

DeepSpeed's own checkpoint format is pickled, not atomic, bound to the world size above stage 0 and
forgets BatchNorm's buffers, so ours goes through the engine's parameters one by one. This module
relies on what DeepSpeed 0.19.8 keeps behind its `safe_get_*` functions (docs/decisions.md): stage 0
leaves torch's optimizer alone; stages 1 and 2 link parameters to flat partitions; stage 3 keeps a
padded partition of every parameter. The moving average of the weights is kept the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class ZeroState:
    """The weights and optimizer state of one DeepSpeed engine, as whole fp32 tensors by name.

    Every method is collective: all ranks call it, all get the same.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: Any,  # noqa: ANN401 - DeepSpeed has no types
        keys: Mapping[str, Sequence[str]],
        stage: int,
    ) -> None:
        """keys: what the optimizer keeps for each parameter (optimizer.state_keys)."""
        self._parameters: dict[str, Any] = dict(network.named_parameters())  # DeepSpeed adds attributes
        self._optimizer = optimizer  # torch's at stage 0, DeepSpeed's wrapper above
        self._torch_optimizer: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
        self._keys = keys
        self._stage = stage
        # Not left to the first step: DeepSpeed links stages 1 and 2 when the first parameter group
        # has made its step, and misses the state of the others. Zeros are what torch begins with.
        self._create_empty_state()

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every parameter by name, one at a time."""
        for name, parameter in self._parameters.items():
            yield name, self._whole(parameter, None) if self._stage == 3 else parameter.detach()

    def local_weights(self) -> dict[str, torch.Tensor]:
        """What this rank holds of every parameter, live: all of it, or its padded partition at stage 3."""
        if self._stage == 3:
            return {name: parameter.ds_tensor for name, parameter in self._parameters.items()}
        return {name: parameter.data for name, parameter in self._parameters.items()}

    def whole(self, name: str, local: torch.Tensor) -> torch.Tensor:
        """A tensor of parameter `name`'s shape from what each rank holds of it; no copy below stage 3."""
        if self._stage < 3:
            return local
        parameter = self._parameters[name]
        parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, local)
        return torch.cat(parts)[: parameter.ds_numel].view(parameter.ds_shape)

    def part(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        """What this rank holds of a tensor of parameter `name`'s shape: the inverse of `whole`."""
        if self._stage < 3:
            return whole
        size = self.local_weights()[name].numel()
        own = whole.flatten()[dist.get_rank() * size : (dist.get_rank() + 1) * size]
        return torch.nn.functional.pad(own, (0, size - own.numel()))

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """`<parameter>/<key>` -> tensor of the parameter's shape; and `step`, the updates made."""
        whole = {
            f"{name}/{key}": self._whole(parameter, key)
            for name, parameter in self._parameters.items()
            for key in self._keys[name]
        }
        steps = [entry["step"] for entry in self._torch_optimizer.state.values() if "step" in entry]
        counts = set(torch.stack(steps).tolist()) if steps else {0.0}
        assert len(counts) == 1, f"parameters took different numbers of steps: {counts}"
        return {**whole, "step": torch.tensor(float(counts.pop()))}

    def load_optimizer_state(self, state: dict[str, torch.Tensor]) -> None:
        """Put back what `optimizer_state` gave, on any stage and world size."""
        for entry in self._torch_optimizer.state.values():
            if "step" in entry:
                entry["step"].fill_(float(state["step"]))
        for name, parameter in self._parameters.items():
            for key in self._keys[name]:
                self._set_whole(parameter, key, state[f"{name}/{key}"])

    def _whole(self, parameter: Any, key: str | None) -> torch.Tensor:  # noqa: ANN401
        if self._stage == 0:
            return self._torch_optimizer.state[parameter][key]  # type: ignore[no-any-return]
        if self._stage == 3:
            return self._optimizer.get_full_hp_param(parameter, key)  # type: ignore[no-any-return]
        return parameter.get_full_hp_param(key)  # type: ignore[no-any-return]

    def _set_whole(self, parameter: Any, key: str, value: torch.Tensor) -> None:  # noqa: ANN401
        value = value.to(parameter.device)
        if self._stage == 0:
            self._torch_optimizer.state[parameter][key].copy_(value)
        elif self._stage == 3:
            # DeepSpeed's own setter fails where the ranks do not divide the parameter.
            part, _ = self._optimizer._get_fp32_opt_state_partition(parameter, False, key)
            rank = self._optimizer._get_param_partition_rank(parameter)
            mine = value.flatten()[rank * part.numel() : (rank + 1) * part.numel()]
            part[: mine.numel()].copy_(mine)
        else:
            parameter.set_full_hp_param(value, key)

    def _stored_tensors(self) -> Iterator[tuple[torch.Tensor, Sequence[str]]]:
        """The tensors torch's optimizer keeps its state for, and the keys of that state."""
        if self._stage == 0:
            for name, parameter in self._parameters.items():
                yield parameter, self._keys[name]
            return
        name_of = {id(parameter): name for name, parameter in self._parameters.items()}
        zero = self._optimizer
        flat, groups = (
            (zero.fp32_partitioned_groups_flat, zero.fp16_groups)
            if self._stage == 3
            else (zero.single_partition_of_fp32_groups, zero.bit16_groups)
        )
        for stored, parameters in zip(flat, groups, strict=True):
            yield stored, self._keys[name_of[id(parameters[0])]]

    def _create_empty_state(self) -> None:
        """What torch's optimizers make at their first step."""
        for stored, keys in self._stored_tensors():
            entry: dict[str, Any] = {key: torch.zeros_like(stored.detach()) for key in keys}
            if "exp_avg" in entry:
                # Fused kernels count on the device.
                is_fused = self._torch_optimizer.defaults["fused"]
                entry["step"] = torch.zeros((), device=stored.device if is_fused else "cpu")
            self._torch_optimizer.state[stored] = entry
        if self._stage in (1, 2):
            self._optimizer._lazy_init_hp_params_optimizer_state()


class WeightAverage:
    """An exponential moving average of the fp32 weights and BatchNorm statistics.

    It averages what this rank holds: whole weights below ZeRO 3, its own partition at ZeRO 3.

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
