"""Watches the memory of the host, so that a run ends with a checkpoint and not by the kernel's choice."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

LOW_SHARE, CRITICAL_SHARE = 0.10, 0.03
CGROUP = Path("/sys/fs/cgroup")
GIB = 2**30


@dataclass(frozen=True)
class MemoryState:
    """What is left on a host, in bytes; the container's limit counts where it is lower."""

    host: str
    available_bytes: int
    total_bytes: int
    rss_bytes: int

    @property
    def is_low(self) -> bool:
        """Worth a word."""
        return self.available_bytes < LOW_SHARE * self.total_bytes

    @property
    def is_critical(self) -> bool:
        """Time to save and end."""
        return self.available_bytes < CRITICAL_SHARE * self.total_bytes

    def __str__(self) -> str:
        return (
            f"{self.host} is low on memory: {self.available_bytes / GIB:.1f} GiB "
            f"of {self.total_bytes / GIB:.1f} left, this rank uses {self.rss_bytes / GIB:.1f}"
        )


class HostMemory:
    """Reads the memory of this host and process."""

    def __init__(self, host: str, cgroup: Path = CGROUP) -> None:
        self._host = host
        self._cgroup = cgroup
        self._process = psutil.Process(os.getpid())

    def check(self) -> MemoryState:
        """The state now."""
        memory = psutil.virtual_memory()
        available, total = memory.available, memory.total
        limit = self._read("memory.max")
        if limit is not None and limit < total:
            # The page cache counts as used there and is given back at need.
            used = (self._read("memory.current") or 0) - self._reclaimable()
            available, total = min(available, limit - used), limit
        return MemoryState(self._host, available, total, self._process.memory_info().rss)

    def _read(self, name: str) -> int | None:
        try:
            text = (self._cgroup / name).read_text(encoding="ascii").strip()
        except OSError:
            return None  # no cgroup v2: nothing but the host limits us
        return int(text) if text.isdecimal() else None

    def _reclaimable(self) -> int:
        try:
            lines = (self._cgroup / "memory.stat").read_text(encoding="ascii").splitlines()
        except OSError:
            return 0
        return sum(
            int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "active_file "))
        )
