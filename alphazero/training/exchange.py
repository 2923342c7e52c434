"""What ranks tell each other outside gradients: wishes, sums, checksums, small records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from alphazero.errors import DivergedRanksError

# Odd, so that multiplication modulo 2**64 loses no bit; Knuth's MMIX multiplier.
HASH_MULTIPLIER = 6364136223846793005


class Exchange:
    """Small messages over gloo, beside the gradients, so that asking never waits for a GPU."""

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo")
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def any(self, wish: bool) -> bool:
        """True on all ranks if `wish` is true on one."""
        flag = torch.tensor([int(wish)])
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self._group)
        return bool(flag.item())

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over ranks, as a new float64 CPU tensor of the same shape."""
        total = values.detach().to("cpu", torch.float64, copy=True)
        dist.all_reduce(total, group=self._group)
        return total

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        dist.barrier(group=self._group)

    def from_main(self, value: Any) -> Any:  # noqa: ANN401 - any picklable record of our own
        """Rank 0's `value` on all ranks."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401 - any picklable record of our own
        """Every rank's `value`, by rank."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def require_equal(self, named: Iterable[tuple[str, torch.Tensor]], when: str) -> int:
        """The checksum all ranks have of `named`; DivergedRanksError names tensors and ranks that differ."""
        mine = {name: checksum(tensor) for name, tensor in named}
        theirs = self.gather(mine)
        for name in mine:
            odd = [rank for rank, sums in enumerate(theirs) if sums.get(name) != theirs[0].get(name)]
            if odd:
                error = DivergedRanksError(f"{when}: {name} on ranks {odd} differs from rank 0")
                error.found_by_all_ranks = True
                raise error
        total = 0
        for value in mine.values():
            total = (total * 31 + value) % 2**64
        return total


def checksum(tensor: torch.Tensor) -> int:
    """64-bit sum over the bits of `tensor`, each element weighed by its place; equal bits, equal sum.

    Integer sums wrap and commute, so the result does not depend on the order of a parallel sum.
    """
    flat = tensor.detach().contiguous().flatten()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    bits = flat.view(integer).to(torch.int64)
    weights = (2 * torch.arange(bits.numel(), device=bits.device) + 1) * HASH_MULTIPLIER
    return int((bits * weights).sum().item()) % 2**64
