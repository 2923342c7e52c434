"""How a step's global batch is cut: K micro-batches of fixed size m, shared out over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, isqrt

from alphazero.errors import ConfigError
from alphazero.text import counted

# Largest micro-batch chosen unasked. CPU: the activations of a small tower stay near the caches;
# CUDA: fills an 80 GB device with room to spare at 20x256. See docs/performance.md.
LARGEST_MICRO_BATCH = {"cpu": 256, "cuda": 1024}


@dataclass(frozen=True)
class BatchPlan:
    """batch_size = num_micro_batches * micro_batch_size, dealt out to the ranks turn by turn.

    weights: static shares of the ranks, all 1 where devices are alike.
    equal_passes: every rank makes as many forward passes as the busiest, surplus ones weigh nothing
        (ZeRO 2 and 3 communicate in every pass).
    """

    batch_size: int
    micro_batch_size: int
    weights: tuple[float, ...]
    equal_passes: bool = False

    @property
    def world_size(self) -> int:
        """N: ranks."""
        return len(self.weights)

    @property
    def num_micro_batches(self) -> int:
        """K: forward passes of a step over all ranks that count."""
        return self.batch_size // self.micro_batch_size

    @property
    def shares(self) -> tuple[int, ...]:
        """Micro-batches of each rank, K together."""
        return share_out(self.num_micro_batches, self.weights)

    def passes_of(self, rank: int) -> tuple[int | None, ...]:
        """Numbers of the micro-batches that `rank` runs, in order; None is a pass that weighs nothing.

        In each turn every rank that still has a share takes the next one: with equal shares micro-batch j
        is rank j mod N's.
        """
        shares = self.shares
        own: list[int | None] = []
        for turn in range(shares[rank]):
            before = sum(min(share, turn) for share in shares)
            own.append(before + sum(share > turn for share in shares[:rank]))
        # A rank without any takes part in the exchange of gradients all the same.
        least = max(shares) if self.equal_passes else 1
        return (*own, *[None] * (least - len(own)))

    def with_micro_batch_size(self, micro_batch_size: int) -> BatchPlan:
        """The same global batch in other micro-batches."""
        return replace(self, micro_batch_size=micro_batch_size)

    def __str__(self) -> str:
        passes = [len(self.passes_of(rank)) for rank in range(self.world_size)]
        differ = len({*passes}) > 1
        each = (
            f"{', '.join(map(str, passes))} passes by rank"
            if differ
            else f"{counted(passes[0], 'pass', 'passes')} per rank"
        )
        return (
            f"{self.batch_size} = {counted(self.num_micro_batches, 'micro-batch', 'micro-batches')} "
            f"of {self.micro_batch_size} over {counted(self.world_size, 'rank')}, {each}"
        )


def plan_batches(
    batch_size: int,
    micro_batch_size: int,
    weights: Sequence[float],
    device_type: str,
    *,
    equal_passes: bool = False,
) -> BatchPlan:
    """The plan for a global batch over ranks of these weights (all 1 where devices are alike).

    micro_batch_size 0 takes the largest divisor that suits. Raises ConfigError where the sizes do not
    divide, a rank would get nothing, or weights differ where passes must be equal.
    """
    world_size = len(weights)
    if batch_size < world_size:
        raise ConfigError(
            f"--batch-size {batch_size}: expected at least {world_size}, one position for each rank"
        )
    if equal_passes and len({*weights}) > 1:
        raise ConfigError(
            "--host-weights: ZeRO 2 and 3 make equal passes on all ranks; expected --zero-stage 0 or 1"
        )
    if not micro_batch_size:
        share = min(LARGEST_MICRO_BATCH[device_type], batch_size // world_size)
        micro_batch_size = max(size for size in micro_batch_sizes(batch_size) if size <= share)
    if batch_size % micro_batch_size:
        raise ConfigError(
            f"--micro-batch-size {micro_batch_size}: expected a divisor of the batch size {batch_size}"
        )
    return BatchPlan(batch_size, micro_batch_size, tuple(weights), equal_passes)


def micro_batch_sizes(batch_size: int) -> list[int]:
    """Sizes a global batch can be cut into, ascending."""
    small = [size for size in range(1, isqrt(batch_size) + 1) if batch_size % size == 0]
    return sorted({*small, *(batch_size // size for size in small)})


def share_out(count: int, weights: Sequence[float]) -> tuple[int, ...]:
    """`count` micro-batches in proportion to `weights`, by largest remainder, ties to the lower rank."""
    quotas = [count * weight / sum(weights) for weight in weights]
    shares = [floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda rank: (shares[rank] - quotas[rank], rank))
    for rank in by_remainder[: count - sum(shares)]:
        shares[rank] += 1
    return tuple(shares)
