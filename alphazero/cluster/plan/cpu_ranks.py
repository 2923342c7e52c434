"""How many CPU ranks a machine gets where nobody gave a number, and which bound decided.

One rank per core: beside other work, threads of one rank wait for the slowest of them in every layer, ranks
of one thread once per step (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alphazero.config import NetworkConfig
from alphazero.text import counted

# Resident memory of a rank beside activations and weights: Python, torch, DeepSpeed, the loader. A rank of
# chess_cpu held 692 MiB at its most with a micro-batch of 256 and 617 with 128 (VmHWM of 60 steps with
# validation and checkpoints, torch 2.13); activations and weights as reckoned below are 300 and 160 of them.
BASE_BYTES = 512 << 20
# Tensors of the tower's size kept for backward per convolution: 3.5 to 7.0 were measured by
# memory_probe.bytes_per_position for 20x256, 10x128, 6x64 and 2x32.
KEPT_TENSORS = 8
# Weights, gradients, two moments, the reduction's bucket, a temporary, a copy for a checkpoint.
WEIGHT_COPIES = 7
FLOAT_BYTES = 4
# The largest board, and planes in and out of the tower, of all games.
SQUARES, PLANES = 64, 112 + 80
# Positions of the largest micro-batch that is chosen unasked on a CPU.
LARGEST_MICRO_BATCH = 256
# Of the available memory, what ranks may take together.
MEMORY_SHARE = 0.8


@dataclass(frozen=True)
class CpuRanks:
    """A number of ranks and the bound that made it no larger, in words."""

    num_ranks: int
    bound: str


def choose_cpu_ranks(
    num_cores: int,
    batch_size: int,
    least_share: int,
    network: NetworkConfig,
    available_bytes: int,
    ranks_at_work: Callable[[int], float],
) -> CpuRanks:
    """One rank per core, fewer where the batch or the memory does not do for so many; at least 1.

    least_share: positions that each rank must get per step. ranks_at_work: of so many ranks, how many are at
    work on the mean of a step; a number of ranks must gain something over each smaller one.
    """
    by_batch = max(1, batch_size // least_share)
    most = min(num_cores, by_batch)
    fitting = [n for n in range(1, most + 1) if _fits(n, batch_size, network, available_bytes)] or [1]
    # Of equals the fewest: what they leave becomes threads.
    chosen = max(fitting, key=lambda n: (round(ranks_at_work(n), 6), -n))
    if fitting[-1] < most:
        share = f"{available_bytes / 2**30:.1f} GiB of available memory"
        return CpuRanks(chosen, f"as many as fit into {share}")
    if chosen == num_cores:
        return CpuRanks(chosen, "one per core")
    if chosen == by_batch:
        return CpuRanks(
            chosen, f"batch size {batch_size}: at least {counted(least_share, 'position')} per rank"
        )
    return CpuRanks(chosen, f"batch size {batch_size}: more ranks would idle")


def rank_bytes(network: NetworkConfig, micro_batch_size: int) -> int:
    """A bound of the memory that a CPU rank holds while it trains."""
    per_position = KEPT_TENSORS * (2 * network.blocks + 1) * network.filters * SQUARES * FLOAT_BYTES
    weights = 9 * network.filters * (2 * network.blocks * network.filters + PLANES + network.filters)
    return BASE_BYTES + per_position * micro_batch_size + WEIGHT_COPIES * weights * FLOAT_BYTES


def _fits(num_ranks: int, batch_size: int, network: NetworkConfig, available_bytes: int) -> bool:
    micro_batch_size = min(LARGEST_MICRO_BATCH, batch_size // num_ranks)
    return num_ranks * rank_bytes(network, micro_batch_size) <= MEMORY_SHARE * available_bytes
