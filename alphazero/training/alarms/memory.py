"""A host that is running out of memory: below a tenth the page cache goes, and with it the loader's speed."""

from __future__ import annotations

from alphazero.host.memory import CRITICAL_SHARE, LOW_SHARE
from alphazero.training.alarms.alarm import Alarm
from alphazero.training.usage.host_board import HostNow

CAUSE = "memory"
GIB = 1 << 30


def look_at_memory(hosts: list[HostNow]) -> list[Alarm]:
    """The hosts with less than LOW_SHARE of their memory available, a container's limit counted."""
    return [
        Alarm(
            CAUSE,
            f"{now.host} has {now.memory_available_bytes / GIB:.1f} of {now.memory_total_bytes / GIB:.1f} "
            f"GiB of memory available, below {LOW_SHARE:.0%}",
            "end other programs there, or run fewer ranks or a smaller --micro-batch-size; below "
            f"{CRITICAL_SHARE:.0%} the run saves a checkpoint and stops",
            subject=now.host,
        )
        for now in hosts
        if now.memory_available_bytes < LOW_SHARE * now.memory_total_bytes
    ]
