"""What ranks tell each other outside gradients: wishes, sums, checksums, small records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
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

    def numbers(self, value: int) -> list[int]:
        """Every rank's `value`, by rank: one small message, fit for every step."""
        values = [torch.empty(1, dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(values, torch.tensor([value]), group=self._group)
        return [int(number) for number in values]

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
        return self.from_rank(0, value)

    def from_rank(self, rank: int, value: Any) -> Any:  # noqa: ANN401 - any picklable record of our own
        """`value` of rank `rank` on all ranks."""
        box = [value]
        dist.broadcast_object_list(box, src=rank, group=self._group)
        return box[0]

    def tensors_from(self, rank: int, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The CPU tensors that rank `rank` has, on all ranks, one at a time."""
        shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        received = {}
        for name, (shape, dtype) in self.from_rank(rank, shapes).items():
            tensor = tensors[name] if self.rank == rank else torch.empty(shape, dtype=dtype)
            dist.broadcast(tensor, src=rank, group=self._group)
            received[name] = tensor
        return received

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401 - any picklable record of our own
        """Every rank's `value`, by rank."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def require_equal(self, named: Iterable[tuple[str, torch.Tensor]], when: str) -> int:
        """The checksum all ranks have of `named`.

        Raises DivergedRanksError on all of them where they differ: it names the tensor and the ranks that
        most do not agree with; where no two agree more than others, all of them.
        """
        mine = checksums(named)
        theirs = self.gather(mine)
        for name in mine:
            if odd := odd_ranks([sums.get(name) for sums in theirs]):
                ranks = ", ".join(map(str, odd))
                error = DivergedRanksError(
                    f"{when}: {name} differs between ranks (rank {ranks}): their memory or arithmetic is "
                    f"at fault; expected equal weights on all {self.world_size}"
                )
                error.found_by_all_ranks = True
                raise error
        total = 0
        for value in mine.values():
            total = (total * 31 + value) % 2**64
        return total


def odd_ranks(values: Sequence[Hashable]) -> list[int]:
    """Ranks whose value is not the one most have; all ranks where no value is the most common one."""
    counts = Counter(values).most_common()
    if len(counts) == 1:
        return []
    if counts[0][1] == counts[1][1]:
        return list(range(len(values)))
    return [rank for rank, value in enumerate(values) if value != counts[0][0]]


def checksums(named: Iterable[tuple[str, torch.Tensor]]) -> dict[str, int]:
    """`checksum` of every tensor, all brought from the device at once."""
    names, sums = [], []
    for name, tensor in named:
        names.append(name)
        sums.append(checksum(tensor))
    return dict(zip(names, torch.stack(sums).tolist(), strict=True)) if sums else {}


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """i64 [], a sum over the bits of `tensor`, each element weighed by its place; equal bits, equal sum.

    Integer sums wrap and commute, so the result does not depend on the order of a parallel sum.
    """
    flat = tensor.detach().contiguous().flatten()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    bits = flat.view(integer).to(torch.int64)
    weights = (2 * torch.arange(bits.numel(), device=bits.device) + 1) * HASH_MULTIPLIER
    return (bits * weights).sum()
