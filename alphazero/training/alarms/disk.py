"""A disk that will be full before the run has ended, at the rate at which it fills now."""

from __future__ import annotations

from alphazero.training.alarms.alarm import Alarm
from alphazero.training.usage.host_board import HostNow

CAUSE = "disk"
GIB = 1 << 30
# Beyond this nothing is foretold: checkpoints that are kept stop growing in number, other users clean up.
HORIZON_S = 24 * 3600.0
# Smaller changes are what a file system keeps for itself.
LEAST_BYTES = 1 << 20


class FillingDisk:
    """Compares the free space of each host with that of the interval before."""

    def __init__(self) -> None:
        self._before: dict[str, HostNow] = {}

    def look(self, hosts: list[HostNow], remaining_s: float) -> list[Alarm]:
        """Judge by how much less is free. remaining_s: until the run's end, inf where it is not known."""
        found = []
        for now in hosts:
            before = self._before.get(now.host)
            if before is not None and now.clock_s > before.clock_s:
                taken = before.disk_free_bytes - now.disk_free_bytes
                rate = taken / (now.clock_s - before.clock_s)
                if taken >= LEAST_BYTES and now.disk_free_bytes / rate < min(remaining_s, HORIZON_S):
                    found.append(_alarm(now, rate))
            self._before[now.host] = now
        return found


def _alarm(now: HostNow, rate: float) -> Alarm:
    hours = now.disk_free_bytes / rate / 3600
    left = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"
    return Alarm(
        CAUSE,
        f"the disk of the run directory on {now.host} loses {rate * 3600 / GIB:,.2f} GiB an hour and has "
        f"{now.disk_free_bytes / GIB:,.1f} GiB left: at this rate it is full in {left}, before the run ends",
        "make room there, fewer --keep-checkpoints, or a --runs-dir on a larger disk",
        subject=now.host,
    )
