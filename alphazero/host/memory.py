"""Memory of this host as a training process may use it: what is left, and whether that is little."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from alphazero.host.control_groups import ROOT, memory_limits

# Below this share of the total, allocations begin to push out the page cache that feeds the loader.
LOW_SHARE = 0.10
# Below this the kernel is about to end a process, most likely a rank.
CRITICAL_SHARE = 0.03


@dataclass(frozen=True)
class MemoryState:
    """Memory of a host at one moment, in bytes; total and available as the tightest limit allows."""

    host: str
    available_bytes: int
    total_bytes: int
    rss_bytes: int
    low_share: float = LOW_SHARE
    critical_share: float = CRITICAL_SHARE

    @property
    def is_low(self) -> bool:
        """True below low_share of the total."""
        return self.available_bytes < self.low_share * self.total_bytes

    @property
    def is_critical(self) -> bool:
        """True below critical_share of the total."""
        return self.available_bytes < self.critical_share * self.total_bytes

    @property
    def figures(self) -> dict[str, float]:
        """For the metrics."""
        return {"available_bytes": float(self.available_bytes), "rss_bytes": float(self.rss_bytes)}

    def __str__(self) -> str:
        return (
            f"{self.host}: {_gib(self.available_bytes)} of {_gib(self.total_bytes)} host memory available, "
            f"this rank holds {_gib(self.rss_bytes)}"
        )


class HostMemory:
    """Watches the memory of the host and of the control groups this process is in.

    root: where /proc and /sys are found. virtual_memory: psutil's, for `available` and `total`.
    rss_bytes: resident memory of this process. low_share, critical_share: see MemoryState.
    """

    def __init__(
        self,
        root: Path = ROOT,
        virtual_memory: Callable[[], Any] = psutil.virtual_memory,
        rss_bytes: Callable[[], int] | None = None,
        host: str = "",
        low_share: float = LOW_SHARE,
        critical_share: float = CRITICAL_SHARE,
    ) -> None:
        self._root = root
        self._virtual_memory = virtual_memory
        self._rss_bytes = rss_bytes or resident_bytes
        self._host = host or socket.gethostname()
        self._low_share = low_share
        self._critical_share = critical_share

    def check(self) -> MemoryState:
        """The state now; reads a few files of the kernel, well under a millisecond."""
        memory = self._virtual_memory()
        available, total = int(memory.available), int(memory.total)
        for limit, used in memory_limits(self._root):
            total = min(total, limit)
            available = min(available, max(0, limit - used))
        return MemoryState(
            self._host, available, total, self._rss_bytes(), self._low_share, self._critical_share
        )


def resident_bytes() -> int:
    """Memory of this process that lies in RAM."""
    return int(psutil.Process().memory_info().rss)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
