"""Control groups: what the kernel allows this process of memory and processors (versions 1 and 2)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
# A group without a limit shows a number near 2**63 (version 1) or "max" (version 2).
NO_LIMIT = 1 << 60


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


def _quota_of(group: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = (_read_number(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    # Version 1 says -1 where there is no limit.
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
                # Beside groups of version 1, version 2 has a mount of its own.
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
