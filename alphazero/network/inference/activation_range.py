"""How large a network's activations become, layer by layer, in positions of random games.

Random games need no data, and reach about the largest activations of real ones: see docs/performance.md,
"Evaluations in int8". They are the same for everybody, so that equal weights are quantised alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from alphazero.errors import WeightsError
from alphazero.games.core_types import Line
from alphazero.games.registry import make_line
from alphazero.games.spec import GameSpec
from alphazero.network.inference.forward import ModuleForward
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.planes import expand_planes

# Shapes: B positions, N bytes of a packed position, C channels, H x W board.

NUM_POSITIONS = 64
# Random games of chess are not over much earlier, those of small boards are.
MOST_PLIES = 80
# Bits of a range: sums of fp32 end differently in their last bits on other processors and numbers of threads.
RANGE_BITS = 8


class ActivationRange:
    """The largest activation behind each ReLU of a network's tower and policy head, by the module's name.

    "input", "blocks.0.first", "blocks.0", ..., "policy.hidden". Computed in fp32 on the CPU, and rounded up.
    """

    def __init__(self, network: AlphaZeroNet) -> None:
        self._forward = ModuleForward(network, torch.device("cpu"), torch.float32, compiled=False)
        self._planes_BCHW = _planes(network.spec)
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


def _planes(spec: GameSpec) -> Tensor:
    packed_BN = torch.from_numpy(np.stack([line.packed() for line in random_lines(spec.name)]))
    return expand_planes(packed_BN, spec, torch.channels_last)


@cache
def random_lines(game: str) -> tuple[Line, ...]:
    """NUM_POSITIONS positions of random games, none of them over, from early to late in turn."""
    draw = random.Random(0)
    lines: list[Line] = []
    longest = _usual_plies(game, draw.choice)
    while len(lines) < NUM_POSITIONS:
        line = make_line(game)
        for _ in range(len(lines) * longest // NUM_POSITIONS):
            line.push(draw.choice(line.legal()))
            if line.outcome().over:
                break
        if not line.outcome().over:
            lines.append(line)
    return tuple(lines)


def _usual_plies(game: str, choice: Callable[[list[int]], int]) -> int:
    """Plies that a random game lasts, MOST_PLIES at most."""
    line = make_line(game)
    while not line.outcome().over and line.num_plies < MOST_PLIES:
        line.push(choice(line.legal()))
    return max(1, line.num_plies)
