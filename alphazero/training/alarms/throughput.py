"""A job that has become slower than it was: under 70 % of its own median."""

from __future__ import annotations

import statistics
from collections import deque

from alphazero.training.alarms.alarm import Alarm

CAUSE = "throughput"
LEAST_SHARE = 0.7
# Intervals before the first judgement: the first ones choose kernels and fill caches.
LEAST_HISTORY = 5
MOST_HISTORY = 1000


class Throughput:
    """Remembers the rates of intervals. unit: of a rate, as "positions/s"; where: for people."""

    def __init__(self, unit: str, where: str) -> None:
        self._unit = unit
        self._where = where
        self._rates: deque[float] = deque(maxlen=MOST_HISTORY)

    def look(self, rate: float) -> list[Alarm]:
        """Judge one more interval by those before it."""
        found = []
        if len(self._rates) >= LEAST_HISTORY:
            median = statistics.median(self._rates)
            if rate < LEAST_SHARE * median:
                found.append(self._alarm(rate, median))
        self._rates.append(rate)
        return found

    def _alarm(self, rate: float, median: float) -> Alarm:
        return Alarm(
            CAUSE,
            f"{self._where} runs at {rate:,.0f} {self._unit}, {rate / median:.0%} of the run's median of "
            f"{median:,.0f} (limit {LEAST_SHARE:.0%})",
            "see what else runs on the hosts (top, nvidia-smi), whether a device is hot or throttled "
            "(alphazero health), and what the shares of time say that the log lines tell",
            reason=self._where,
        )
