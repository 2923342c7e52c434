"""What a log interval was used for: one rank's part of a message, and what rank 0 makes of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from alphazero.health.gpu_usage import Doing
from alphazero.run.metrics import AllWriters
from alphazero.training.usage.gpu_board import GpuBoard, gpu_figures, utilisation
from alphazero.training.usage.host_board import HostBoard, HostNow
from alphazero.training.usage.part_clock import Part, PartClock
from alphazero.training.usage.time_shares import Cause, job_shares

# What a rank does by itself: in the others it may wait for another rank.
OWN_WORK = (Part.HOST, Part.COMPUTE, Part.DATA)


@dataclass(frozen=True)
class IntervalUsage:
    """What all ranks' messages of a log interval say.

    words: for the log line. busy: share of the time in which the GPUs computed, None without any. waits: what
    a GPU waits for, on the rank that the others wait for; where: which one that is. work_s_R: seconds of each
    rank's own work. hosts: what they have left, none where nobody reads it.
    """

    words: str = ""
    busy: float | None = None
    waits: Mapping[Cause, float] = field(default_factory=dict)
    where: str = ""
    work_s_R: tuple[float, ...] = ()
    hosts: tuple[HostNow, ...] = ()


@dataclass(frozen=True)
class JobUsage:
    """gpus: None on the CPU, where there are none to watch. gradients_are_kernels: as with NCCL.

    hosts: None where nobody watches them.
    """

    clock: PartClock
    rank: int
    world_size: int
    gpus: GpuBoard | None
    hosts: HostBoard | None
    gradients_are_kernels: bool

    def message(self) -> torch.Tensor:
        """f64 of equal length on all ranks, to be added up: this rank's times, its host's GPUs, its host."""
        seconds_RP = torch.zeros(self.world_size, len(Part), dtype=torch.float64)
        seconds_RP[self.rank] = torch.tensor(self.clock.take(), dtype=torch.float64)
        parts = [seconds_RP.flatten()]
        if self.gpus:
            parts.append(self.gpus.message(Doing.TRAINING))
        if self.hosts:
            parts.append(self.hosts.message())
        return torch.cat(parts)

    def tell(self, total: torch.Tensor, step: int, metrics: AllWriters) -> IntervalUsage:
        """Write what the sum of all messages says."""
        sizes = [self.world_size * len(Part), self.gpus.size if self.gpus else 0]
        seconds, of_gpus, of_hosts = total.tensor_split([sizes[0], sum(sizes)])
        seconds_RP = seconds.view(self.world_size, len(Part))
        gpus = self.gpus.read(of_gpus) if self.gpus else []
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
        return IntervalUsage(
            words="".join(f"{word} | " for word in words),
            busy=busy,
            waits=shares.slowest.causes() if shares else {},
            where=f" on rank {shares.slowest_rank}" if shares and self.world_size > 1 else "",
            work_s_R=tuple(seconds_RP[:, list(OWN_WORK)].sum(1).tolist()),
            hosts=tuple(self.hosts.read(of_hosts)) if self.hosts else (),
        )
