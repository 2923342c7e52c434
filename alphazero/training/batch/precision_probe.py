"""Which precision trains fastest on a CPU: timed on the network itself, for instruction sets do not tell.

On a CPU with AVX512-BF16 and no AMX, bf16 lost to fp32 with two threads per rank and won with one. Everything
here is local to one rank; ranks time at the same moment, share their times and choose together.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from alphazero.config import Config
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.planes import to_device
from alphazero.training.batch.memory_probe import random_batch, training_copy

# Passes timed in each precision, fewer where they take longer than this together.
NUM_TIMED = 5
LONG_ENOUGH_S = 1.0
# Positions of a pass: enough for the kernels of a real one, fewer for a network that would take seconds.
MOST_POSITIONS, LEAST_POSITIONS = 64, 4
# Multiplications of the weights by a board that a forward pass may take: 6x64 has 64 positions, 20x256 four.
MOST_PRODUCTS = 6e9
# bf16 costs some digits: it must win by this much.
LEAST_GAIN = 1.05

Clock = Callable[[], float]


def seconds_per_pass(
    network: AlphaZeroNet,
    config: Config,
    precisions: Sequence[str],
    world_size: int,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """The least time of a forward and backward pass in each precision, on this rank's CPU threads.

    Passes in the precisions take turns, so that a busy moment of the machine meets all alike. `network`, its
    buffers and torch's generators stay as they are.
    """
    device = torch.device("cpu")
    share = config.training.batch_size // world_size
    batch = to_device(random_batch(network.spec, positions_of_a_pass(network, share)), device)
    modules = {
        name: training_copy(
            network, network.spec, dataclasses.replace(config.training, precision=name), config.loss, device
        )
        for name in precisions
    }
    for module in modules.values():  # kernels are chosen and memory is taken in the first pass
        module(batch).backward()
    seconds = dict.fromkeys(precisions, float("inf"))
    began = clock()
    for _ in range(NUM_TIMED):
        for name, module in modules.items():
            started = clock()
            module(batch).backward()
            seconds[name] = min(seconds[name], clock() - started)
        if clock() - began > LONG_ENOUGH_S:
            break
    return seconds


def positions_of_a_pass(network: AlphaZeroNet, most: int) -> int:
    """How many positions tell the speed of this network within a second or so, at most `most`."""
    squares = network.spec.board_height * network.spec.board_width
    affordable = int(MOST_PRODUCTS / (network.parameter_count() * squares))
    return max(1, min(most, MOST_POSITIONS, max(LEAST_POSITIONS, affordable)))


def fastest_precision(seconds_by_rank: Sequence[Mapping[str, float]]) -> str:
    """The precision in which the slowest rank is fastest; fp32 unless another beats it by LEAST_GAIN."""
    slowest = slowest_seconds(seconds_by_rank)
    best = min(slowest, key=lambda name: slowest[name])
    return best if slowest[best] * LEAST_GAIN < slowest["fp32"] else "fp32"


def slowest_seconds(seconds_by_rank: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By precision, the time of the rank that takes longest: all wait for it."""
    return {name: max(seconds[name] for seconds in seconds_by_rank) for name in seconds_by_rank[0]}
