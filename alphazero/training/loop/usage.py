"""What a log interval was used for: one rank's part of a message, and what rank 0 makes of all of them.

The GPUs of all hosts of a job: read on each host, brought together in a message that ranks send anyway.

What the hosts of a job have left, and their clocks: read on each, brought together with the figures.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch

from alphazero.machine.machine import tcp_segments
from alphazero.machine.memory import HostMemory
from alphazero.machine.watcher import Doing, GpuUsage, UsageMeter
from alphazero.run.metrics import AllWriters
from alphazero.training.loop.part_clock import Cause, Part, PartClock, job_shares
from alphazero.training.ranks.exchange import Exchange


@dataclass(frozen=True)
class HostNow:
    """A host at one moment, in bytes and seconds.

    clock_s: since 1970 by its clock. steady_s: by a clock that nobody sets. disk_free_bytes: where the run is
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


# In a message: 1 where the host was read, then the figures of HostNow.
NUM_NUMBERS = len(fields(HostNow))
Read = Callable[[], HostNow]


@dataclass(frozen=True)
class JobHosts:
    """The hosts of a job by name, and on which of them each rank is; ranks stand host by host.

    names: of each host, with a number where two have the same. starts: the first rank of each.
    """

    names: tuple[str, ...]
    starts: tuple[int, ...]
    world_size: int

    @classmethod
    def of(cls, places: Sequence[tuple[str, int]]) -> JobHosts:
        """From host and local rank of every rank: each host begins with its local rank 0."""
        starts = [rank for rank, (_, local) in enumerate(places) if local == 0]
        names = [places[rank][0] for rank in starts]
        told = [name if names.count(name) == 1 else f"{name}-{node}" for node, name in enumerate(names)]
        return cls(tuple(told), tuple(starts), len(places))

    def node_of(self, rank: int) -> int:
        """The number of the host that `rank` is on."""
        return sum(start <= rank for start in self.starts) - 1

    def ranks_on(self, node: int) -> range:
        """The ranks of host number `node`."""
        return range(self.starts[node], [*self.starts, self.world_size][node + 1])

    @property
    def by_rank(self) -> tuple[str, ...]:
        """The name of each rank's host."""
        return tuple(self.names[self.node_of(rank)] for rank in range(self.world_size))


class HostBoard:
    """One per rank; local rank 0 of each host reads it."""

    def __init__(self, exchange: Exchange, host: str, local_rank: int, read: Read) -> None:
        """Collective: who is where. read: looks at this host."""
        self.hosts = JobHosts.of([(name, local) for name, local in exchange.gather([host, local_rank])])
        self._node = self.hosts.node_of(exchange.rank)
        self._reads = local_rank == 0
        self._read = read

    @property
    def size(self) -> int:
        """Numbers in a message."""
        return len(self.hosts.names) * NUM_NUMBERS

    def message(self) -> torch.Tensor:
        """f64 [size]: this host in its own place, zeros elsewhere; to be added up over ranks."""
        board_HN = torch.zeros(len(self.hosts.names), NUM_NUMBERS, dtype=torch.float64)
        if self._reads:
            now = self._read()
            numbers = [1.0, *(float(getattr(now, entry.name)) for entry in fields(HostNow)[1:])]
            board_HN[self._node] = torch.tensor(numbers, dtype=torch.float64)
        return board_HN.flatten()

    def read(self, total: torch.Tensor) -> list[HostNow]:
        """What the sum of all messages says, host by host."""
        board_HN = total.view(len(self.hosts.names), NUM_NUMBERS).tolist()
        return [
            HostNow(name, *numbers)
            for name, (is_read, *numbers) in zip(self.hosts.names, board_HN, strict=True)
            if is_read
        ]


def host_reader(host: str, directory: Path) -> Read:
    """A function that looks at this host. directory: of the run, which is there by the first look."""
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
    """nan where the system does not tell, which no rule takes for little."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return math.nan
    return float(disk.f_bavail * disk.f_frsize)


MOST_GPUS = 16  # per host; further ones are left out
# Of a GPU in the message: 1 where it was read, how many ranks compute on it, then the figures of GpuUsage.
FIGURES = ("utilisation_percent", "memory_used_gib", "temperature_c", "power_w")
GPU_BOARD_NUM_NUMBERS = 2 + len(FIGURES)


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
        return len(self._hosts) * MOST_GPUS * GPU_BOARD_NUM_NUMBERS

    def message(self, doing: Doing) -> torch.Tensor:
        """f64 [size]: this host's GPUs in its own place, zeros elsewhere; to be added up over ranks."""
        board_HGN = torch.zeros(len(self._hosts), MOST_GPUS, GPU_BOARD_NUM_NUMBERS, dtype=torch.float64)
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
        board_HGN = total.view(len(self._hosts), MOST_GPUS, GPU_BOARD_NUM_NUMBERS)
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
