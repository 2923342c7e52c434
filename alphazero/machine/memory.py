"""What this host has for a training process, by the limits of its control groups: memory, processors, disk.

Also where freed memory goes: back to the kernel, or to the process's next allocation.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from alphazero.base.files import nearest_existing

ROOT = Path("/")
# A group without a limit shows a number near 2**63 (version 1) or "max" (version 2).
NO_LIMIT = 1 << 60
# How CUDA and its driver, cuDNN (before 9 and since), cuBLAS, NCCL and the CPU's allocator (c10's
# alloc_cpu.cpp) report it in errors that have no type of their own; in lower case.
OUT_OF_MEMORY_WORDS = (
    "out of memory",
    "cudaerrormemoryallocation",
    "_alloc_failed",
    "_allocation_failed",
    "failed to cuda calloc",
    "can't allocate memory",
)


def memory_error(error: BaseException | None) -> BaseException | None:
    """The error of memory that `error` is or was raised from, host's or device's; None where there is none.

    torch's own type is known by its name: a host without torch asks as well.
    """
    while error is not None:
        names = {kind.__name__ for kind in type(error).__mro__}
        if isinstance(error, MemoryError) or "OutOfMemoryError" in names:
            return error
        text = str(error).lower()
        if isinstance(error, RuntimeError) and any(words in text for words in OUT_OF_MEMORY_WORDS):
            return error
        error = error.__cause__ or error.__context__
    return None


def memory_limits(root: Path = ROOT) -> Iterator[tuple[int, int]]:
    """(limit, used) in bytes of every group with a limit of memory that holds this process.

    Files that the kernel keeps in memory do not count as used. root: where /proc and /sys are found.
    """
    for path in _groups("memory", root):
        v2 = (path / "memory.max").exists()
        names = ("memory.max", "memory.current") if v2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        limit, used = (_read_number(path / name) for name in names)
        if limit is not None and used is not None and limit < NO_LIMIT:
            yield limit, max(0, used - _page_cache(path / "memory.stat", "" if v2 else "total_"))


def processor_quota(root: Path = ROOT) -> float | None:
    """Processors that this process may keep busy by the tightest of its groups, None without a limit."""
    quotas = [quota for path in _groups("cpu", root) if (quota := _quota_of(path)) is not None]
    return min(quotas, default=None)


def count_processors(root: Path = ROOT) -> int:
    """Processors (hardware threads) this process may use by affinity and container quota, at least 1."""
    allowed, quota = len(os.sched_getaffinity(0)), processor_quota(root)
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def count_cores(root: Path = ROOT) -> int:
    """Physical cores this process may use by affinity and container quota, at least 1."""
    logical = psutil.cpu_count(logical=True) or 1
    physical = psutil.cpu_count(logical=False) or logical
    allowed, quota = len(os.sched_getaffinity(0)) * physical / logical, processor_quota(root)
    return max(1, int(allowed if quota is None else min(allowed, quota)))


def _quota_of(group: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = (_read_number(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    # Version 1 has -1 where there is no limit.
    return quota_us / period_us if quota_us and period_us and quota_us > 0 else None


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Directories of the groups that hold this process, from its own up to the outermost.

    In a container the path of /proc/self/cgroup may be the host's and not be mounted: then the mount
    itself is the container's own group.
    """
    mount = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" and not controllers:
                # Beside groups of version 1, version 2 has a separate mount.
                top = mount / "unified" if (mount / "unified").is_dir() else mount
            elif controller in controllers.split(","):
                top = next(
                    (mount / name for name in (controller, controllers) if (mount / name).is_dir()), mount
                )
            else:
                continue
            inside = top / path.lstrip("/")
            yield from (group for group in (inside, *inside.parents) if group.is_relative_to(top))


def _page_cache(stat: Path, prefix: str) -> int:
    """Bytes of files kept in memory: the kernel gives them back when asked (as MemAvailable counts)."""
    kept = (f"{prefix}active_file", f"{prefix}inactive_file")
    with contextlib.suppress(OSError, ValueError):
        pairs = (line.split(" ", 1) for line in stat.read_text(encoding="ascii").splitlines())
        return sum(int(value) for name, value in pairs if name in kept)
    return 0


def _read_number(path: Path) -> int | None:
    """The number a file of the kernel holds; None where it holds none ("max") or is not there."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


# Below this share of the total, allocations begin to push out the page cache that feeds the loader.
LOW_SHARE = 0.10
# Below this the kernel is about to end a process, most likely a rank.
CRITICAL_SHARE = 0.03


@dataclass(frozen=True)
class MemoryState:
    """Memory of this host at one moment, in bytes; total and available as the tightest limit allows."""

    available_bytes: int
    total_bytes: int

    @property
    def is_critical(self) -> bool:
        """True below CRITICAL_SHARE of the total."""
        return self.available_bytes < CRITICAL_SHARE * self.total_bytes

    def __str__(self) -> str:
        gib = [f"{size / 2**30:.1f} GiB" for size in (self.available_bytes, self.total_bytes)]
        return f"{gib[0]} of {gib[1]} host memory available"


def read_memory(root: Path = ROOT) -> MemoryState:
    """The memory of the host and of the control groups this process is in; well under a millisecond.

    root: where /proc and /sys are found.
    """
    memory = psutil.virtual_memory()
    available, total = int(memory.available), int(memory.total)
    for limit, used in memory_limits(root):
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return MemoryState(available, total)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
LARGEST_MAPPED = 32 << 20  # the most that every glibc takes as M_MMAP_THRESHOLD
NEVER = -1


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Have glibc keep blocks of up to 32 MiB that are freed, for what is allocated next.

    A training step on a CPU frees its tensors and allocates the same ones in the next step. The kernel would
    map and zero their pages each time, which is up to a fifth of the step. False where
    the C library is another one, or `environment` has settings of malloc: those are left alone.
    """
    if any(name.startswith("MALLOC_") for name in environment) or "malloc" in environment.get(
        "GLIBC_TUNABLES", ""
    ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_MAPPED)) and bool(mallopt(M_TRIM_THRESHOLD, NEVER))


SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class HostReading:
    """This host now; None where the system does not report it. Sizes in bytes.

    memory_available: what this process can still get, a container's limit counted.
    directory: the nearest existing directory above where the run will be written.
    """

    memory_total: int
    memory_available: int
    swap_total: int
    swap_used: int
    directory: str
    disk_free: int | None
    shm_free: int | None
    open_files: int
    load: float
    cores: int


def read_host(directory: Path) -> HostReading:
    """Look at this host; `directory` is where the run will be written, it need not exist yet."""
    memory, swap, existing = read_memory(), psutil.swap_memory(), nearest_existing(directory)
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return HostReading(
        memory_total=memory.total_bytes,
        memory_available=memory.available_bytes,
        swap_total=swap.total,
        swap_used=swap.used,
        directory=str(existing),
        disk_free=_free_bytes(existing),
        shm_free=_free_bytes(SHARED_MEMORY),
        open_files=1 << 30 if open_files == resource.RLIM_INFINITY else open_files,
        load=os.getloadavg()[0],
        cores=count_cores(),
    )


def _free_bytes(directory: Path) -> int | None:
    with contextlib.suppress(OSError):
        return psutil.disk_usage(str(directory)).free
    return None
