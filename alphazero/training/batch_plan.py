"""How a step's global batch is cut: K micro-batches of fixed size m, shared out over the ranks."""

from __future__ import annotations

from dataclasses import dataclass

from alphazero.errors import ConfigError

# Largest micro-batch chosen unasked. CPU: the activations of a small tower stay near the caches;
# CUDA: fills an 80 GB device with room to spare at 20x256. See docs/performance.md.
LARGEST_MICRO_BATCH = {"cpu": 256, "cuda": 1024}


@dataclass(frozen=True)
class BatchPlan:
    """batch_size = num_micro_batches * micro_batch_size; micro-batch j belongs to rank j mod N."""

    batch_size: int
    micro_batch_size: int
    world_size: int

    @property
    def num_micro_batches(self) -> int:
        """K: forward passes of a step over all ranks that count."""
        return self.batch_size // self.micro_batch_size

    @property
    def passes_per_rank(self) -> int:
        """ceil(K / N): every rank makes as many, surplus ones weigh nothing."""
        return -(-self.num_micro_batches // self.world_size)

    def __str__(self) -> str:
        return (
            f"{self.batch_size} = {self.num_micro_batches} micro-batches of {self.micro_batch_size} "
            f"over {self.world_size} ranks, {self.passes_per_rank} passes a rank"
        )


def plan_batches(batch_size: int, micro_batch_size: int, world_size: int, device_type: str) -> BatchPlan:
    """The plan for a global batch; micro_batch_size 0 takes the largest divisor that suits.

    Raises ConfigError where the sizes do not divide or a rank would get nothing.
    """
    if batch_size < world_size:
        raise ConfigError(f"--batch-size {batch_size}: {world_size} ranks wanted at least {world_size}")
    if not micro_batch_size:
        share = min(LARGEST_MICRO_BATCH[device_type], batch_size // world_size)
        micro_batch_size = max(size for size in range(1, share + 1) if batch_size % size == 0)
    if batch_size % micro_batch_size:
        raise ConfigError(
            f"--micro-batch-size {micro_batch_size}: wanted a divisor of the batch size {batch_size}"
        )
    return BatchPlan(batch_size, micro_batch_size, world_size)
