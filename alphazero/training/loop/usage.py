"""What the time of a log interval went into, and the state of the job's GPUs and hosts meanwhile.

Each host reads its own; the figures of all travel in the message in which ranks add up their steps.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from alphazero.machine.machine import tcp_segments
from alphazero.machine.memory import HostMemory
from alphazero.machine.watcher import Doing, GpuUsage, UsageMeter
from alphazero.training.loop.part_clock import Cause
from alphazero.training.ranks.exchange import Exchange


@dataclass(frozen=True)
class HostNow:
    """A host at one moment, in bytes and seconds.

    clock_s: since 1970 by its clock. steady_s: by its monotonic clock. disk_free_bytes: where the run is
    written. segments, retransmitted: of TCP, counted since the host started.
    """

    host: str
    clock_s: float
    steady_s: float
    disk_free_bytes: float
    memory_available_bytes: float
    memory_total_bytes: float
    segments: float
    retransmitted: float


Read = Callable[[], HostNow]


class _Board:
    """A row of numbers for each host of the job: local rank 0 of each fills its own, a sum over ranks all.

    names: of the hosts, with a number where two have the same. nodes_R, hosts_R: the number and the name of
    each rank's host; ranks stand host by host, each from its local rank 0 on.
    """

    def __init__(self, places: Sequence[Sequence[Any]], rank: int, row: tuple[int, ...]) -> None:
        """places: host and local rank of every rank. row: the shape of a row."""
        firsts = [local == 0 for _, local, *_ in places]
        names = [place[0] for place, is_first in zip(places, firsts, strict=True) if is_first]
        self.names = [name if names.count(name) == 1 else f"{name}-{node}" for node, name in enumerate(names)]
        self.nodes_R = [node - 1 for node in itertools.accumulate(firsts)]
        self.hosts_R = tuple(self.names[node] for node in self.nodes_R)
        self._node, self._reads = self.nodes_R[rank], firsts[rank]
        self._shape = (len(names), *row)

    def _rows(self, total: torch.Tensor) -> Iterator[tuple[str, list[Any]]]:
        """Host and row of the sum of all messages."""
        return zip(self.names, total.view(self._shape).tolist(), strict=True)


class HostBoard(_Board):
    """What the hosts of a job have left, and their clocks. One per rank."""

    def __init__(self, exchange: Exchange, host: str, local_rank: int, read: Read) -> None:
        """Collective. read: looks at this host."""
        # In a row: the figures of HostNow.
        super().__init__(exchange.gather([host, local_rank]), exchange.rank, (len(fields(HostNow)) - 1,))
        self._read = read

    def message(self) -> torch.Tensor:
        """f64: this host in its own row, zeros elsewhere."""
        board_HN = torch.zeros(self._shape, dtype=torch.float64)
        if self._reads:
            _, *numbers = astuple(self._read())
            board_HN[self._node] = torch.tensor(numbers, dtype=torch.float64)
        return board_HN.flatten()

    def read(self, total: torch.Tensor) -> list[HostNow]:
        """The hosts in the sum of all messages."""
        return [HostNow(name, *numbers) for name, numbers in self._rows(total)]


def host_reader(host: str, directory: Path) -> Read:
    """A function that looks at this host. directory: of the run, which exists by the first look."""
    memory = HostMemory(host=host)

    def read() -> HostNow:
        state, (sent, again) = memory.check(), tcp_segments()
        return HostNow(
            host,
            time.time(),
            time.monotonic(),
            _free_bytes(directory),
            float(state.available_bytes),
            float(state.total_bytes),
            float(sent),
            float(again),
        )

    return read


def _free_bytes(directory: Path) -> float:
    """nan where it is unknown, which no rule takes for little."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return math.nan
    return float(disk.f_bavail * disk.f_frsize)


MOST_GPUS = 16  # per host; further ones are left out
FIGURES = ("utilisation_percent", "memory_used_gib", "temperature_c", "power_w")


@dataclass(frozen=True)
class JobGpu:
    """One GPU of the job's hosts. name: host/gpuN. figures: those that its driver reports."""

    name: str
    num_ranks: int
    figures: dict[str, float]


class GpuBoard(_Board):
    """The GPUs of all hosts of a job. One per rank.

    meter: on local rank 0, filled by the host's watcher. uuid: of the GPU that this rank computes on, as
    NVML writes it; "" where it is not known.
    """

    def __init__(self, exchange: Exchange, host: str, local_rank: int, uuid: str, meter: UsageMeter) -> None:
        """Collective."""
        self.meter = meter
        places = exchange.gather([host, local_rank, uuid])
        # Of a GPU: 1 + its index where it was read, how many ranks compute on it, then its figures.
        super().__init__(places, exchange.rank, (MOST_GPUS, 2 + len(FIGURES)))
        own = [place[2] for place, node in zip(places, self.nodes_R, strict=True) if node == self._node]
        self._ranks_by_uuid = Counter(filter(None, own))
        self._num_own = len(own)

    def message(self, doing: Doing) -> torch.Tensor:
        """f64: this host's GPUs in its own row, zeros elsewhere."""
        board_HGN = torch.zeros(self._shape, dtype=torch.float64)
        if self._reads:
            usages = self.meter.take(doing)[:MOST_GPUS]
            for place, (usage, num_ranks) in enumerate(zip(usages, self._ranks_on(usages), strict=True)):
                numbers = [usage.index + 1, num_ranks, *(getattr(usage, name) for name in FIGURES)]
                board_HGN[self._node, place] = torch.tensor(numbers, dtype=torch.float64)
        return board_HGN.flatten()

    def read(self, total: torch.Tensor) -> list[JobGpu]:
        """The GPUs in the sum of all messages, by host and index."""
        gpus = []
        for host, board_GN in self._rows(total):
            for number, num_ranks, *figures in board_GN:
                if number:
                    named = zip(FIGURES, figures, strict=True)
                    known = {name: figure for name, figure in named if not math.isnan(figure)}
                    gpus.append(JobGpu(f"{host}/gpu{int(number) - 1}", int(num_ranks), known))
        return gpus

    def _ranks_on(self, usages: tuple[GpuUsage, ...]) -> list[int]:
        """How many ranks compute on each; by position where UUIDs do not match."""
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


@dataclass(frozen=True)
class IntervalUsage:
    """What the time of a log interval went into, over all ranks.

    words: for the log line. busy: share of the time in which the GPUs computed, None without any. waits: what
    a GPU waits for, on the rank that the others wait for; where: which one that is. work_s_R: seconds of each
    rank's own work. hosts: what they have left, if that is watched.
    """

    words: str = ""
    busy: float | None = None
    waits: Mapping[Cause, float] = field(default_factory=dict)
    where: str = ""
    work_s_R: tuple[float, ...] = ()
    hosts: tuple[HostNow, ...] = ()
