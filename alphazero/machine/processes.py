"""Which boot of which machine this is, and which process a pid means: facts that no clock can change."""

from __future__ import annotations

from functools import cache
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Field 22 of /proc/PID/stat, counted behind the name in parentheses (proc(5)).
START_FIELD = 22 - 3


@cache
def boot_id() -> str:
    """The kernel's id of this boot, the same in all containers and namespaces of a machine; "" if unknown."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


@cache
def pid_namespace() -> str:
    """Within which processes have their pids: another container of the same machine counts on its own."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


@cache
def machine_identity() -> str:
    """The same for two names or addresses of one host: its boot and its network namespace; "" if unknown.

    Containers with networks of their own, and hosts that tests make of namespaces, share a kernel and are
    hosts to their peers.
    """
    try:
        network = str(Path("/proc/self/ns/net").readlink())
    except OSError:
        return ""
    return f"{boot_id()} {network}" if boot_id() else ""


def process_started(pid: int) -> int:
    """When process `pid` began, in clock ticks since the boot; -1 where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[START_FIELD])
    except (OSError, ValueError, IndexError):
        return -1
