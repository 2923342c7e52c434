"""The GPUs of all hosts of a job: read on each host, brought together in a message that ranks send anyway."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import torch

from alphazero.health.gpu_usage import Doing, GpuUsage, UsageMeter
from alphazero.training.exchange import Exchange
from alphazero.training.usage.host_board import JobHosts

MOST_GPUS = 16  # per host; further ones are left out
# Of a GPU in the message: 1 where it was read, how many ranks compute on it, then the figures of GpuUsage.
FIGURES = ("utilisation_percent", "memory_used_gib", "temperature_c", "power_w")
NUM_NUMBERS = 2 + len(FIGURES)


@dataclass(frozen=True)
class JobGpu:
    """One GPU of the job's hosts. name: host/gpuN. figures: those that its driver told."""

    name: str
    num_ranks: int
    figures: dict[str, float]


class GpuBoard:
    """One per rank; local rank 0 of each host owns the meter that the host's watcher fills.

    uuid: of the GPU that this rank computes on, as NVML writes it; "" where it is not known.
    """

    def __init__(self, exchange: Exchange, host: str, local_rank: int, uuid: str, meter: UsageMeter) -> None:
        """Collective: who is where."""
        self.meter = meter
        places = exchange.gather([host, local_rank, uuid])
        hosts = JobHosts.of([(name, local) for name, local, _ in places])
        self._hosts = hosts.names
        self._node = hosts.node_of(exchange.rank)
        own = hosts.ranks_on(self._node)
        self._reads = local_rank == 0
        self._ranks_by_uuid = Counter(places[rank][2] for rank in own if places[rank][2])
        self._num_own = len(own)

    @property
    def size(self) -> int:
        """Numbers in a message."""
        return len(self._hosts) * MOST_GPUS * NUM_NUMBERS

    def message(self, doing: Doing) -> torch.Tensor:
        """f64 [size]: this host's GPUs in its own place, zeros elsewhere; to be added up over ranks."""
        board_HGN = torch.zeros(len(self._hosts), MOST_GPUS, NUM_NUMBERS, dtype=torch.float64)
        if self._reads:
            usages = self.meter.take(doing)[:MOST_GPUS]
            ranks = self._ranks_on(usages)
            for place, usage in enumerate(usages):
                figures = [getattr(usage, name) for name in FIGURES]
                board_HGN[self._node, place, 0] = usage.index + 1
                board_HGN[self._node, place, 1] = ranks[place]
                board_HGN[self._node, place, 2:] = torch.tensor(figures, dtype=torch.float64)
        return board_HGN.flatten()

    def read(self, total: torch.Tensor) -> list[JobGpu]:
        """What the sum of all messages says, by host and index."""
        gpus = []
        board_HGN = total.view(len(self._hosts), MOST_GPUS, NUM_NUMBERS)
        for host, board_GN in zip(self._hosts, board_HGN.tolist(), strict=True):
            for number, num_ranks, *figures in board_GN:
                if number:
                    told = zip(FIGURES, figures, strict=True)
                    known = {name: figure for name, figure in told if not math.isnan(figure)}
                    gpus.append(JobGpu(f"{host}/gpu{int(number) - 1}", int(num_ranks), known))
        return gpus

    def _ranks_on(self, usages: tuple[GpuUsage, ...]) -> list[int]:
        """How many ranks compute on each; by position where UUIDs do not tell."""
        ranks = [self._ranks_by_uuid[usage.uuid] for usage in usages]
        return ranks if any(ranks) else [int(place < self._num_own) for place in range(len(usages))]


def utilisation(gpus: list[JobGpu]) -> float | None:
    """Mean share of the time in which a kernel ran on the GPUs that ranks compute on; None if not known."""
    shares = [
        gpu.figures["utilisation_percent"] / 100
        for gpu in gpus
        if gpu.num_ranks and "utilisation_percent" in gpu.figures
    ]
    return sum(shares) / len(shares) if shares else None


def gpu_figures(gpus: list[JobGpu]) -> dict[str, float]:
    """For the metrics, by host/gpuN/figure."""
    return {f"{gpu.name}/{name}": value for gpu in gpus for name, value in gpu.figures.items()}
