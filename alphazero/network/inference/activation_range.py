"""How large a network's activations become, layer by layer, in positions of random games.

Random games reach about the largest activations of real ones: see docs/performance.md, "Evaluations in int8".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from alphazero.errors import WeightsError
from alphazero.network.inference.forward import ModuleForward
from alphazero.network.inference.random_positions import random_positions
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.planes import expand_planes

# Shapes: B positions, N bytes of a packed position, C channels, H x W board.

# Bits of a range: sums of fp32 end differently in their last bits on other processors and numbers of threads.
RANGE_BITS = 8


class ActivationRange:
    """The largest activation behind each ReLU of a network's tower and policy head, by the module's name.

    "input", "blocks.0.first", "blocks.0", ..., "policy.hidden". Computed in fp32 on the CPU, and rounded up.
    """

    def __init__(self, network: AlphaZeroNet) -> None:
        self._forward = ModuleForward(network, torch.device("cpu"), torch.float32, compiled=False)
        packed_BN = torch.from_numpy(random_positions(network.spec.name)[0])
        self._planes_BCHW = expand_planes(packed_BN, network.spec, torch.channels_last)
        self._largest: dict[str, float] = {}
        for name in rectified_modules(network.config.blocks, network.config.policy_head):
            module = self._forward.network.get_submodule(name)
            module.register_forward_hook(partial(self._see, name))

    def _see(self, name: str, module: nn.Module, inputs: object, output_BCHW: Tensor) -> None:
        self._largest[name] = output_BCHW.max().item()

    @torch.inference_mode()
    def of(self, folded: Mapping[str, Tensor]) -> dict[str, float]:
        """Of these weights (folding.fold_tensors). Raises WeightsError where they give no finite numbers."""
        self._forward.load(folded)
        self._forward(self._planes_BCHW)
        for name, largest in self._largest.items():
            if not np.isfinite(largest):
                raise WeightsError(f"{name}: gives {largest}, expected finite weights")
        return {name: rounded_up(largest) for name, largest in self._largest.items()}


def rounded_up(number: float) -> float:
    """To RANGE_BITS significant bits."""
    mantissa, exponent = math.frexp(number)
    return math.ldexp(math.ceil(mantissa * 2**RANGE_BITS), exponent - RANGE_BITS)


def rectified_modules(num_blocks: int, policy_head: str) -> Iterable[str]:
    """Names of the modules that end in a ReLU and whose output a convolution of the tower's width reads."""
    yield "input"
    for number in range(num_blocks):
        yield f"blocks.{number}.first"
        yield f"blocks.{number}"
    if policy_head == "convolution":
        yield "policy.hidden"
