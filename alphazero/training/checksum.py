"""Checksums of tensors, by which ranks find out that they hold the same bits, and who does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import torch

# Odd, so that multiplication modulo 2**64 loses no bit; Knuth's MMIX multiplier.
HASH_MULTIPLIER = 6364136223846793005


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


def odd_ranks(values: Sequence[Hashable]) -> list[int]:
    """Ranks whose value is not the one most have; all ranks where no value is the most common one."""
    counts = Counter(values).most_common()
    if len(counts) == 1:
        return []
    if counts[0][1] == counts[1][1]:
        return list(range(len(values)))
    return [rank for rank, value in enumerate(values) if value != counts[0][0]]
