"""What a log interval was used for: one rank's part of a message, and what rank 0 makes of all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from alphazero.health.gpu_usage import Doing
from alphazero.run.metrics import AllWriters
from alphazero.training.usage.busy_watch import BusyWatch
from alphazero.training.usage.gpu_board import GpuBoard, gpu_figures, utilisation
from alphazero.training.usage.part_clock import Part, PartClock
from alphazero.training.usage.time_shares import job_shares


@dataclass(frozen=True)
class JobUsage:
    """board: None on the CPU, where there are no GPUs to watch. gradients_are_kernels: as with NCCL."""

    clock: PartClock
    rank: int
    world_size: int
    board: GpuBoard | None
    gradients_are_kernels: bool
    watch: BusyWatch

    def message(self) -> torch.Tensor:
        """f64 of equal length on all ranks, to be added up: this rank's times and its host's GPUs."""
        seconds_RP = torch.zeros(self.world_size, len(Part), dtype=torch.float64)
        seconds_RP[self.rank] = torch.tensor(self.clock.take(), dtype=torch.float64)
        if self.board is None:
            return seconds_RP.flatten()
        return torch.cat([seconds_RP.flatten(), self.board.message(Doing.TRAINING)])

    def tell(self, total: torch.Tensor, step: int, metrics: AllWriters) -> str:
        """Write what the sum of all messages says, warn of idle GPUs; a few words for the log line."""
        num_times = self.world_size * len(Part)
        seconds_RP = total[:num_times].view(self.world_size, len(Part))
        gpus = self.board.read(total[num_times:]) if self.board else []
        busy = utilisation(gpus)
        if busy is not None and self.gradients_are_kernels and (shares := job_shares(seconds_RP)):
            # NCCL's kernels wait for the other ranks: the driver counts that as use.
            busy = max(0.0, busy - shares.gradients)
        shares = job_shares(seconds_RP, None if busy is None else 1.0 - busy)
        words = []
        if gpus:
            metrics.write("gpu", step, gpu_figures(gpus))
        if busy is not None:
            words.append(f"GPUs busy {busy:.0%}")
        if shares:
            figures = shares.mean.figures()
            metrics.write("time_share", step, figures | {"slowest_rank": float(shares.slowest_rank)})
            words += [f"waits: {waits}"] if (waits := shares.mean.describe()) else []
            if busy is not None:
                where = f" on rank {shares.slowest_rank}" if self.world_size > 1 else ""
                self.watch.look(busy, shares.slowest.causes(), where)
        return "".join(f"{word} | " for word in words)
