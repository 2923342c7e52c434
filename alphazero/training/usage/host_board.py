"""What the hosts of a job have left, and their clocks: read on each, brought together with the figures."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from alphazero.host.memory import HostMemory
from alphazero.host.network import tcp_segments
from alphazero.training.exchange import Exchange


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
