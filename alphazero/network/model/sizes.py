"""How large a network is, by arithmetic alone: its operations, the bytes that a rank keeps.

No weight is made: the network lies on torch's device "meta", where tensors have shapes and no numbers.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig

FLOAT_BYTES = 4  # weights, gradients and moments are fp32 in every precision
STAGES = (0, 1, 2, 3)
# A backward pass costs two forward passes.
PASSES_OF_STEP = 3
# ZeRO 3 keeps whole what has no more numbers: param_persistence_threshold of DeepSpeed 0.19.8
# (deepspeed/runtime/zero/config.py).
KEPT_WHOLE = 100_000


def on_meta_device(config: NetworkConfig) -> AlphaZeroNet:
    """A network that has shapes and no numbers."""
    with torch.device("meta"):
        return AlphaZeroNet(config, get_spec(config.game)).eval().to("meta")  # with the constants of the game


def rank_bytes(network: nn.Module, moments: int, stage: int, num_ranks: int) -> int:
    """What a rank keeps between two passes of a step: weights, gradients, masters and optimizer state.

    moments: numbers that the optimizer keeps. stage: what DeepSpeed gets. Stage 0 has all of it and no
    masters. Above it the optimizer's own copy of the weights and its state are shared out, from stage 2 on
    the gradients too, at stage 3 the weights. Beside it are buckets, activations and gathered weights.
    """
    sizes = [parameter.numel() for parameter in network.parameters()]
    weights, shared = sum(sizes), sum(sizes) + moments
    small = sum(size for size in sizes if size <= KEPT_WHOLE)
    numbers = {
        0: 2 * weights + moments,
        1: 2 * weights + _share(shared, num_ranks),
        2: weights + _share(weights + shared, num_ranks),
        3: small + _share(2 * weights + shared, num_ranks),
    }
    return FLOAT_BYTES * numbers[stage]


def _share(numbers: int, num_ranks: int) -> int:
    return -(-numbers // num_ranks)


def forward_flops(config: NetworkConfig) -> int:
    """Operations of one position's forward pass: convolutions and matrix products, two a multiply-add.

    From one block and two: all blocks of a body are alike.
    """
    one, two = (_count_flops(dataclasses.replace(config, blocks=blocks)) for blocks in (1, 2))
    return one + (config.blocks - 1) * (two - one)


def _count_flops(config: NetworkConfig) -> int:
    network = on_meta_device(config)
    spec = network.spec
    planes = torch.zeros(1, spec.num_planes, spec.board_height, spec.board_width, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(planes)
    return int(counter.get_total_flops())
