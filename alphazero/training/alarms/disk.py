"""A disk that will be full before the run has ended, at the rate at which it fills now."""

from __future__ import annotations

from alphazero.training.alarms.alarm import Alarm
from alphazero.training.usage.host_board import HostNow

CAUSE = "disk"
GIB = 1 << 30
# Beyond this nothing is predicted: checkpoints that are kept stop growing in number, other users clean up.
HORIZON_S = 24 * 3600.0
# What filled for a minute is predicted for less than two hours: somebody may just be copying a file.
FORESIGHT = 100
# Smaller changes are what a file system keeps for itself.
LEAST_BYTES = 1 << 20
# A disk that fills now, and one that fills by a checkpoint every so often.
SHORT_S, LONG_S = 0.0, 3600.0


class FillingDisk:
    """Compares the free space of each host with that of the interval before.

    every_s: the least length of an interval; what comes earlier is passed over.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._judged_at: float | None = None
        self._before: dict[str, HostNow] = {}
        self._since: dict[str, HostNow] = {}  # when each disk began to fill without a pause

    def look(self, hosts: list[HostNow], remaining_s: float) -> list[Alarm] | None:
        """Judge by how much less is free; None where the interval has not ended.

        remaining_s: until the run's end, inf where it is not known.
        """
        now_s = hosts[0].steady_s if hosts else 0.0
        if not hosts or (self._judged_at is not None and now_s - self._judged_at < self._every_s):
            return None
        self._judged_at = now_s
        found = [alarm for now in hosts if (alarm := self._judge(now, remaining_s))]
        self._before = {now.host: now for now in hosts}
        return found

    def _judge(self, now: HostNow, remaining_s: float) -> Alarm | None:
        before = self._before.get(now.host, now)
        if not before.disk_free_bytes - now.disk_free_bytes >= LEAST_BYTES:  # nan: not known
            self._since.pop(now.host, None)
            return None
        since = self._since.setdefault(now.host, before)
        seconds = now.steady_s - since.steady_s
        rate = (since.disk_free_bytes - now.disk_free_bytes) / seconds
        if now.disk_free_bytes / rate >= min(remaining_s, HORIZON_S, FORESIGHT * seconds):
            return None
        return _alarm(now, rate)


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
