"""Whether a step's loss and gradients were finite: found on the device, told to the host."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Verdict:
    """is_bad: the step was left out. ranks: whose passes were at fault; none where only their sum is."""

    is_bad: bool
    ranks: tuple[int, ...] = ()


GOOD = Verdict(False)


class VerdictReader:
    """Brings FlatGradients' verdict to the host without anybody waiting when it is sent."""

    def __init__(self, num_numbers: int, device: torch.device) -> None:
        on_cuda = device.type == "cuda"
        self._numbers = torch.zeros(num_numbers, pin_memory=on_cuda)
        self._arrived = torch.cuda.Event() if on_cuda else None  # type: ignore[no-untyped-call]

    def send(self, numbers: torch.Tensor) -> None:
        """Begin the copy; `read` ends it."""
        self._numbers.copy_(numbers, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()

    def read(self) -> Verdict:
        """The verdict sent last; waits for it."""
        if self._arrived is not None:
            self._arrived.synchronize()
        *faults, norm = self._numbers.tolist()
        ranks = tuple(rank for rank, fault in enumerate(faults) if not math.isfinite(fault))
        return Verdict(bool(ranks) or not math.isfinite(norm), ranks)


def is_told_late(device: torch.device) -> bool:
    """True where the host runs ahead of the device, and waiting for a verdict would leave it idle."""
    return device.type == "cuda"
