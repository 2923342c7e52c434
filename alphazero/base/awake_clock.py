"""A clock for those who wait for a sign of life."""

from __future__ import annotations

import time
from collections.abc import Callable

TURN_S = 2.0


class AwakeClock:
    """Seconds, without those in which it was not looked at: of the time between two calls it counts TURN_S.

    Who watches others calls it several times a second. If that program was held up (its output, by Ctrl-S) or
    the whole job was (a batch system suspends it, a container is paused), its silence means no loss.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before = clock()
        self._asleep_s = 0.0

    def __call__(self) -> float:
        now = self._clock()
        self._asleep_s += max(0.0, now - self._before - TURN_S)
        self._before = now
        return now - self._asleep_s
